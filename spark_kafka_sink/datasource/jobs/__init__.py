"""Functions for whole jobs, which users call in their Spark session.

Owns: reading dead letters (``read_dead_letters``), the last change of each key (``upserts``), tasks
that write to few brokers (``by_leader``), large tables in steps (``backfill``). Each module is
imported at first use.
"""
