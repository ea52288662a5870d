"""A Kafka producer for columns and records: Java's ``KafkaProducer`` and its components.

Owns: from a row to its acknowledgement. Never: Spark.

The writer's side: ``kafka_producer`` (all public methods), ``column_appender`` and
``record_appender`` (rows, one record), ``record_partitioner``, ``serialization``, ``interceptors``,
``producer_record``, ``record_future``. Both sides: ``metadata``, ``accumulator`` (queued batches),
``transaction`` (identity, sequences, transactions), ``metrics``. The sender thread: ``sender``.
"""
