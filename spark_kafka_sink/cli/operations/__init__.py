"""What operators see and change of exactly-once; no write uses it.

Owns: ``inspection`` (what brokers and the commit log have for a prefix), ``blockers`` (what blocks
the consumers of a topic), ``operator`` (commit, abort, sweep, resolve, reset). Never: a terminal, a
question (``cli/txn``).
"""
