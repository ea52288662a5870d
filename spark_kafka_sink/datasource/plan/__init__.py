"""The plan of a write, its tasks, and its commit or abort.

The driver sends a plan (``write_plan``) to the tasks. ``planned_task`` runs a task of the plan in a
worker process. ``planned_batch`` commits or aborts the batch on the driver. Spark's writer classes,
which call these files, are in ``datasource/source.py``.
"""
