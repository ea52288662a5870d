"""Rows that can't be sent, from Spark into a real Kafka: each reason, by each way of writing."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from spark_kafka_sink import foreach_batch, last_report, transaction

SCHEMA = (
    "id int, key string, value binary, topic string, partition int, timestamp long,"
    " headers array<struct<key:string,value:binary>>"
)
KAFKA = "org.apache.kafka.common.errors."
#: Far from the bounds of every topic here.
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Case:
    """A bad row, and what its letter says; ``row`` and ``options`` may name {topic}."""

    code: str
    exception: str
    stage: str
    row: dict[str, object]
    configs: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    column: bool = False


CASES = {
    "null key": Case(
        "KP0215", "InvalidRecordException", "KEY_CONVERTER", {"key": None},
        configs={"cleanup.policy": "compact"},
    ),
    "null value": Case(
        "KP0214", "InvalidRecordException", "VALUE_CONVERTER", {"value": None},
        options={"onNullValue": "error"},
    ),
    "null topic": Case(
        "KP0211", "InvalidTopicException", "KAFKA_PRODUCE", {"topic": None}, column=True,
    ),
    "topic name": Case(
        "KP0230", "InvalidTopicException", "KAFKA_PRODUCE", {"topic": "a b"}, column=True,
    ),
    "commit log": Case(
        "KP0236", "InvalidTopicException", "KAFKA_PRODUCE", {"topic": "__kprod_commits"},
        column=True,
    ),
    "missing topic": Case(
        "KP0302", "UnknownTopicOrPartitionException", "KAFKA_PRODUCE", {"topic": "no-such-topic"},
        options={"kafka.max.block.ms": "5000"}, column=True,
    ),
    "negative partition": Case(
        "KP0212", "UnknownTopicOrPartitionException", "KAFKA_PRODUCE", {"partition": -7},
    ),
    "missing partition": Case(
        "KP0212", "UnknownTopicOrPartitionException", "KAFKA_PRODUCE", {"partition": 99},
    ),
    "timestamp": Case(
        "KP0231", "InvalidTimestampException", "KAFKA_PRODUCE", {"timestamp": -1},
    ),
    "late timestamp": Case(
        "KP0231", "InvalidTimestampException", "KAFKA_PRODUCE", {"timestamp": 4_000_000_000_000},
        configs={"message.timestamp.after.max.ms": str(DAY_MS)},
    ),
    "null header": Case(
        "KP0232", "InvalidRecordException", "HEADER_CONVERTER",
        {"headers": [("a", bytearray(b"1")), None, (None, bytearray(b"2"))]},
    ),
    "too large": Case(
        "KP0213", "RecordTooLargeException", "KAFKA_PRODUCE", {"value": bytearray(b"x" * 50_000)},
        options={"kafka.max.request.size": "40000"}, column=True,
    ),
    "too large for the topic": Case(
        "KP0213", "RecordTooLargeException", "KAFKA_PRODUCE", {"value": bytearray(b"x" * 30_000)},
        configs={"max.message.bytes": "20000"},
    ),
}  # fmt: skip


@pytest.fixture
def names(kafka):
    """The topic of the rows for a case, and that of its letters, which does not exist."""

    def make(case):
        topic = kafka.unique_topic("rows", partitions=2, configs=case.configs)
        return topic, f"dlq.{uuid.uuid4().hex}"

    return make


def frame_of(spark, topic, *cases):
    """A good row of partition 0, the bad ones, and a good row of partition 1."""
    usual = {
        "key": "k", "value": bytearray(b"v"), "topic": topic, "partition": 0, "timestamp": None,
        "headers": None,
    }  # fmt: skip
    order = [*[name.split()[0] for name in SCHEMA.split(", ")][:6], "headers"]
    rows = [usual, *(usual | case.row for case in cases), usual | {"partition": 1}]
    numbered = [row | {"id": number} for number, row in enumerate(rows)]
    values = [tuple(row[name] for name in order) for row in numbered]
    return spark.createDataFrame(values, SCHEMA).coalesce(1)


def options_of(kafka, case, topic, queue, guarantee):
    found = {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": queue,
        "deliveryGuarantee": guarantee,
        **case.options,
    }
    return found if case.column else found | {"topic": topic}


class Mixed:
    """All cases whose topic is in a column, or is the option's, in one frame."""

    def __init__(self, spark, kafka, column):
        self.cases = {n: case for n, case in CASES.items() if case.column == (column == "column")}
        configs, self.options = {}, {"kafka.bootstrap.servers": kafka.bootstrap}
        for case in self.cases.values():
            configs |= case.configs
            self.options |= case.options
        self.topic = kafka.unique_topic("rows", partitions=2, configs=configs)
        self.queue = f"dlq.{uuid.uuid4().hex}"
        named = (replace(c, row={"key": n} | c.row) for n, c in self.cases.items())
        self.frame = frame_of(spark, self.topic, *named)
        self.options |= {
            "errors.tolerance": "all", "errors.deadletterqueue.topic.name": self.queue,
            **({} if column == "column" else {"topic": self.topic}),
        }  # fmt: skip

    def check(self, consume, batch_id=-1, first=1):
        """``first``: the number of the first bad row in its write."""
        found, letters = (consume(n, isolation="read_committed") for n in (self.topic, self.queue))
        assert sorted(found.partitions) == [0, 1]
        places = {(k or b"null key").decode(): place for place, k in enumerate(letters.keys)}
        assert places.keys() == self.cases.keys()
        assert len(letters.keys) == len(places)
        for row, (name, case) in enumerate(self.cases.items(), first):
            check(case, letters, places[name], self.topic, row, batch_id)


def check(case, letters, place, topic, row=1, batch_id=-1):
    """The letter of a bad row says why."""
    headers = dict(letters.headers[place])
    assert headers["__kprod.errors.code"] == case.code.encode()
    assert headers["__connect.errors.exception.class.name"] == (KAFKA + case.exception).encode()
    assert headers["__connect.errors.stage"] == case.stage.encode()
    asked = case.row.get("topic", topic) or ""
    assert headers["__connect.errors.topic"] == asked.encode() == headers["__kprod.errors.topic"]
    assert headers["__connect.errors.partition"] == b"%d" % case.row.get("partition", 0)
    assert headers["__kprod.errors.row"] == b"%d" % row
    assert headers["__kprod.errors.batch.id"] == b"%d" % batch_id
    value = case.row.get("value", b"v")
    size = -1 if value is None else len(value)
    assert headers["__kprod.errors.value.size"] == b"%d" % size
    if value is None:
        assert letters.values[place] is None
    else:
        cut = headers["__kprod.errors.value.truncated"] == b"true"
        assert cut == (letters.values[place] != bytes(value))
        assert bytes(value).startswith(letters.values[place])
        assert letters.values[place], "never a tombstone"
    if "headers" in case.row:
        assert headers["a"] == b"1", "the headers that can be sent are there"


@pytest.mark.parametrize(
    ("column", "guarantee"), [("option", "at-least-once"), ("column", "exactly-once")]
)
def test_a_batch_writes_each_bad_row_as_a_letter(spark, kafka, consume, column, guarantee):
    mixed = Mixed(spark, kafka, column)
    options = mixed.options | {"deliveryGuarantee": guarantee}
    mixed.frame.write.format("kprod").options(**options).save()
    mixed.check(consume)
    report, bad = last_report(spark), len(mixed.cases)
    assert (report.rows, report.rows_in, report.dead_letters.total) == (2, 2 + bad, bad)
    reasons = report.dead_letters.by_reason
    told = Counter({reason.code: reason.rows for reason in reasons})
    assert told == Counter(case.code for case in mixed.cases.values())
    samples = sorted((sample.task, sample.row) for one in reasons for sample in one.samples)
    assert samples == [(0, row) for row in range(1, 1 + bad)]


@pytest.mark.parametrize("column", ["option", "column"])
def test_a_replay_with_the_same_dead_letters_is_dropped(spark, kafka, consume, column):
    """Each reason is found again, without a producer."""
    mixed = Mixed(spark, kafka, column)
    once = {"deliveryGuarantee": "exactly-once", "txnAppId": mixed.queue, "txnVersion": "1"}
    for _ in range(2):
        mixed.frame.write.format("kprod").options(**mixed.options, **once).save()
    assert last_report(spark).outcome == "done before"
    mixed.check(consume)


def test_a_replay_with_other_dead_letters_is_an_error(spark, kafka, consume, names):
    """It has as many rows and bytes, and was dropped: the rows that are good now were nowhere."""
    case = CASES["missing partition"]
    topic, queue = names(case)
    once = {"txnAppId": queue, "txnVersion": "1"}
    options = options_of(kafka, case, topic, queue, "exactly-once") | once

    def write(bad):
        rows = spark.range(0, 117, 1, 3).selectExpr(
            "'v' AS value", f"IF({bad}, 99, 0) AS partition"
        )
        rows.write.format("kprod").options(**options).save()

    write("id % 9 = 3")
    for bad in ("false", "id % 9 > 7 OR id % 9 = 3"):
        with pytest.raises(Exception, match="other rows under a done number") as caught:
            write(bad)
        assert f"117 rows of 117 bytes, 13 of them dead letters, to {topic}" in str(caught.value)
    assert [len(consume(one, isolation="read_committed").values) for one in (topic, queue)] == [
        104,
        13,
    ]


def test_a_stream_has_its_micro_batchs_number_in_letters(kafka, stream, source, consume, names):
    case = CASES["negative partition"]
    topic, queue = names(case)
    frame, add = source
    add(["good", "bad"])
    options = options_of(kafka, case, topic, queue, "exactly-once")
    options["transactionalIdPrefix"] = prefix = f"p-{uuid.uuid4().hex}"
    rows = frame.selectExpr("value", "IF(value = 'bad', -7, 0) AS partition")
    query = stream(rows, **options)
    assert query.awaitTermination(120)
    assert consume(topic).values == [b"good"]
    letters = consume(queue)
    assert letters.values == [b"bad"]
    headers = dict(letters.headers[0])
    assert headers["__kprod.errors.batch.id"] == b"0"
    assert headers["__connect.errors.connector.name"] == prefix.encode()


def test_foreach_batch_writes_letters_in_its_transaction(spark, kafka, consume, names):
    case = CASES["too large"]
    topic, queue = names(case)
    options = options_of(kafka, case, topic, queue, "exactly-once")
    name = f"fb-{uuid.uuid4().hex}"
    frame = frame_of(spark, topic, case)
    foreach_batch(name, **options)(frame, 5)
    assert sorted(consume(topic).partitions) == [0, 1]
    check(case, consume(queue), 0, topic, batch_id=5)
    assert dict(consume(queue).headers[0])["__connect.errors.connector.name"] == name.encode()
    foreach_batch(name, **options)(frame, 5)
    assert len(consume(queue, isolation="read_committed")) == 1, "a replay writes no letter again"


def test_a_limit_bounds_all_writes_of_a_block_together(spark, kafka, consume, names):
    """A micro-batch is what users set it for, not one of its writes."""
    case = CASES["null value"]
    topic, queue = names(case)
    options = options_of(kafka, case, topic, queue, "exactly-once")
    options["errors.max.fraction"] = "0.24"
    frame = frame_of(spark, topic, case)

    def write():
        with transaction(f"block-{uuid.uuid4().hex}", 0, **options) as block:
            block.write(frame)
            block.write(frame)
            block.write(frame.where("id = 0").unionByName(frame.where("id = 2")))

    with pytest.raises(Exception, match=r"KP0233.* 2 of 8 rows can't be sent"):
        write()
    found = [len(consume(name, isolation="read_committed")) for name in (topic, queue)]
    assert found == [0, 0]


def test_the_topic_of_letters_is_made_with_one_partition(spark, kafka, names, consume):
    from confluent_kafka.admin import AdminClient

    topic, queue = names(CASES["timestamp"])
    options = options_of(kafka, CASES["timestamp"], topic, queue, "at-least-once")
    options["errors.deadletterqueue.topic.replication.factor"] = "1"
    frame = frame_of(spark, topic, CASES["timestamp"])
    frame.where("id = 0").write.format("kprod").options(**options).save()
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    assert len(admin.list_topics(timeout=30).topics[queue].partitions) == 1
    assert len(consume(queue)) == 0


def test_a_compacted_topic_of_letters_is_refused_at_planning(spark, kafka, names):
    topic, _ = names(CASES["timestamp"])
    queue = kafka.unique_topic("dlq", configs={"cleanup.policy": "compact"})
    options = options_of(kafka, CASES["timestamp"], topic, queue, "at-least-once")
    frame = frame_of(spark, topic, CASES["timestamp"])
    with pytest.raises(Exception, match="which is compacted"):
        frame.write.format("kprod").options(**options).save()


def test_rows_for_the_topic_of_letters_are_letters(spark, kafka, names, consume):
    """A topic column could put rows beside the letters, which readers could not tell apart."""
    case = CASES["null topic"]
    topic, queue = names(case)
    options = options_of(kafka, case, topic, queue, "exactly-once")
    frame = frame_of(spark, topic, case).selectExpr(
        "key", "value", f"IF(id = 1, '{queue}', topic) AS topic"
    )
    frame.write.format("kprod").options(**options).save()
    assert len(consume(topic)) == 2
    assert dict(consume(queue).headers[0])["__kprod.errors.code"] == b"KP0230"


def test_letters_of_many_tasks_count_together(spark, kafka, names, consume):
    """No task alone is past errors.max.records; past it nothing of the batch is visible."""
    topic, queue = names(CASES["timestamp"])
    options = options_of(kafka, CASES["timestamp"], topic, queue, "exactly-once")
    rows = ("CAST(id AS STRING) AS value", "IF(id % 2 = 0, -1L, null) AS timestamp")
    frame = spark.range(0, 8, 1, 4).selectExpr(*rows)
    told = r"KP0233.* 4 of 8 rows can't be sent, and errors\.max\.records is 3.* \(KP0231"
    with pytest.raises(Exception, match=told):
        frame.write.format("kprod").options(**options, **{"errors.max.records": "3"}).save()
    found = [len(consume(name, isolation="read_committed")) for name in (topic, queue)]
    assert found == [0, 0]
