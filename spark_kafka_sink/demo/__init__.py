"""``python -m spark_kafka_sink.demo``: writes a batch and a stream to a real Kafka, and counts the
rows in the topics.

* ``__main__``: runs the demo.
* ``spark_driver``: the Spark driver of the demo.
* ``topic_reader``: reads the topics with another Kafka client.

The sink itself does not import this package.
"""
