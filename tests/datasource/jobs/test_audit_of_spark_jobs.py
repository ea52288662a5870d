"""``kprod audit`` of writes by Spark: dead letters, deleted and lost records, compaction."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_kafka_sink.cli.app import app
from tests.datasource.jobs.audited_writes import roll_segments
from tests.datasource.jobs.test_audit_of_cleaned_logs import SEGMENTS, SOON
from tests.datasource.jobs.test_audit_on_kafka import delete_records
from tests.real_kafka import local_broker
from tests.waiting import wait_for

#: Long, because the broker is their own: it is stopped, and its cleaner begins soon.
pytestmark = [pytest.mark.broker, pytest.mark.long]
ROWS, PARTITIONS = 300, 3


@pytest.fixture(scope="module")
def broker():
    with local_broker(overrides=SOON) as found:
        yield found


@pytest.fixture
def save(broker, tmp_path):
    """A function that writes a DataFrame exactly once, in small batches, with a report."""

    def write(frame, topic, **options):
        given = {"kafka.bootstrap.servers": broker.bootstrap, "topic": topic,
                 "deliveryGuarantee": "exactly-once", "kafka.batch.size": "500",
                 "reportPath": f"{tmp_path}/report.jsonl"}  # fmt: skip
        frame.write.format("kprod").mode("append").options(**given, **options).save()

    return write


@pytest.fixture
def audit(broker, tmp_path):
    """A function that runs the command, and returns its exit code and its output."""

    def run(*more):
        where = ("--report", f"{tmp_path}/report.jsonl", "-b", broker.bootstrap)
        result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["audit", *where, *more])
        return result.exit_code, result.stdout

    return run


def without_second_batch(segment: Path) -> int:
    """Removes the second batch of a log segment. Returns the offset after the batch."""
    data = segment.read_bytes()
    first = 12 + int.from_bytes(data[8:12])
    second = first + 12 + int.from_bytes(data[first + 8 : first + 12])
    segment.write_bytes(data[:first] + data[second:])
    for index in segment.parent.glob("*index"):
        index.unlink()
    return int.from_bytes(data[second : second + 8])


def test_deleted_and_lost_rows_beside_dead_letters_are_told_apart(spark, broker, save, audit):
    topic = broker.unique_topic("audit", PARTITIONS)
    letters = broker.unique_topic("letters")
    rows = spark.range(0, ROWS, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value",
        f"CAST(IF(id % 20 = 0, 99, id % {PARTITIONS}) AS INT) AS partition",
    )
    tolerant = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": letters}
    save(rows, topic, **tolerant)
    assert audit() == (0, "300 of 300 in 4 partitions, 15 of them dead letters: complete\n")

    delete_records(broker, topic, 40)
    code, shown = audit()
    assert code == 4
    assert "deleted" in shown
    assert "the log begins 40 offsets later now" in shown

    node = broker.node(1)
    node.stop()
    folder = Path(node.properties["log.dirs"]) / f"{topic}-1"
    after = without_second_batch(folder / f"{0:020}.log")
    node.start()
    node.wait_until_ready()
    code, shown = audit()
    assert code == 3
    lines = [line for line in shown.splitlines() if topic in line]
    assert len(lines) == 2, "the third partition, and the dead letters, are complete"
    assert "deleted" in lines[0]
    assert "missing" in lines[1]
    # Sequence numbers show the hole if a later batch of the same task follows it; on a busy machine
    # the removed batch may be the only one of its task.
    shown_by_sequences = f"rows before offset {after} " in lines[1]
    assert shown_by_sequences or "offsets have no record" in lines[1]


def test_rows_of_spark_that_compaction_removed_are_compacted(spark, broker, save, audit):
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
    topic = broker.unique_topic("audit", 1, SEGMENTS | settings)
    rows = spark.range(0, ROWS, 1, 2).selectExpr(
        "CAST(id % 7 AS STRING) AS key", "CAST(id AS STRING) AS value"
    )
    save(rows, topic)

    def cleaned():
        """The cleaner may need several rounds until the last row of each key is the only one."""
        roll_segments(broker, topic)
        code, shown = audit()
        return (code, shown) if shown.startswith("7 of 300 ") else None

    code, shown = wait_for(cleaned, what="a log with one row of each key")
    assert code == 4
    assert shown.startswith("7 of 300 in 1 partition: compacted\n")
    assert "compaction has removed 293 offsets" in shown
