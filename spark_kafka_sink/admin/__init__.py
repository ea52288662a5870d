"""Requests to brokers outside of a producer, to check a cluster before a write and to end
transactions.

* ``call.py``: one request, its target, and the errors after which it is retried.
* ``request_loop.py``: runs many calls in parallel, on the caller's thread, and finds coordinators.
* ``admin_client.py``: topics and their configs.
* ``transaction_client.py``: transactions and transactional ids.

Owns: the one request loop outside of a producer. Never: a thread, the meaning of a response for a
batch (``transactions/``).
"""
