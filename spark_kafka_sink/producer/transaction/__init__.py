"""Idempotence and transactions of a producer (Java's ``TransactionManager``).

* ``transaction_manager``: called by the other components of the producer. It uses the modules
  below.
* ``transaction_states``: the producer id, the epoch and the state.
* ``partition_sequences``: the sequence numbers.
* ``txn_request_queue``: queues and sends the requests.
* ``txn_requests``: the kinds of requests, and the reactions to errors.
"""
