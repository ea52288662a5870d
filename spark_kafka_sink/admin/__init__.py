"""Requests to brokers outside of a producer: checks before a write, and ends of transactions.

* ``call.py``: one request, its target, and which errors are retried.
* ``request_loop.py``: many calls in parallel, on the caller's thread; coordinators and timeouts.
* ``admin_client.py``: topics and their configs.
* ``transaction_client.py``: transactions and transactional ids.

Owns: the one request loop outside of a producer. Never: a thread, the meaning of a response for a
batch (``transactions/``).
"""
