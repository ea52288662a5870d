"""Every option: its name, type, rule and default; and the reading of given options.

Owns: the way from an option map to the two values ``producer_config.ProducerConfig`` and
``sink_config.SinkConfig``. Never: a clock, a connection; a file only where ``configFile`` or a
reference names one.

In the order of use: ``option`` (one option and its rule), ``option_table`` (all options, with
``named_columns``), ``given_options`` (the user's options, with ``given``, ``config_file``,
``unknown_options`` and ``foreign_options``), ``cross_checks`` (combinations of the producer's
options), ``logins`` (settings of TLS and SASL), ``schema_options`` (options of formats with a
schema).
"""
