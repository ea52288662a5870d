"""A Kafka producer that sends single records, and rows that are passed as columns.

``KafkaProducer``, in ``kafka_producer``, has all public methods. It takes rows and records from the
caller, sends them to brokers, and reports the outcome of each. The package corresponds to
``org.apache.kafka.clients.producer`` in Java. It does not import Spark.

Each component runs on the calling thread, on the network thread, or on both:

* The calling thread: ``column_appender`` (rows), ``producer_record``.
* The network thread: ``sender``.
* Both: ``buffer_pool`` (memory), ``accumulator`` (queued batches), ``transaction`` (producer id and
  epoch, sequence numbers, transactions), ``metrics``, ``lifecycle`` (open, failed or closed).
* The calling thread, and callbacks on the network thread: ``send`` (single records),
  ``interceptors``.
* At the beginning and the end: ``wiring`` creates the components, and ``exit_flush`` runs when the
  process exits.
"""
