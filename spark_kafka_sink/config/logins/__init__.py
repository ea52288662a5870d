"""The ``ssl.`` and ``sasl.`` options of a client, read and checked together.

Owns: ``security_checks`` (the checks of a user's options), ``security_rules`` (when these options
have an effect, and the options of login modules), ``sasl_settings`` (the mechanism and its
settings) and ``oauth_settings`` (the source of a token).
Never: a row of the table (``option_table``), a connection, the lookup of a secret
(``base/security``).
"""
