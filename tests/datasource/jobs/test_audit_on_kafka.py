"""The audit of reports on a real broker: what the broker keeps, rewrites, hides and deletes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink import AuditVerdict, audit
from spark_kafka_sink.base.errors import RefusedError
from spark_kafka_sink.datasource.report.write_report import WriteOutcome, WriteReport
from tests.datasource.jobs.audited_writes import (
    aborted,
    audited,
    committed,
    producer_to,
    reported,
    send,
    written,
)
from tests.real_kafka import RealKafka
from tests.secure_kafka import SecureKafka, acl
from tests.waiting import with_more_time

pytestmark = pytest.mark.broker


def test_rows_of_others_and_of_failed_attempts_are_not_counted(kafka: RealKafka) -> None:
    """Between the batches of the write: an attempt that was aborted, another application's
    transaction, and a producer without transactions.
    """
    topic = kafka.unique_topic("audit", 2)
    failed, other, plain = (producer_to(kafka, transactional=n < 2) for n in range(3))
    tasks = [producer_to(kafka, compression_type="lz4") for _ in range(2)]
    for n in range(5):
        for partition in range(2):
            for one in (failed, tasks[0], other, tasks[1], plain):
                send(one, topic, partition, [b"%d" % n] * (n + 1))
    aborted(failed)
    produced = [committed(one) for one in tasks]
    committed(other)
    plain.close()
    result = audited(kafka, reported(*produced))
    assert [(one.verdict, one.claimed, one.found) for one in result.partitions] == [
        (AuditVerdict.COMPLETE, 30, 30)
    ] * 2
    assert (result.claimed, result.found, result.complete) == (60, 60, True)
    assert str(result) == "60 of 60 in 2 partitions: complete"


def test_an_aborted_task_lacks_its_rows(kafka: RealKafka) -> None:
    topic = kafka.unique_topic("audit", 1)
    tasks = [producer_to(kafka) for _ in range(2)]
    for one in tasks:
        send(one, topic, 0, [b"v"] * 7)
    report = reported(committed(tasks[0]), aborted(tasks[1]), outcome=WriteOutcome.PARTIAL)
    (found,) = audited(kafka, report).partitions
    assert (found.verdict, found.claimed, found.found, found.aborted) == (
        AuditVerdict.MISSING,
        14,
        7,
        7,
    )


def test_a_failed_write_claims_that_nothing_is_visible(kafka: RealKafka) -> None:
    topic = kafka.unique_topic("audit", 1)
    producer = producer_to(kafka)
    send(producer, topic, 0, [b"v"] * 7)
    report = reported(aborted(producer), outcome=WriteOutcome.FAILED)
    assert audited(kafka, report).verdict is AuditVerdict.COMPLETE
    visible = replace(written(kafka, topic), outcome=WriteOutcome.ABORTED)
    assert audited(kafka, visible).verdict is AuditVerdict.SURPLUS


@pytest.mark.parametrize(
    ("settings", "codec", "verdict", "reason"),
    [
        ({"compression.type": "gzip"}, "lz4", AuditVerdict.COUNTED, "compression.type=gzip"),
        ({"compression.type": "lz4"}, "lz4", AuditVerdict.COMPLETE, ""),
        ({"message.timestamp.type": "LogAppendTime"}, "lz4", AuditVerdict.COUNTED, "LogAppendTime"),
        ({"cleanup.policy": "compact"}, "none", AuditVerdict.COMPLETE, ""),
        ({}, "zstd", AuditVerdict.COMPLETE, ""),
    ],
)
def test_batches_that_brokers_rewrote_are_counted(
    kafka: RealKafka, settings: dict[str, str], codec: str, verdict: AuditVerdict, reason: str
) -> None:
    topic = kafka.unique_topic("audit", 1, settings)
    report = written(kafka, topic, compression_type=codec)
    (found,) = audited(kafka, report).partitions
    assert (found.verdict, found.found) == (verdict, 30)
    assert reason in found.reason


def test_deleted_records_are_not_missing(kafka: RealKafka) -> None:
    """DeleteRecords in the middle of a batch: its rows before the new begin are not readable."""
    topic = kafka.unique_topic("audit", 1)
    report = written(kafka, topic)
    delete_records(kafka, topic, 13)
    (found,) = audited(kafka, report).partitions
    assert (found.verdict, found.found, found.deleted) == (AuditVerdict.DELETED, 17, 13)
    assert "the log begins 13 offsets later now" in found.reason
    more = replace(report, audit=replace(report.audit, rows=(31,)))  # type: ignore[type-var]
    assert audited(kafka, more).verdict is AuditVerdict.MISSING
    assert audited(kafka, report, sample=True).verdict is AuditVerdict.DELETED
    delete_records(kafka, topic, -1)
    assert audited(kafka, report).verdict is AuditVerdict.DELETED


def test_a_gone_or_new_topic_has_its_verdict(kafka: RealKafka) -> None:
    topic = kafka.unique_topic("audit", 1)
    report = written(kafka, topic)
    delete_topic(kafka, topic)
    assert audited(kafka, report).verdict is AuditVerdict.GONE
    kafka.create_topic(topic)
    written(kafka, topic)
    assert audited(kafka, report).verdict is AuditVerdict.RECREATED
    assert audited(kafka, without_ids(report)).verdict is AuditVerdict.MISSING


def test_an_open_transaction_before_the_last_row_is_open(kafka: RealKafka) -> None:
    topic = kafka.unique_topic("audit", 1)
    other = producer_to(kafka)
    send(other, topic, 0, [b"v"])
    report = written(kafka, topic)

    def is_open(limit_ms: int) -> None:
        (found,) = audited(kafka, report, timeout_s=limit_ms / 1000).partitions
        assert (found.verdict, found.found) == (AuditVerdict.OPEN, 0)
        assert "an open transaction hides offset 1 and all after it" in found.reason

    with_more_time(is_open, 1_000)
    committed(other)
    assert audited(kafka, report).verdict is AuditVerdict.COMPLETE


def test_a_report_of_another_cluster_is_refused(kafka: RealKafka) -> None:
    report = replace(written(kafka, kafka.unique_topic("audit", 1)), cluster_id="another")
    with pytest.raises(RefusedError, match="the report is of the cluster another, and this is"):
        audited(kafka, report)


def test_topics_that_may_not_be_read_are_unread(secure_kafka: SecureKafka) -> None:
    """Without any right, and with DESCRIBE alone. READ is enough: the settings are not seen."""
    topic = secure_kafka.kafka.unique_topic("audit", 1)
    report = written(secure_kafka.kafka, topic)
    options = secure_kafka.cluster.client_options("SSL", user="bob")
    bob = {f"kafka.{name}": value for name, value in options.items()}
    for rights, verdict in (
        ((), AuditVerdict.UNREAD),
        ((("TOPIC", topic, "DESCRIBE"),), AuditVerdict.UNREAD),
        ((("TOPIC", topic, "READ"),), AuditVerdict.COMPLETE),
    ):
        with acl(secure_kafka, "bob", *rights):
            result = audit(report, **bob)
        assert result.verdict is verdict
        (found,) = result.partitions
        assert ("READ on the topic" in found.reason) is (verdict is AuditVerdict.UNREAD)


def without_ids(report: WriteReport) -> WriteReport:
    return replace(
        report, topic_counts=tuple(replace(one, topic_id=None) for one in report.topic_counts)
    )


def delete_records(kafka: RealKafka, topic: str, before: int) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (done,) = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    done.result(60)


def delete_topic(kafka: RealKafka, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.delete_topics([topic], operation_timeout=60)[topic].result(60)
