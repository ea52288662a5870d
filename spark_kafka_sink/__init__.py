"""A Kafka sink for Spark, and a Kafka producer for Python that takes columns (Arrow).

Importing this package does not import pyspark or pyarrow. The module of a public name is imported
when the name is used first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.base.security import operators_variables as _  # noqa: F401 - read now
from spark_kafka_sink.base.version import __version__

if TYPE_CHECKING:
    from spark_kafka_sink.datasource.checks.executor_checks import HostCheck, check
    from spark_kafka_sink.datasource.foreach_batch import foreach_batch, transaction
    from spark_kafka_sink.datasource.jobs.backfill import backfill
    from spark_kafka_sink.datasource.jobs.backfill_result import BackfillResult, BackfillStep
    from spark_kafka_sink.datasource.jobs.by_leader import by_leader
    from spark_kafka_sink.datasource.jobs.read_dead_letters import read_dead_letters
    from spark_kafka_sink.datasource.jobs.upserts import upserts
    from spark_kafka_sink.datasource.monitoring.kprod_listener import KprodListener
    from spark_kafka_sink.datasource.monitoring.open_telemetry_metrics import OpenTelemetryMetrics
    from spark_kafka_sink.datasource.monitoring.progress_bar import show_progress
    from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics
    from spark_kafka_sink.datasource.monitoring.running_writes import RunningWrites
    from spark_kafka_sink.datasource.report.audit import AuditResult, audit
    from spark_kafka_sink.datasource.report.audit_verdict import AuditVerdict, PartitionAudit
    from spark_kafka_sink.datasource.report.last_report import last_report
    from spark_kafka_sink.datasource.report.write_report import WriteReport
    from spark_kafka_sink.datasource.session.registration import register
    from spark_kafka_sink.producer.interceptors import ProducerInterceptor
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer
    from spark_kafka_sink.producer.producer_record import Headers, ProducerRecord, RecordMetadata
    from spark_kafka_sink.producer.send.record_future import RecordFuture
    from spark_kafka_sink.producer.send.serialization import Serializer

__all__ = [
    "AuditResult",
    "AuditVerdict",
    "BackfillResult",
    "BackfillStep",
    "Headers",
    "HostCheck",
    "KafkaProducer",
    "KprodListener",
    "OpenTelemetryMetrics",
    "PartitionAudit",
    "ProducerInterceptor",
    "ProducerRecord",
    "PrometheusMetrics",
    "RecordFuture",
    "RecordMetadata",
    "RunningWrites",
    "Serializer",
    "WriteReport",
    "__version__",
    "audit",
    "backfill",
    "by_leader",
    "check",
    "foreach_batch",
    "last_report",
    "read_dead_letters",
    "register",
    "show_progress",
    "transaction",
    "upserts",
]

_HOMES = {
    "AuditResult": "spark_kafka_sink.datasource.report.audit",
    "BackfillResult": "spark_kafka_sink.datasource.jobs.backfill_result",
    "BackfillStep": "spark_kafka_sink.datasource.jobs.backfill_result",
    "Headers": "spark_kafka_sink.producer.producer_record",
    "HostCheck": "spark_kafka_sink.datasource.checks.executor_checks",
    "KafkaProducer": "spark_kafka_sink.producer.kafka_producer",
    "KprodListener": "spark_kafka_sink.datasource.monitoring.kprod_listener",
    "OpenTelemetryMetrics": "spark_kafka_sink.datasource.monitoring.open_telemetry_metrics",
    "PartitionAudit": "spark_kafka_sink.datasource.report.audit_verdict",
    "ProducerInterceptor": "spark_kafka_sink.producer.interceptors",
    "ProducerRecord": "spark_kafka_sink.producer.producer_record",
    "PrometheusMetrics": "spark_kafka_sink.datasource.monitoring.prometheus_metrics",
    "RecordFuture": "spark_kafka_sink.producer.send.record_future",
    "RecordMetadata": "spark_kafka_sink.producer.producer_record",
    "RunningWrites": "spark_kafka_sink.datasource.monitoring.running_writes",
    "Serializer": "spark_kafka_sink.producer.send.serialization",
    "AuditVerdict": "spark_kafka_sink.datasource.report.audit_verdict",
    "WriteReport": "spark_kafka_sink.datasource.report.write_report",
    "audit": "spark_kafka_sink.datasource.report.audit",
    "backfill": "spark_kafka_sink.datasource.jobs.backfill",
    "by_leader": "spark_kafka_sink.datasource.jobs.by_leader",
    "check": "spark_kafka_sink.datasource.checks.executor_checks",
    "foreach_batch": "spark_kafka_sink.datasource.foreach_batch",
    "last_report": "spark_kafka_sink.datasource.report.last_report",
    "read_dead_letters": "spark_kafka_sink.datasource.jobs.read_dead_letters",
    "register": "spark_kafka_sink.datasource.session.registration",
    "show_progress": "spark_kafka_sink.datasource.monitoring.progress_bar",
    "transaction": "spark_kafka_sink.datasource.foreach_batch",
    "upserts": "spark_kafka_sink.datasource.jobs.upserts",
}


def __getattr__(name: str) -> object:
    """Imports the public object ``name`` from its module, and returns it. Python calls this
    function at the first use of the name (PEP 562). Raises AttributeError for any other name.
    """
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
