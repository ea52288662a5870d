"""``python -m spark_kafka_sink.demo``: a batch and a stream into a real Kafka, and proof.

Owns: the scenario (``__main__.py``), its Spark driver (``spark_driver.py``) and the reader of the
topic, another client (``topic_reader.py``). Never: a part that the sink needs.
"""
