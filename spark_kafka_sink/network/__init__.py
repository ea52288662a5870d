"""Connections to brokers: one thread's non-blocking loop over sockets.

Owns: requests out, responses in. Never: what a request means to a producer.

Its own files are what all its rooms stand on: ``transport_layer`` (plain bytes), ``frame_reader``
(responses), ``backoff``. Above them ``tls`` and ``auth``, then ``channel`` (one connection, and the
selector over all), then ``client`` (which node, which request).
"""
