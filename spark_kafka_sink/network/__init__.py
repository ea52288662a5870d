"""Connections to brokers. One thread serves all connections of a client with non-blocking sockets.

This package sends requests to brokers and receives their responses. The package ``protocol``
creates the content of a request, and reads the content of a response.

* ``client``: sends requests to nodes and handles the responses.
* ``channel``: a connection, and the selector, which serves all connections.
* ``tls``, ``auth``: the security of a connection.
* ``transport_layer``: reads and writes bytes.
* ``frame_reader``: reads responses.
* ``bounded_lookup``: looks up host names with a time limit.
* ``http``, ``schema_registry``: HTTP requests to schema registries and identity providers.
"""
