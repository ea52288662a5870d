"""Every option: its name, type, default and documentation; and the reading of given options.

Owns: from an option map to the two values ``producer_config.ProducerConfig`` and
``sink_config.SinkConfig``. Never: a clock, a connection; a file only where ``configFile`` or a
reference names one.

In the order of use: ``option`` (one option and its checks), ``option_table`` and
``security_options`` (all of them), ``given_options`` (what the user set, with ``files``,
``unknown_options``, ``suggestions``), ``secret_references`` (``${file:...}``), ``cross_checks``
(several together), ``bootstrap_servers``. ``sasl_settings``, ``oauth_settings`` and ``jaas_config``
read what a login needs; ``files`` is the properties file that ``configFile`` names.
"""
