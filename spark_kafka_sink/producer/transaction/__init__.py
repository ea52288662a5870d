"""Idempotence and transactions (Java's ``TransactionManager``).

Owns: ``transaction_manager`` and its components: ``transaction_states`` (id, epoch and state),
``partition_sequences`` (sequence numbers and responses), ``txn_requests`` (their kinds and results)
and ``txn_request_queue`` (their queue and sending, on the sender thread).
"""
