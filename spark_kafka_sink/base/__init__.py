"""The ground floor: every room may import it, and it imports no other room.

Owns: ``errors`` (every exception, and the form of warnings) with ``error_kinds`` (their codes) and
``documentation`` (the address of each page), ``suggestions`` (the probable meaning of a wrong
name), ``version``, ``clock`` (time and waiting), ``backoff``, ``json_object``, ``topic_name``,
``process_local`` (a value for each process), and the room ``security`` (the limits of options).
Never: a connection, Spark, Arrow.
"""
