"""The commit log: a Kafka topic in which the driver records its decisions to commit batches. The
topic has one state for each key. A key is the name of a query or a job.

* ``commit_log``: reads and replaces the state of a key.
* ``log_reader``: reads a partition of the topic to its end.
* ``log_writer``: writes one transaction for each change of a state.
* ``log_parts``: the format of the records.

``transactions/commit_state.py`` explains the content of a state.
"""
