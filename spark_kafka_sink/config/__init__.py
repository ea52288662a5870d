"""Every option: its name, type, rule and default; and the reading of given options.

Owns: from an option map to the two values ``producer_config.ProducerConfig`` and
``sink_config.SinkConfig``. Never: a clock, a connection; a file only where ``configFile`` or a
reference names one.

In the order of use: ``option`` (one option and its rule), ``option_table`` (all of them, with
``named_columns``), ``given_options`` (what the user set, and whose a name is, with
``foreign_options.toml``), ``cross_checks`` (the producer's together), ``logins`` (what TLS and SASL
need), ``schema_options`` (what a format with a schema needs).
"""
