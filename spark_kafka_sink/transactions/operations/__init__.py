"""The commands of operators. They show and end the transactions of exactly-once writes, and change
the states in the commit log. Writes of the sink don't use this package.

* ``inspection``: the open transactions and the commit-log states of one transactionalIdPrefix.
* ``blockers``: the open transactions of a topic.
* ``held_partitions``: the consumer groups that wait for these transactions.
* ``operator``: commit, abort, sweep, resolve, reset.

The package ``cli/txn`` prints the results, and asks for confirmations.
"""
