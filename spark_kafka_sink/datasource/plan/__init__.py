"""The plan of a write, and its use.

Owns: ``write_plan`` (the value that the driver sends to the tasks), ``planned_task`` (its task in a
worker), ``planned_batch`` (its commit or abort on the driver). Never: Spark's writer classes
(``source``).
"""
