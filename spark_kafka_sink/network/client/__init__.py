"""Sends requests to nodes and handles their responses (Java's ``NetworkClient``).

Owns: ``kafka_client`` (the interface for all callers), ``network_client`` (the implementation), and
the parts of the implementation: connection states, requests in flight, API versions, the least
loaded node, and metadata requests. ``metadata`` stores the cluster metadata. ``client_factory``
creates a client from the options.
"""
