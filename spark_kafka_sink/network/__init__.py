"""Connections to brokers. One thread serves all connections of a client with non-blocking sockets.

This package sends requests to brokers and receives their responses. It does not create the content
of a request and does not read the content of a response: the package ``protocol`` does both.

``transport_layer`` (reads and writes bytes) and ``frame_reader`` (reads responses) are used by all
subpackages. ``tls`` and ``auth`` are for the security of a connection. ``channel`` has the class of
a connection, and the selector, which serves all connections. ``client`` sends requests to nodes and
handles the responses. ``http`` and ``schema_registry`` send HTTP requests to schema registries and
identity providers.
"""
