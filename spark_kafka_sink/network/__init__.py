"""Connections to brokers: a non-blocking loop over sockets on one thread.

Owns: requests out, responses in. Never: the meaning of a request to a producer.

Its own files are shared by all its rooms: ``transport_layer`` (plain bytes), ``frame_reader``
(responses). Above them ``tls`` and ``auth``, then ``channel`` (one connection, and the
selector over all), then ``client`` (nodes and requests).
"""
