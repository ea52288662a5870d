"""The commit log: a topic in which the driver records its decisions to commit. The topic has one
state for each key, and each state is written in a transaction. A key is the name of a query or a
job.

``commit_log`` reads and replaces the state of a key. It uses ``log_reader``, which reads a
partition to its end, and ``log_writer``, which writes one transaction for each change.
``log_parts`` has the format of the records. ``transactions/commit_state.py`` has the meaning of a
state.
"""
