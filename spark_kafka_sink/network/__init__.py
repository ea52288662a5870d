"""Connections to brokers. One thread serves all connections of a client with non-blocking sockets.

Owns: sending requests to brokers and receiving their responses. Never: the content of a request or
a response.

``transport_layer`` (reads and writes bytes) and ``frame_reader`` (reads responses) are used by all
subpackages. ``tls`` and ``auth`` are for the security of a connection. ``channel`` has the class of
a connection, and the selector, which serves all connections. ``client`` sends requests to nodes and
handles the responses.
"""
