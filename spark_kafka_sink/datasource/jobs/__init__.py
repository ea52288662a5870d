"""Functions for whole jobs, which users call in their Spark session.

- ``read_dead_letters`` reads a dead-letter topic.
- ``upserts`` finds the last change of each key in a change feed.
- ``by_leader`` moves rows between tasks, so that each task writes to few brokers.
- ``backfill`` writes a large table in steps.

Each module is imported at first use.
"""
