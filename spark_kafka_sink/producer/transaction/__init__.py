"""Idempotence and transactions (Java's ``TransactionManager``).

Owns: ``transaction_manager`` and its components: ``producer_identity`` (id and epoch),
``partition_sequences`` and ``txn_partition_map`` (sequence numbers and responses),
``transaction_states``, ``txn_requests`` and ``txn_request_queue`` (requests to the coordinator),
``transactional_result`` (their outcome). ``txn_request_sender`` and ``producer_id_requester``
send them, on the sender thread.
"""
