"""The only error of ``local_kafka``. Never: any logic."""

from __future__ import annotations

from spark_kafka_sink.base.errors import KafkaError


class LocalKafkaError(KafkaError):
    """A local Kafka can't be fetched or started, or crashed. The hint has the end of its log."""
