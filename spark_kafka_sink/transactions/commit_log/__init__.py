"""The topic of the driver's decisions: one state for each key, written in transactions.

Owns: the topic and its records. Never: what a state means (``transactions/commit_state.py``).

``commit_log`` reads and replaces the state of a key, with ``log_reader`` (up to the end of a
partition) and ``log_writer`` (one transaction each time). ``log_parts`` is the format.
"""
