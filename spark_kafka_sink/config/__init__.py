"""Every option, with its name, type, rule and default; and the code that reads a user's options.

Owns: the parsing of an option map into the two values ``producer_config.ProducerConfig`` and
``sink_config.SinkConfig``. Never: a clock, a connection; a file, except for ``configFile`` and
files that a reference names.

``option`` is the definition of one option, ``option_table`` defines all options, and
``named_columns`` the options that name columns. ``names`` checks the names that a user has set.
``cross_checks`` checks the combinations of producer options, and ``sink_checks`` those of sink
options. ``logins`` reads the options of TLS and SASL, and ``schema_options`` the options of formats
with a schema. ``parsing`` calls all of these in order. Its results are ``producer_config`` and
``sink_config``.
"""
