"""The write of a task, and its results.

``write_task`` passes the rows of a task to a producer, and returns a ``commit_message`` to the
driver. ``producer_cache`` keeps producers open between the tasks of a process. ``schema`` finds the
columns of a DataFrame, with ``named_columns`` and ``change_columns``. ``row_adapter`` converts the
rows of pyspark 4.0. ``task_identity`` and ``write_context`` identify a task and a write.
``dead_letters`` handles rows that can't be sent. ``task_progress`` and ``worker_progress`` report
the progress of running tasks. ``rate_limit`` and ``connection_pace`` make a task wait.
"""
