"""Every option: its name, type, rule and default; and the parsing of given options.

Owns: the parsing of an option map into the two values ``producer_config.ProducerConfig`` and
``sink_config.SinkConfig``. Never: a clock, a connection; a file, except for ``configFile`` and
files that a reference names.

In the order of use: ``option`` (one option and its rule), ``option_table`` (all options, with
``named_columns``), ``names`` (the user's options), ``cross_checks`` (combinations of the producer's
options), ``sink_checks`` (combinations of the sink's), ``logins`` (settings of TLS and SASL),
``schema_options`` (options of formats with a schema), ``parsing`` (all steps in order; the
results are ``producer_config`` and ``sink_config``).
"""
