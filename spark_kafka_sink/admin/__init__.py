"""Requests to brokers that no producer sends: before the first task, and to end transactions.

* ``call.py``: one request, its target, and which errors are retried.
* ``request_loop.py``: many calls at once, on the caller's thread; coordinators and timeouts.
* ``admin_client.py``: topics and their configs.
* ``transaction_client.py``: transactions and transactional ids.

Owns: the one request loop outside of a producer. Never: a thread, the meaning of a response for a
batch (``transactions/``).
"""
