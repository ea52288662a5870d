"""The lowest package: every other package may import it, and it imports no other package.

Owns: ``errors`` (every exception, and the form of warnings), ``error_kinds`` (the codes of errors),
``documentation`` (the address of each page), ``suggestions`` (the probable meaning of a wrong
name), ``version``, ``clock`` (time and waiting), ``backoff``, ``json_object``, ``topic_name``,
``process_local`` (a value for each process), and the package ``security`` (the limits of options).
Never: a connection, Spark, Arrow.
"""
