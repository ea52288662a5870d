"""Idempotence and transactions (Java's ``TransactionManager``).

Owns: ``transaction_manager`` and its components: ``transaction_states`` (id, epoch and state),
``partition_sequences`` (sequence numbers and responses), ``txn_requests`` (the kinds and results of
transactional requests) and ``txn_request_queue`` (the queue and the sending of these requests, on
the sender thread).
"""
