"""The Spark side of the package: ``format("kprod")``. No other part of the package imports pyspark.

In the order of a write: ``source`` (the data source), ``write_plan`` (the value that the driver
sends to the tasks), ``planned_task`` (runs the plan in a task), ``planned_batch`` (commits or
aborts it on the driver), ``foreach_batch``, ``schemas`` (schemas of values and keys), ``write``
(one task), ``exactly_once`` (transactions), ``checks/preflight`` and ``checks/topic_checks``
(before the first task), ``report`` (the report of a batch), ``process`` (the Python process that
Spark started).

Not part of every write, and imported on use: ``session`` (``register``), the other files of
``checks`` (``kprod check``), ``monitoring`` (metrics, progress, listeners), and ``jobs`` (functions
around whole jobs, such as reading dead letters).
"""
