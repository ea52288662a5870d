"""The commit log: a topic with the driver's decisions. It has one state for each key, and each
state is written in a transaction.

Owns: the topic and its records. Never: the meaning of a state (``transactions/commit_state.py``).

``commit_log`` reads and replaces the state of a key. It uses ``log_reader``, which reads a
partition to its end, and ``log_writer``, which writes one transaction per change. ``log_parts`` is
the format of the records.
"""
