"""What is asked of brokers beside a record's way: before the first task, and to end transactions.

* ``call.py``: one request, where it goes, and which answers are asked for again.
* ``request_loop.py``: many calls at once, on the caller's thread; coordinators and time-outs.
* ``admin_client.py``: topics and their settings.
* ``transaction_client.py``: transactions of coordinators, and the ids that they know.

Owns: the one loop of requests outside of a producer. Never: a thread, what an answer means for a
batch (``transactions/``).
"""
