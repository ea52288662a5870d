"""SASL: authentication of a new connection, and again before a session expires (KIP-368).

Owns: ``authenticator`` and ``sasl_authenticator`` (the exchange), ``sasl_mechanism`` (what each
mechanism gives) and one file each: ``sasl_plain``, ``sasl_scram`` with ``saslprep``,
``sasl_gssapi``, ``sasl_oauthbearer``, ``aws_msk_iam``. ``login`` keeps a
token fresh, ``login_factory`` chooses; ``oauth_token``, ``token_sources``, ``token_endpoint`` and
``http_proxy`` fetch tokens.
"""
