"""Requests to brokers without a producer: requests that check a cluster before a write, requests
that read records, and requests that end transactions.

* ``call.py``: one request, the broker to which the request is sent, and the errors after which the
  request is sent again.
* ``request_loop.py``: sends many requests in parallel, on the calling thread.
* ``admin_client.py``: requests about topics and their configs.
* ``existing_topic.py``: requests the metadata of a topic that must exist.
* ``transaction_client.py``: requests about transactions and transactional ids.
* ``transaction_description.py``: the state of a transaction, as its coordinator describes it.
* ``partition_reader.py``, ``partition_count.py``, ``committed_reader.py``: read records.

This package starts no thread. The package ``transactions`` decides what a response means for the
rows of a write.
"""
