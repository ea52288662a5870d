"""Requests to brokers without a producer: requests that check a cluster before a write, and
requests that end transactions.

* ``call.py``: one request, the broker to which the request is sent, and the errors after which the
  request is sent again.
* ``request_loop.py``: sends many requests in parallel, on the calling thread, and finds
  coordinators.
* ``admin_client.py``: topics and their configs.
* ``transaction_client.py``: transactions and transactional ids.
* ``partition_reader.py``, ``partition_count.py``, ``committed_reader.py``: read records.

Owns: the request loop. Never: starting a thread, the meaning of a response for a batch
(``transactions/``).
"""
