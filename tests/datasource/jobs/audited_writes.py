"""Writes of a few rows that have a report, for tests of the audit."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from spark_kafka_sink import AuditResult, KafkaProducer, ProducerRecord, audit
from spark_kafka_sink.datasource.report.report_of_batch import report_of_batch
from spark_kafka_sink.datasource.report.write_report import WriteOutcome, WriteReport
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage, TaskCounts
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from tests.datasource.commit_messages import config
from tests.real_kafka import RealKafka


def producer_to(
    kafka: RealKafka, *, transactional: bool = True, **options: object
) -> KafkaProducer:
    """A producer; if it is transactional, with a begun transaction."""
    given: dict[str, object] = {"bootstrap.servers": kafka.bootstrap}
    if transactional:
        given["transactional.id"] = f"audit-{uuid.uuid4().hex[:8]}"
    producer = KafkaProducer(given | {name.replace("_", "."): v for name, v in options.items()})
    if transactional:
        producer.init_transactions()
        producer.begin_transaction()
    producer.start_attempt()
    return producer


def send(producer: KafkaProducer, topic: str, partition: int, values: Sequence[bytes]) -> None:
    """One batch, which is acknowledged."""
    for value in values:
        producer.send(ProducerRecord(topic, value, key=value[:1], partition=partition))
    producer.flush()


def committed(producer: KafkaProducer) -> ProduceReport:
    """The result of the producer, whose transaction is committed."""
    produced = producer.finish_attempt()
    producer.commit_transaction()
    producer.close()
    return produced


def aborted(producer: KafkaProducer) -> ProduceReport:
    """As :func:`committed`, for a transaction that is aborted."""
    produced = producer.finish_attempt()
    producer.abort_transaction()
    producer.close()
    return produced


def written(kafka: RealKafka, topic: str, rows: int = 30, **options: object) -> WriteReport:
    """The report of a committed write of three batches to partition 0."""
    producer = producer_to(kafka, **options)
    for batch in range(3):
        send(producer, topic, 0, [b"%d-%03d" % (batch, row) for row in range(rows // 3)])
    return reported(committed(producer))


def roll_segments(kafka: RealKafka, topic: str) -> None:
    """Writes records to partition 0, so that the broker closes its active segment: the cleaner
    never cleans the active segment. The records have a key of their own, because the cleaner
    removes older records with the same key.
    """
    producer = KafkaProducer({"bootstrap.servers": kafka.bootstrap})
    for _ in range(3):
        producer.send(ProducerRecord(topic, b"later", key=b"of no other record", partition=0))
        producer.flush()
    producer.close()


def reported(
    *produced: ProduceReport,
    outcome: WriteOutcome = WriteOutcome.COMMITTED,
    guarantee: str = "exactly-once",
) -> WriteReport:
    """The report of a write whose tasks have these results."""
    messages = [
        TaskCommitMessage(TaskIdentity(), one, TaskCounts(), begun_ms=0, elapsed_ms=1)
        for one in produced
    ]
    return report_of_batch(config(deliveryGuarantee=guarantee), messages, outcome)


def audited(kafka: RealKafka, report: WriteReport, **options: object) -> AuditResult:
    """The audit of ``report``."""
    return audit(report, **{"kafka.bootstrap.servers": kafka.bootstrap, **options})  # type: ignore[arg-type]  # of any type
