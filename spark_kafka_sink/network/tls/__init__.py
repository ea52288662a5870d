"""TLS on a connection: certificates, keys, the handshake and the encrypted bytes.

Owns: ``key_stores`` (reads files), ``ssl_context`` (from the options), ``ssl_transport_layer`` (the
handshake, reads and writes) and ``ssl_failures`` (explains a failure in a sentence).
"""
