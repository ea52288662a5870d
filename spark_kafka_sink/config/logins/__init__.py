"""The combined meaning of the ``ssl.`` and ``sasl.`` options of a client.

Owns: ``security_rules`` (the conditions under which options count, and the options of login
modules), ``sasl_settings`` (one mechanism and its settings) with ``oauth_settings`` (the source of
a token). Never: a row of the table (``option_table``), a connection, a secret's lookup
(``base/security``).
"""
