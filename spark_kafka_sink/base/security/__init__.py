"""What an option may reach, and how a secret is held.

Owns: ``allow_lists`` (which files, addresses and classes may be named at all, by
``operators_variables``), ``local_files`` (opening one), ``import_paths`` (loading a class),
``addresses`` (their syntax, and which hosts are this machine), ``password`` (a secret whose repr is
hidden), ``secret_references`` (looking one up, with ``java_properties``, and in a
``jaas_config``). Never: what the options mean (``config``).
"""
