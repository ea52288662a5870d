"""The limits for the values of options, and the handling of secrets.

Owns: ``allow_lists`` (the files, addresses and classes that options may name; set by the operator
in the variables of ``operators_variables``), ``local_files`` (opens files), ``import_paths``
(imports classes), ``addresses`` (the syntax of addresses), ``password`` (a secret that is not
shown), ``secret_references`` (replaces references by secrets), ``java_properties`` and
``jaas_config`` (formats of texts that may contain references). Never: the meaning of an option
(``config``).
"""
