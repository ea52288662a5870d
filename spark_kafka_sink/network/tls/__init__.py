"""TLS: ``key_stores`` read, ``ssl_context`` made, ``ssl_transport_layer`` speaking it.

Owns: certificates, keys and the handshake; ``ssl_failures`` explains a failure in a sentence.
"""
