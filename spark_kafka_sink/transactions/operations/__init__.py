"""The commands with which operators inspect and change the state of exactly-once. Writes of the
sink don't use this package.

Owns: ``inspection`` (the state of a prefix at brokers and in the commit log), ``blockers`` and
``held_partitions`` (the open transactions of a topic, and the consumer groups that wait for them),
``operator`` (commit, abort, sweep, resolve, reset). Never: a terminal, a question (``cli/txn``).
"""
