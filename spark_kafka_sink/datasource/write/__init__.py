"""The write of a task, and its results.

* ``write_task``: passes the rows of a task to a producer.
* ``commit_message``: the result of a task for the driver.
* ``producer_cache``: keeps producers open between the tasks of a process.
* ``schema``, ``named_columns`` and ``change_columns``: find the columns of a DataFrame.
* ``row_adapter``: converts the rows of pyspark 4.0.
* ``task_identity`` and ``write_context``: identify a task and a write.
* ``dead_letters`` and ``letter_counts``: rows that can't be sent.
* ``task_progress`` and ``worker_progress``: the progress of running tasks.
* ``rate_limit`` and ``connection_pace``: limits of the rate.
"""
