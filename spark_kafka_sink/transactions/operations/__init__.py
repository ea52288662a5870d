"""The commands with which operators inspect and change the state of exactly-once. Writes of the
sink don't use this package.

* ``inspection``: the open transactions and the commit-log states of one transactionalIdPrefix.
* ``blockers``: the open transactions of a topic.
* ``held_partitions``: the consumer groups that wait for these transactions.
* ``operator``: commit, abort, sweep, resolve, reset.

This package prints nothing, and asks no questions. The package ``cli/txn`` prints the results, and
asks for confirmations.
"""
