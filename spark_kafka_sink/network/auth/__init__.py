"""SASL: authentication of a new connection, and again before a session expires (KIP-368).

Owns: ``authenticator`` and ``sasl_authenticator`` (the exchange), ``sasl_mechanism`` (the interface
of a mechanism) and one file for each mechanism: ``sasl_plain``, ``sasl_scram`` with ``saslprep``,
``sasl_gssapi``, ``sasl_oauthbearer``, ``aws_msk_iam``. ``login`` keeps a token fresh, and
``login_factory`` chooses the login. ``oauth_token``, ``token_sources`` and ``token_endpoint`` fetch
tokens.
"""
