"""Defines every option, with its name, type, rule and default. Reads the options of a user.

This package parses a map of options into ``producer_config.ProducerConfig`` and
``sink_config.SinkConfig``. It opens no connection and reads no clock. It reads the file of the
option ``configFile``. It does not look up references to secrets.

``option`` has the class of an option, ``option_table`` defines all options, and ``named_columns``
reads the options that name columns. ``names`` checks the names that a user has set.
``cross_checks`` checks the combinations of producer options, and ``sink_checks`` checks the
combinations of sink options. ``logins`` reads the options of TLS and SASL, and ``schema_options``
the options of formats with a schema. ``parsing`` calls all these modules in order, and creates the
two values.
"""
