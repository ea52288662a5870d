"""Kafka's wire protocol: requests and responses as values, their bytes, versions and frames.

Owns: the bytes of requests and responses. A decoder needs no more memory than the size of the
response justifies. Never: I/O, the handling of an error code.

``messages`` is generated from Kafka's definitions. Its encoders of requests use ``wire_writer``,
its decoders of responses use ``wire``. ``produce`` and ``metadata`` are written by
hand, because batches must not be copied, and metadata are read into columns. ``answers`` decodes a
response, and checks that it answers its request. ``transaction_requests``, ``log_requests``,
``group_requests`` and ``topic_requests`` create requests for several packages. Plain values are in
``request`` (the interface of a request to the network client), ``cluster``, ``node_api_versions``
and ``producer_ids``. ``frames`` has headers and lengths.
"""
