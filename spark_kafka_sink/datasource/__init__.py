"""The Spark side of the package: ``format("kprod")``. No other part of the package imports pyspark.

These files and folders take part in a write:

* ``source``: the data source that Spark calls, and ``foreach_batch``.
* ``plan``: the plan that the driver sends to the tasks, and the commit or abort of the batch.
* ``schemas``: the schemas of values and keys.
* ``write``: the rows of one task.
* ``exactly_once``: transactions.
* ``checks/preflight`` and ``checks/topic_checks``: the checks before the first task.
* ``report``: the report of a batch.
* ``process``: the Python process that Spark started.

The others are imported on use:

* ``session``: ``register``.
* ``checks``: ``kprod check``.
* ``monitoring``: metrics, progress and listeners.
* ``jobs``: functions for whole jobs, such as reading dead letters.
"""
