"""Idempotence and transactions of a producer (Java's ``TransactionManager``).

Owns: ``transaction_manager``, which the other components call, and its parts:
``transaction_states`` (producer id, epoch and state), ``partition_sequences`` (sequence numbers),
``txn_requests`` (the kinds of requests and the reactions to errors) and ``txn_request_queue``
(queues and sends the requests).
"""
