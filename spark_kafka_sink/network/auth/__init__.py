"""SASL authentication of a connection: once when the connection is new, and again before its
session expires (KIP-368).

``authenticator`` and ``sasl_authenticator`` have the exchange with the broker. ``sasl_mechanism``
is the interface of a mechanism. Each mechanism has one file: ``sasl_plain``, ``sasl_scram`` (with
``saslprep``), ``sasl_gssapi``, ``sasl_oauthbearer``, ``aws_msk_iam``. ``login`` caches the
credential, and fetches a new credential before the cached credential expires. ``login_factory``
creates the login for a mechanism. ``oauth_token``, ``token_sources`` and ``token_endpoint`` fetch
OAuth tokens.
"""
