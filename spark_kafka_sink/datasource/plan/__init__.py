"""The plan of a write, its tasks, and its commit or abort.

Owns: ``write_plan`` (the value that the driver sends to the tasks), ``planned_task`` (a task of the
plan in a worker), ``planned_batch`` (the commit or abort on the driver). Never: Spark's writer
classes (``source``).
"""
