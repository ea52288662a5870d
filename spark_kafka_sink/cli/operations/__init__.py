"""What operators see and change of exactly-once; no write uses it.

Owns: ``inspection`` (what brokers and the commit log have for a prefix), ``blockers`` and
``held_partitions`` (what blocks the consumers of a topic, and what waits), ``operator`` (commit,
abort, sweep, resolve, reset). Never: a terminal, a question (``cli/txn``).
"""
