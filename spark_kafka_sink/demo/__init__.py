"""``python -m spark_kafka_sink.demo``: writes a batch and a stream to a real Kafka, and counts
rows.

Owns: the scenario (``__main__.py``), its Spark driver (``spark_driver.py``), and the reader of the
topic with another client (``topic_reader.py``). Never: a part that the sink needs.
"""
