"""Kafka's wire protocol: requests and responses as Python values, and their bytes on the wire.

This package encodes requests and decodes responses. The number of bytes of a response limits the
memory for decoding it. The package does no I/O and does not handle error codes.

``messages`` is generated from Kafka's definitions. Its encoders of requests use ``wire_writer``,
and its decoders of responses use ``wire``. Two APIs are written by hand: ``produce``, because
batches must not be copied, and ``metadata``, whose response is read into columns. ``answers``
decodes a response, and checks that the response fits the request. ``transaction_requests``,
``log_requests``, ``group_requests`` and ``topic_requests`` create requests that several packages
send. ``request`` is the interface between a request and the network client. ``cluster``,
``node_api_versions`` and ``producer_ids`` are plain values. ``frames`` adds and removes headers and
lengths.
"""
