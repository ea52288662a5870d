"""Any rows, by any codec, in one batch or many: what two readers that share no code find.

Hypothesis makes up the examples; all of them are written before anybody reads, because a reader
costs more to start than an example to write.
"""

from __future__ import annotations

import os
import random
import re
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.engine.rows import (
    Headers,
    Row,
    attempt,
    check_batches,
    config,
    dump_log,
    in_pieces,
    now_ms,
    plan,
    stored,
)

EXAMPLES = 120
#: Codecs and their levels: each has a partition of its own.
CODECS = (
    *(("none", None), ("gzip", -1), ("gzip", 1), ("gzip", 9), ("snappy", None)),
    *(("lz4", 1), ("lz4", 9), ("lz4", 17), ("zstd", -131_072), ("zstd", 3), ("zstd", 22)),
)
#: A broker refuses what lies in its future.
LATEST = 1_790_000_000_000


class Way(Enum):
    COLUMNS = "send_columns"
    RECORDS = "send"


@dataclass(frozen=True, slots=True)
class Example:
    partition: int
    batch_size: int
    way: Way
    #: Rows of one Arrow batch.
    piece: int
    rows: tuple[Row, ...]


def content() -> st.SearchStrategy[bytes | None]:
    """Null, empty, short, and long enough for lengths of two and three bytes."""
    repeated = st.builds(lambda data, n: data * n, st.binary(min_size=1, max_size=40),
                         st.sampled_from([3, 50, 900]))  # fmt: skip
    return st.one_of(st.none(), st.just(b""), st.binary(max_size=70), repeated)


def headers() -> st.SearchStrategy[Headers | None]:
    # The log tool prints names as they are: nothing in them may end its line.
    name = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), max_size=8)
    value = st.one_of(st.none(), st.binary(max_size=20))
    return st.one_of(st.none(), st.lists(st.tuples(name, value), max_size=4))


def example() -> st.SearchStrategy[Example]:
    row = st.builds(
        Row, content(), content(), headers(), st.one_of(st.none(), st.integers(0, LATEST))
    )
    return st.builds(
        Example,
        st.integers(0, len(CODECS) - 1),
        st.sampled_from([1, 400, 262_144]),
        st.sampled_from(Way),
        st.integers(1, 12),
        st.lists(row, min_size=1, max_size=40).map(tuple),
    )


def examples(number: int) -> list[Example]:
    found: list[Example] = []

    @seed(number)
    @settings(
        max_examples=EXAMPLES,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(example())
    def gather(one: Example) -> None:
        found.append(one)

    gather()
    # Whatever Hypothesis takes a fancy to: every codec and way has a batch of several records.
    several = tuple(Row(b"value " * 50, b"%d" % i, [("h", b"1")], i) for i in range(20))
    partitions = range(len(CODECS))
    return [
        *(Example(partition, 262_144, way, 7, several) for partition in partitions for way in Way),
        *found,
    ]


@dataclass(slots=True)
class Written:
    """A topic, and the rows of each of its partitions with the time span of their sending."""

    topic: str
    rows: dict[int, list[tuple[Row, int, int]]]


@pytest.fixture(scope="module")
def written(kafka) -> Written:
    # The topic's name tells a failure's seed; ROUND_TRIP_SEED makes the same examples again.
    number = int(os.environ.get("ROUND_TRIP_SEED") or random.getrandbits(32))
    # Any time since 1970 is older than what a topic keeps.
    topic = kafka.unique_topic(f"round-trip-{number}", len(CODECS), {"retention.ms": "-1"})
    result = Written(topic, {partition: [] for partition in range(len(CODECS))})
    producers: dict[tuple[object, ...], KafkaProducer] = {}
    with ExitStack() as stack:
        for one in examples(number):
            settings_ = (one.partition, one.batch_size, one.way)
            if settings_ not in producers:
                codec, level = CODECS[one.partition]
                options: dict[str, object] = {
                    "compression.type": codec,
                    "batch.size": one.batch_size,
                }
                if level is not None:
                    options[f"compression.{codec}.level"] = level
                made = producers[settings_] = KafkaProducer(config(kafka.bootstrap, options))
                stack.callback(partial(made.close, 10_000))
            begun = now_ms()
            rows = [replace(row, partition=one.partition) for row in one.rows]
            there = result.rows[one.partition]
            _send(producers[settings_], topic, one, rows, len(there))
            ended = now_ms()
            there += [(row, begun, ended) for row in rows]
    assert sum(map(len, result.rows.values())) > EXAMPLES
    return result


def _send(producer: KafkaProducer, topic: str, one: Example, rows: list[Row], first: int) -> None:
    """What the producer says of partition and offset is so: ``first`` is the partition's next."""
    if one.way is Way.COLUMNS:
        report = attempt(producer, plan(topic), in_pieces(rows, one.piece))
        tp = TopicPartition(topic, one.partition)
        assert (report.rows, report.offsets) == (len(rows), {tp: (first, first + len(rows) - 1)})
        return
    futures = [
        producer.send(
            ProducerRecord(topic, row.value, row.key, row.partition, row.time, row.headers or ())
        )
        for row in rows
    ]
    producer.flush()
    found = [future.result(0) for future in futures]
    assert {metadata.partition for metadata in found} == {one.partition}
    assert [metadata.offset for metadata in found] == list(range(first, first + len(rows)))


def check(wanted: list[tuple[Row, int, int]], found: list[Row]) -> None:
    assert len(found) == len(wanted)
    for (row, begun, ended), other in zip(wanted, found, strict=True):
        assert other.time is not None
        if row.time is None:
            assert begun <= other.time <= ended
        else:
            assert other.time == row.time
        assert replace(other, time=row.time) == replace(row, headers=row.headers or [])


def test_librdkafka_reads_whatever_was_written(consume, written):
    found = consume(written.topic)
    for partition, wanted in written.rows.items():
        check(wanted, stored(found, partition))


# ---- Kafka's own log tool ------------------------------------------------------------------------

_TIME = re.compile(r"^\| offset: \d+ CreateTime: (\d+) ")


def as_dumped(row: Row, offset: int, sequence: int, time: int) -> str:
    """The line that the log tool prints of a record, keys and values in hexadecimal digits."""
    sizes = [-1 if data is None else len(data) for data in (row.key, row.value)]
    names = ",".join(name for name, _ in row.headers or ())
    key = "" if row.key is None else f" key: {row.key.hex()}"
    value = "" if row.value is None else f" payload: {row.value.hex()}"
    return (
        f"| offset: {offset} CreateTime: {time} keySize: {sizes[0]} valueSize: {sizes[1]}"
        f" sequence: {sequence} headerKeys: [{names}]{key}{value}"
    )


def test_kafkas_log_tool_finds_whatever_was_written(kafka, written):
    if kafka.cluster is None:
        pytest.skip("the log tool needs the broker's files")
    found = dump_log(kafka.cluster, written.topic)
    assert set(found) == set(written.rows)
    for partition, wanted in written.rows.items():
        batches = found[partition]
        check_batches(batches)
        assert {batch.codec for batch in batches} == {CODECS[partition][0]}
        assert any(batch.count > 1 for batch in batches)
        lines = [line for batch in batches for line in batch.records]
        for offset, ((row, begun, ended), line) in enumerate(zip(wanted, lines, strict=True)):
            time, sequence = _TIME.match(line), re.search(r" sequence: (\d+) ", line)
            assert time is not None
            assert sequence is not None
            millis = int(time[1])
            assert millis == row.time or (row.time is None and begun <= millis <= ended)
            assert line.rstrip(" ") == as_dumped(row, offset, int(sequence[1]), millis).rstrip(" ")
