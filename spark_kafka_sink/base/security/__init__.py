"""Secrets, and the operator's limits for the values of options.

* ``allow_lists``: the operator's lists of files, addresses and classes that options may name.
* ``operators_variables``: a copy of the environment variables with these lists.
* ``local_files``: reads and writes files.
* ``import_paths``: imports the users' classes and functions.
* ``addresses``: parses addresses.
* ``password``: the class of a secret that messages do not show.
* ``secret_references``: replaces references such as ``${env:NAME}`` by secrets.
* ``java_properties`` and ``jaas_config``: parse texts that may contain references.
"""
