"""Functions around whole jobs: each is called in the user's session, and uses the sink.

Owns: reading dead letters (``read_dead_letters``), the last change of each key (``upserts``), tasks
that write to few brokers (``by_leader``), large tables in steps (``backfill``).
Imported when they are used.
"""
