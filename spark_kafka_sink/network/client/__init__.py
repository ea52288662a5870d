"""Sends requests to nodes and handles their responses (Java's ``NetworkClient``).

* ``kafka_client``: the interface for all callers.
* ``network_client``: the implementation. Its parts are modules of their own: connection states,
  requests in flight, API versions, the least loaded node, and metadata requests.
* ``metadata``: stores the cluster metadata.
* ``client_factory``: creates a client from the options.
* ``connection_probe``: tests one connection, to explain why no broker can be reached.
"""
