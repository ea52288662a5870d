"""The Spark side: ``format("kprod")``. The only room that imports pyspark.

On the way of a write: ``source`` (the data source), ``write_plan`` (the value that the driver sends
to the tasks), ``planned_task`` and ``planned_batch`` (its use in a task and on the driver),
``foreach_batch``, ``schemas`` (schemas of values and keys), ``write`` (one task), ``exactly_once``
(what a transaction adds), ``checks/preflight`` and ``checks/topic_checks`` (before any task),
``report`` (the report of a batch), ``process`` (the Python process that Spark started).

Beside that way, and imported when they are used: ``session`` (``register``), the other files of
``checks`` (``kprod check``), ``monitoring`` (metrics, progress, listeners), ``jobs``
(functions around whole jobs, as reading dead letters).
"""
