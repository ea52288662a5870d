"""The commands with which operators inspect and change the state of exactly-once. No write uses
this package.

Owns: ``inspection`` (the state of a prefix at brokers and in the commit log), ``blockers`` and
``held_partitions`` (the transactions that block a topic's consumers, and the waiting groups),
``operator`` (commit, abort, sweep, resolve, reset). Never: a terminal, a question (``cli/txn``).
"""
