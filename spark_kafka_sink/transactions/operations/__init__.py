"""The commands with which operators inspect and change the state of exactly-once. Writes of the
sink don't use this package.

* ``inspection``: the open transactions and the commit-log states of one transactionalIdPrefix.
* ``blockers`` and ``held_partitions``: the open transactions of a topic, and the consumer groups
  that wait for them.
* ``operator``: commit, abort, sweep, resolve, reset.

This package prints nothing, and asks no questions: the package ``cli/txn`` does that.
"""
