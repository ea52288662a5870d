"""The ``ssl.`` and ``sasl.`` options of a client, read and checked together.

``security_checks`` checks a user's options. ``security_rules`` knows when these options have an
effect, and has the options of login modules. ``sasl_settings`` reads the mechanism and its
settings. ``oauth_settings`` reads the source of a token. The definitions of the options are in
``option_table``. ``base/security`` looks up secrets.
"""
