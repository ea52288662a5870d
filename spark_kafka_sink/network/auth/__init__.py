"""SASL authentication of a connection: once when the connection is new, and again before its
session expires (KIP-368).

* ``authenticator``, ``sasl_authenticator``: the exchange with the broker.
* ``sasl_mechanism``: the interface of a mechanism.
* ``sasl_plain``, ``sasl_scram`` (with ``saslprep``), ``sasl_gssapi``, ``sasl_oauthbearer``,
  ``aws_msk_iam``: the mechanisms.
* ``login``: caches the credential, and fetches a new credential before the old one expires.
* ``login_factory``: creates the login for a mechanism.
* ``oauth_token``, ``token_sources``, ``token_endpoint``: fetch OAuth tokens.
"""
