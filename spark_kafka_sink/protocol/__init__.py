"""Kafka's wire protocol: requests and responses as values, their bytes, versions and frames.

Owns: the bytes. Decoding is bounded. Never: I/O, the handling of an error code.

``messages`` has encoders and decoders, generated from Kafka's definitions, over ``wire`` (reads)
and ``wire_writer``; ``produce`` is written by hand, without copies. The values: ``request``
(what a request is to the network client), ``cluster``, ``producer_ids``; requests and responses in
``control_messages`` (of a producer), ``metadata_response``, ``fetch_messages``,
``admin_messages``, ``transaction_admin_messages``, ``transaction_offset_messages``, ``sasl``, with
``bodies`` (what all of them are). ``frames`` has headers and lengths.
"""
