"""The limits for the values of options, and the handling of secrets.

``allow_lists`` has the operator's lists of the files, addresses and classes that options may name.
``operators_variables`` has a copy of the environment variables that contain these lists.
``local_files`` opens files, and ``import_paths`` imports classes. ``addresses`` parses addresses.
``password`` has the class of a secret that is not shown, and ``secret_references`` replaces
references by secrets. ``java_properties`` and ``jaas_config`` parse texts that may contain
references.

This package does not know the meaning of an option. The package ``config`` has the meaning.
"""
