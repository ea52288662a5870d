"""A Kafka producer for columns and records: Java's ``KafkaProducer`` and its components.

Owns: from a row to its acknowledgement. Never: Spark.

``kafka_producer`` has all public methods, ``wiring`` creates the components, and ``lifecycle``
holds whether a producer is open. The writer's side: ``column_appender`` (rows), ``send`` (single
records), ``producer_record``, ``interceptors``. Both sides: ``buffer_pool`` (memory),
``accumulator`` (queued batches), ``transaction`` (identity, sequences, transactions), ``metrics``.
The sender thread: ``sender``. At the exit of the process: ``exit_flush``.
"""
