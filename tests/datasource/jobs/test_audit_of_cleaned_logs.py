"""The audit of logs that a real broker's cleaner and retention have worked on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink import AuditVerdict, PartitionAudit
from spark_kafka_sink.datasource.report.write_report import WriteReport
from tests.datasource.jobs.audited_writes import (
    audited,
    committed,
    producer_to,
    reported,
    roll_segments,
    send,
    written,
)
from tests.real_kafka import RealKafka, local_broker
from tests.waiting import wait_for

#: Long, because the broker is their own, and its threads look again every 200 ms at best.
pytestmark = [pytest.mark.broker, pytest.mark.long]
SOON = {
    "log.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.initial.task.delay.ms": "200",
}
#: A segment for every few batches.
SEGMENTS = {"segment.bytes": "1048576", "segment.ms": "100", "file.delete.delay.ms": "100"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RealKafka]:
    with local_broker(overrides=SOON) as found:
        yield found


def audited_until_it_is_not_complete(
    broker: RealKafka, topic: str, report: WriteReport
) -> PartitionAudit:
    def found() -> PartitionAudit | None:
        roll_segments(broker, topic)
        result = audited(broker, report)
        return None if result.complete else result.partitions[0]

    return wait_for(found, what="a cleaned log")


def test_rows_that_retention_deleted_are_not_missing(broker: RealKafka) -> None:
    topic = broker.unique_topic("audit", 1, SEGMENTS | {"retention.ms": "1000"})
    report = written(broker, topic)
    found = audited_until_it_is_not_complete(broker, topic, report)
    assert found.verdict is AuditVerdict.DELETED
    assert "retention (retention.ms=1000)" in found.reason


def test_rows_that_compaction_removed_are_not_missing(broker: RealKafka) -> None:
    """All rows have one key; the last one stays."""
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    topic = broker.unique_topic("audit", 1, SEGMENTS | settings)
    producer = producer_to(broker)
    for n in range(3):
        send(producer, topic, 0, [b"1-%d-%d" % (n, row) for row in range(10)])
    report = reported(committed(producer))
    assert audited(broker, report).verdict in (AuditVerdict.COMPLETE, AuditVerdict.COMPACTED)
    found = audited_until_it_is_not_complete(broker, topic, report)
    assert found.verdict is AuditVerdict.COMPACTED
    assert found.found < 30
    assert found.gaps >= 30 - found.found
