"""Defines all options, and reads the options that a user has set.

The results are ``producer_config.ProducerConfig`` and ``sink_config.SinkConfig``. This package
opens no connection, and reads no file of the user except the ``configFile``. It does not look up
references to secrets.

* ``option`` and ``option_table``: the class of an option, and the definitions of all options.
* ``names``: checks the names of the user's options.
* ``named_columns``, ``schema_options`` and ``logins``: read groups of options.
* ``cross_checks`` and ``sink_checks``: check combinations of options.
* ``parsing``: calls all these modules in order, and creates the results.
"""
