"""Functions around whole jobs, which users call in their Spark session and which use the sink.

Owns: reading dead letters (``read_dead_letters``), the last change of each key (``upserts``), tasks
that write to few brokers (``by_leader``), large tables in steps (``backfill``). Imported on use.
"""
