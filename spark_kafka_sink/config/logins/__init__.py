"""Reads and checks the ``ssl.`` and ``sasl.`` options of a client.

* ``security_checks``: checks a user's options.
* ``security_rules``: the rules of these checks, and the options of login modules.
* ``sasl_settings``: reads the SASL mechanism and its settings.
* ``oauth_settings``: reads the source of a token.
"""
