"""The commands of operators. They show and end the transactions of exactly-once writes, and change
the states in the commit log. Writes of the sink don't use this package.

* ``inspection``: shows the open transactions under one transactionalIdPrefix, and the states of its
  keys in the commit log.
* ``blockers``: shows the open transactions of a topic.
* ``held_partitions``: shows how far consumers can read the partitions of these transactions, and
  which consumer groups wait.
* ``operator``: the commands that change something: commit, abort, sweep, resolve, reset and the
  removal of damaged records.

The package ``cli/txn`` prints the results, and asks for confirmations.
"""
