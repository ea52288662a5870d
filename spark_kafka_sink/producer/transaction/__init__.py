"""Idempotence and transactions of a producer (Java's ``TransactionManager``).

The other components of the producer call ``transaction_manager``. The manager uses
``transaction_states`` (producer id, epoch and state), ``partition_sequences`` (sequence numbers)
and ``txn_request_queue``, which queues and sends the requests. ``txn_requests`` has the kinds of
requests and the reactions to errors.
"""
