"""The limits for the values of options, and the handling of secrets.

Owns: ``allow_lists`` (the operator's lists of the files, addresses and classes that options may
name), ``operators_variables`` (the environment variables in which the operator sets these lists),
``local_files`` (opens files), ``import_paths`` (imports classes), ``addresses`` (the syntax of
addresses), ``password`` (a secret that is not shown), ``secret_references`` (replaces references by
secrets), ``java_properties`` and ``jaas_config`` (formats of texts that may contain references).
Never: the meaning of an option (``config``).
"""
