"""The ground floor: what every room may import, and what imports no other room.

Owns: ``errors`` (every exception, and the form of warnings) with ``error_kinds`` (their codes) and
``documentation`` (where each is explained), ``suggestions`` (what a wrong name was meant to be),
``version``, ``clock`` (time and waiting), ``backoff``, ``json_object``, ``topic_name``,
``process_local`` (a value for each process), and the room ``security`` (what an option may reach).
Never: a connection, Spark, Arrow.
"""
