"""Defines every option, with its name, type, rule and default. Reads the options of a user.

Owns: the parsing of an option map into the two values ``producer_config.ProducerConfig`` and
``sink_config.SinkConfig``. Never: a clock, a connection; a file, except for ``configFile`` and
files that a reference names.

``option`` has the class of an option, ``option_table`` defines all options, and ``named_columns``
reads the options that name columns. ``names`` checks the names that a user has set.
``cross_checks`` checks the combinations of producer options, and ``sink_checks`` checks the
combinations of sink options. ``logins`` reads the options of TLS and SASL, and ``schema_options``
the options of formats with a schema. ``parsing`` calls all these modules in order, and creates the
two values.
"""
