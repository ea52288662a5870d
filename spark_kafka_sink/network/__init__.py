"""Connections to brokers, which one thread serves with a non-blocking loop over sockets.

Owns: the sending of requests and the receipt of responses. Never: the meaning of a request to a
producer.

The files of this package are shared by all its subpackages: ``transport_layer`` (plain bytes),
``frame_reader`` (responses). Above them are ``tls`` and ``auth``, then ``channel`` (one connection,
and the selector over all connections), then ``client`` (nodes and requests).
"""
