"""A Kafka producer for columns and records: Java's ``KafkaProducer`` and its components.

Owns: the way of a record from a row to its acknowledgement. Never: Spark.

``kafka_producer`` has all public methods, ``wiring`` creates the components, and ``lifecycle`` has
the state (open, failed or closed). The thread that writes rows uses ``column_appender`` (rows),
``send`` (single records), ``producer_record`` and ``interceptors``. The sender thread runs
``sender``. Both threads use ``buffer_pool`` (memory), ``accumulator`` (queued batches),
``transaction`` (identity, sequences, transactions) and ``metrics``. ``exit_flush`` runs at the exit
of the process.
"""
