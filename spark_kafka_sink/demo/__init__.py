"""``python -m spark_kafka_sink.demo``: a batch and a stream into a real Kafka, and proof.

Owns: the scenario (``__main__.py``), its Spark driver (``spark_driver.py``) and what another client
finds (``topic_reader.py``). Never: something that the sink needs.
"""
