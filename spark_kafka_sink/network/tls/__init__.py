"""TLS on a connection: certificates, keys, the handshake and encryption.

``key_stores`` reads certificates and keys. ``ssl_context`` creates the TLS context from the
options. ``renewed_context`` reads renewed files. ``ssl_transport_layer`` has the handshake, reads
and writes. ``ssl_failures`` explains a failure.
"""
