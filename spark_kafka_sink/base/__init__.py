"""The lowest package. Every other package may import this package, which imports no other package.

Owns: ``errors`` (all exceptions, and the form of warnings), ``error_kinds`` (the codes of errors),
``documentation`` (the addresses of pages), ``suggestions`` (corrections of misspelled names),
``version``, ``clock`` (time and waiting), ``backoff``, ``json_object``, ``topic_name``,
``process_local`` (a value for each process), and the package ``security`` (limits of options, and
secrets). Never: opening a connection, importing Spark or Arrow.
"""
