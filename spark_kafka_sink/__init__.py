"""A Kafka sink for Spark, and a Kafka producer for Python that takes columns (Arrow).

Importing this package imports neither pyspark nor pyarrow: a task pays for what it uses, and the
public names load what they need when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.base.security import operators_variables as _  # noqa: F401 - read now
from spark_kafka_sink.base.version import __version__

if TYPE_CHECKING:
    from spark_kafka_sink.datasource.checks.executor_checks import HostCheck, check
    from spark_kafka_sink.datasource.dead_letters.read_dead_letters import read_dead_letters
    from spark_kafka_sink.datasource.foreach_batch import foreach_batch, transaction
    from spark_kafka_sink.datasource.monitoring.kprod_listener import KprodListener
    from spark_kafka_sink.datasource.monitoring.progress_bar import show_progress
    from spark_kafka_sink.datasource.monitoring.running_writes import RunningWrites
    from spark_kafka_sink.datasource.registration import register
    from spark_kafka_sink.datasource.report.last_report import last_report
    from spark_kafka_sink.datasource.report.write_report import WriteReport
    from spark_kafka_sink.producer.interceptors import ProducerInterceptor
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer
    from spark_kafka_sink.producer.producer_record import Headers, ProducerRecord, RecordMetadata
    from spark_kafka_sink.producer.send.record_future import RecordFuture
    from spark_kafka_sink.producer.send.serialization import Serializer

__all__ = [
    "Headers",
    "HostCheck",
    "KafkaProducer",
    "KprodListener",
    "ProducerInterceptor",
    "ProducerRecord",
    "RecordFuture",
    "RecordMetadata",
    "RunningWrites",
    "Serializer",
    "WriteReport",
    "__version__",
    "check",
    "foreach_batch",
    "last_report",
    "read_dead_letters",
    "register",
    "show_progress",
    "transaction",
]

_HOMES = {
    "Headers": "spark_kafka_sink.producer.producer_record",
    "HostCheck": "spark_kafka_sink.datasource.checks.executor_checks",
    "KafkaProducer": "spark_kafka_sink.producer.kafka_producer",
    "KprodListener": "spark_kafka_sink.datasource.monitoring.kprod_listener",
    "ProducerInterceptor": "spark_kafka_sink.producer.interceptors",
    "ProducerRecord": "spark_kafka_sink.producer.producer_record",
    "RecordFuture": "spark_kafka_sink.producer.send.record_future",
    "RecordMetadata": "spark_kafka_sink.producer.producer_record",
    "RunningWrites": "spark_kafka_sink.datasource.monitoring.running_writes",
    "Serializer": "spark_kafka_sink.producer.send.serialization",
    "WriteReport": "spark_kafka_sink.datasource.report.write_report",
    "check": "spark_kafka_sink.datasource.checks.executor_checks",
    "foreach_batch": "spark_kafka_sink.datasource.foreach_batch",
    "last_report": "spark_kafka_sink.datasource.report.last_report",
    "read_dead_letters": "spark_kafka_sink.datasource.dead_letters.read_dead_letters",
    "register": "spark_kafka_sink.datasource.registration",
    "show_progress": "spark_kafka_sink.datasource.monitoring.progress_bar",
    "transaction": "spark_kafka_sink.datasource.foreach_batch",
}


def __getattr__(name: str) -> object:
    """The public names, loaded at first use (PEP 562)."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
