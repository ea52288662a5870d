"""Idempotence and transactions (Java's ``TransactionManager``).

Owns: ``transaction_manager`` and its parts: ``producer_identity`` (id and epoch),
``partition_sequences`` and ``txn_partition_map`` (sequence numbers, and what each answer means),
``transaction_states``, ``txn_requests`` and ``txn_request_queue`` (what is to be asked of the
coordinator), ``transactional_result`` (who waits for it). ``txn_request_sender`` and
``producer_id_requester`` send, on the sender's thread.
"""
