"""Which node is asked, when, and what its answers are (Java's ``NetworkClient``).

Owns: ``kafka_client`` (the seam that everything above talks to), ``network_client`` (the one with
sockets), and its parts: connection states, requests in flight, API versions, the least loaded node,
metadata refresh. ``client_factory`` builds all of it from a configuration.
"""
