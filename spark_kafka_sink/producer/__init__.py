"""A Kafka producer fed with columns: Java's ``KafkaProducer`` and what it stands on.

Owns: from a row to its acknowledgement. Never: Spark.

The writer's side: ``kafka_producer`` (all public methods), ``column_appender`` and
``record_appender`` (rows, one record), ``record_partitioner``, ``serialization``, ``interceptors``,
``producer_record``, ``record_future``. Both sides: ``metadata``, ``accumulator`` (batches that
wait), ``transaction`` (identity, sequences, transactions), ``metrics``. The sender's thread:
``sender``.
"""
