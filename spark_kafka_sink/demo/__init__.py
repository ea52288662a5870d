"""``python -m spark_kafka_sink.demo``: writes a batch and a stream to a real Kafka, and counts the
rows in the topics.

Owns: the course of the demo (``__main__.py``), its Spark driver (``spark_driver.py``), and a reader
of the topic that uses another Kafka client (``topic_reader.py``). Never: code that the sink needs.
"""
