"""The error of ``local_kafka``."""

from __future__ import annotations

from spark_kafka_sink.base.errors import KafkaError


class LocalKafkaError(KafkaError):
    """A local Kafka can't be downloaded or started, or a broker has crashed. The hint has
    the end of a log, or tells the user what to do.
    """
