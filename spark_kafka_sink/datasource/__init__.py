"""The Spark side of the package: ``format("kprod")``. No other part of the package imports pyspark.

These files and folders take part in a write: ``source`` (the data source), ``plan/write_plan`` (the
value that the driver sends to the tasks), ``plan/planned_task`` (runs the plan in a task),
``plan/planned_batch`` (commits or aborts the batch on the driver), ``foreach_batch``, ``schemas``
(schemas of values and keys), ``write`` (the rows of one task), ``exactly_once`` (transactions),
``checks/preflight`` and ``checks/topic_checks`` (before the first task), ``report`` (the report of
a batch), ``process`` (the Python process that Spark started).

The other folders and files are imported on use: ``session`` (``register``), the other files of
``checks`` (``kprod check``), ``monitoring`` (metrics, progress, listeners), and ``jobs`` (functions
for whole jobs, such as reading dead letters).
"""
