"""Kafka's wire protocol: requests and responses as Python values, and their bytes on the wire.

This package encodes requests and decodes responses. The number of bytes of a response limits the
memory for decoding it. The package does no I/O and does not handle error codes.

* ``messages``: generated from Kafka's definitions. Its encoders of requests use ``wire_writer``,
  and its decoders of responses use ``wire``.
* ``produce``, ``metadata``: the two APIs that are written by hand. The batches of a Produce request
  must not be copied, and a Metadata response is read into columns.
* ``answers``: decodes a response, and checks that it fits its request.
* ``transaction_requests``, ``log_requests``, ``group_requests``, ``topic_requests``: create
  requests that several packages send.
* ``request``: the interface between a request and the network client.
* ``cluster``, ``node_api_versions``, ``producer_ids``: plain values.
* ``frames``: adds and removes headers and lengths.
"""
