"""A Kafka producer for columns and single records: ``KafkaProducer`` and its components.

The package takes rows and records from the caller, sends them to brokers, and reports each broker's
acknowledgement or error. The package does not import Spark.

``kafka_producer`` has all public methods, ``wiring`` creates the components, and ``lifecycle`` has
the state (open, failed or closed). The thread that writes uses ``column_appender`` (rows of
columns), ``send`` (single records), ``producer_record`` and ``interceptors``. The network thread
runs ``sender``. Both threads use ``buffer_pool`` (memory), ``accumulator`` (queued batches),
``transaction`` (producer id and epoch, sequence numbers, transactions) and ``metrics``.
``exit_flush`` runs when the process exits. The package corresponds to
``org.apache.kafka.clients.producer`` in Java.
"""
