"""The limits of options, and the handling of secrets.

Owns: ``allow_lists`` (the files, addresses and classes that options may name, from
``operators_variables``), ``local_files`` (opening a file), ``import_paths`` (loading a class),
``addresses`` (the syntax of addresses, and the names of this machine), ``password`` (a secret whose
repr is hidden), ``secret_references`` (looking up a reference to a secret), ``java_properties`` and
``jaas_config`` (the formats of texts that may contain references). Never: the meaning of an option
(``config``).
"""
