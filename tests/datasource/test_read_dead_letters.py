"""Dead letters read back: as a DataFrame, and by ``kprod deadletters``."""

from __future__ import annotations

import json
import logging
import pickle
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql.datasource import CaseInsensitiveDict
from typer.testing import CliRunner

from spark_kafka_sink import read_dead_letters
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.datasource.jobs.read_dead_letters import DeadLetterReader

ROWS = [("k0", "good", 0, None), ("k1", "bad", -7, None), ("k2", "worse", 0, -1)]
SCHEMA = "key string, value string, partition int, timestamp long"


@pytest.fixture(scope="module")
def letters(spark, kafka):
    """A topic with two letters, and one that is aborted."""
    topic, queue = kafka.unique_topic("rows"), f"dlq.{uuid.uuid4().hex}"
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": queue,
    }
    frame = spark.createDataFrame(ROWS, SCHEMA).coalesce(1)
    frame.write.format("kprod").options(**options).save()
    with pytest.raises(Exception, match="KP0233"):
        frame.write.format("kprod").options(**options, **{"errors.max.fraction": "0"}).save()
    return topic, queue


def deadletters(kafka, queue, *more):
    """What ``kprod deadletters`` says."""
    found = CliRunner().invoke(app, ["deadletters", queue, "-b", kafka.bootstrap, *more])
    assert found.exit_code == 0, found.output
    return found.stdout


def test_letters_are_rows_with_their_reason(spark, kafka, letters):
    topic, queue = letters
    found = read_dead_letters(spark, queue, **{"kafka.bootstrap.servers": kafka.bootstrap})
    assert found.columns == [
        "key", "value", "headers", "topic", "reason", "code", "message", "row", "batch",
    ]  # fmt: skip
    rows = sorted(found.collect(), key=lambda row: row.row)
    assert [(bytes(r.key), bytes(r.value), r.topic, r.code, r.row, r.batch) for r in rows] == [
        (b"k1", b"bad", topic, "KP0212", 1, -1),
        (b"k2", b"worse", topic, "KP0231", 2, -1),
    ]
    assert [row.reason for row in rows] == ["partition does not exist", "invalid timestamp"]
    assert rows[0].message.startswith("Invalid partition: it is negative")
    assert {h.key for h in rows[0].headers} >= {"__connect.errors.topic", "__kprod.errors.code"}


def test_mended_letters_are_sent_again(spark, kafka, letters, consume):
    """The recipe of dead-letters.md: without the headers of the letter."""
    topic, queue = letters
    found = read_dead_letters(spark, queue, **{"kafka.bootstrap.servers": kafka.bootstrap})
    mended = found.selectExpr(
        "key", "value", "topic",
        "filter(headers, h -> NOT startswith(h.key, '__connect.errors.')"
        " AND NOT startswith(h.key, '__kprod.errors.')) AS headers",
    )  # fmt: skip
    mended.write.format("kprod").option("kafka.bootstrap.servers", kafka.bootstrap).save()
    again = consume(topic, isolation="read_committed")
    assert sorted(again.values) == [b"bad", b"good", b"worse"]
    assert again.headers == [[], [], []]


def test_kprod_deadletters_counts_by_reason(kafka, letters):
    _, queue = letters
    for last, rows in (([], [1, 2]), (["-n", "0"], [])):
        told = json.loads(deadletters(kafka, queue, "--json", *last))
        assert told["total"] == 2
        assert sorted(one["code"] for one in told["byReason"]) == ["KP0212", "KP0231"]
        assert [one["row"] for one in told["last"]] == rows
        assert "value" not in (told["last"] or [{}])[0]


def test_kprod_deadletters_shows_values_when_asked(kafka, letters):
    _, queue = letters
    without = deadletters(kafka, queue)
    assert "KP0212" in without
    assert "worse" not in without
    asked = deadletters(kafka, queue, "--values", "-n", "1")
    assert "worse" in asked
    assert "bad" not in asked


def test_letters_of_a_transaction_that_is_open_are_counted_apart(kafka, capsys, monkeypatch):
    queue = kafka.unique_topic("dlq")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": queue})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(queue, b"open")
    assert producer.flush(60) == 0
    told = deadletters(kafka, queue)
    assert "1 more are in transactions that have not ended: not counted." in told
    # An executor's reader tells it, where logging is not configured.
    package = logging.getLogger("spark_kafka_sink")
    for name, value in (("handlers", []), ("propagate", False), ("level", logging.NOTSET)):
        monkeypatch.setattr(package, name, value)
    package.manager._clear_cache()
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "deadLetters": queue}
    reader = DeadLetterReader(CaseInsensitiveDict(given))
    assert [row for one in reader.partitions() for row in reader.read(one)] == []
    assert f"1 dead letters of '{queue}' are in open transactions" in capsys.readouterr().err
    package.manager._clear_cache()
    producer.abort_transaction(60)


def test_the_newest_letters_of_a_partition_are_its_last(kafka):
    """Letters have their rows' time, and a job may send rows of last year."""
    queue = kafka.unique_topic("dlq", partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition, times in ((0, (5000, 1000, 2000)), (1, (4000, 6000))):
        for time in times:
            producer.produce(queue, str(time), partition=partition, timestamp=time)
    assert producer.flush(60) == 0
    told = json.loads(deadletters(kafka, queue, "-n", "4", "--values", "--json"))
    last = [one["value"] for one in told["last"]]
    assert last == ["5000", "1000", "2000", "6000"]


def test_kprod_deadletters_escapes_what_others_wrote(kafka):
    """Any client may write to the topic, also what a terminal or markup would obey."""
    queue, odd = kafka.unique_topic("dlq"), b"\x1b[2J[red]\xff"
    names = ("code", "topic", "row", "batch.id")
    headers = [(f"__kprod.errors.{name}", odd) for name in names]
    headers += [(f"__connect.errors.exception.{name}", odd) for name in ("class.name", "message")]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(queue, odd, odd, headers=headers)
    producer.produce(queue, None, None)
    assert producer.flush(60) == 0
    for more in ([], ["--json"]):
        told = deadletters(kafka, queue, "--values", *more)
        assert told.count("[red]") == (8 if more else 7)
        assert not set(told) & set(map(chr, [*range(10), *range(11, 32), 127]))


def test_servers_that_do_not_answer_are_one_error_without_frames():
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.max.block.ms": "200"}
    reader = DeadLetterReader(CaseInsensitiveDict(given | {"deadLetters": "dlq"}))
    with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1") as caught:
        reader.partitions()
    files = {Path(str(one.path)).name for one in caught.traceback}
    assert files == {Path(__file__).name, "plain_errors.py"}


def test_a_missing_topic_of_letters_is_one_line(kafka):
    """And is not waited for as long as a request may take."""
    found = CliRunner().invoke(app, ["deadletters", "no-such-dlq", "-b", kafka.bootstrap])
    assert found.exit_code == 1
    assert "Topic no-such-dlq not found: not present in metadata after 1000 ms" in found.stderr


def test_a_task_reads_the_letters_of_its_partition(kafka):
    """As an executor does, which has a reader that travelled."""
    queue = kafka.unique_topic("dlq", partitions=2)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for partition, key in ((0, b"k0"), (1, b"k1")):
        headers = [("__connect.errors.topic", b"orders"), ("__kprod.errors.code", b"KP0231")]
        producer.produce(queue, b"v", key, partition=partition, headers=headers)
    assert producer.flush(60) == 0
    given = {"kafka.bootstrap.servers": kafka.bootstrap, "deadLetters": queue}
    reader = pickle.loads(pickle.dumps(DeadLetterReader(CaseInsensitiveDict(given))))
    tasks = [list(reader.read(one)) for one in reader.partitions()]
    found = [[(row.key, row.value, row.topic, row.code) for row in rows] for rows in tasks]
    assert found == [[(b"k0", b"v", "orders", "KP0231")], [(b"k1", b"v", "orders", "KP0231")]]
