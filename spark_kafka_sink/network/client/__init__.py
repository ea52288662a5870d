"""Requests to nodes and their responses (Java's ``NetworkClient``).

Owns: ``kafka_client`` (the interface for all callers), ``network_client`` (its implementation over
sockets), and its parts: connection states, requests in flight, API versions, the least loaded node,
metadata updates. ``metadata`` is the store of the cluster metadata. ``client_factory`` builds all
of these from a configuration.
"""
