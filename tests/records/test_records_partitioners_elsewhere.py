"""The table of partitioners in docs/options.md, against librdkafka and Kafka's Java producer."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer

from spark_kafka_sink.config.option_table import KEY_PARTITIONERS
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.records.partitioning.key_rules import (
    IGNORED,
    JAVA_RULE,
    KEY_RULES,
    Choice,
    KeyRule,
)
from spark_kafka_sink.records.partitioning.murmur2 import murmur2
from spark_kafka_sink.records.partitioning.partitioners import partitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.java_programs import run_java

PARTITIONS = 7
ALL = tuple(range(PARTITIONS))
EACH = 200


def _librdkafka_has(name: str) -> bool:
    """Whether librdkafka accepts ``name`` as its partitioner."""
    try:
        Producer({"partitioner": name})
    except KafkaException:
        return False
    return True


LIBRDKAFKAS = [name for name in KEY_PARTITIONERS if _librdkafka_has(name)]


def some_keys() -> list[bytes]:
    rng = random.Random(4)
    # "618647f697" is the one whose FNV-1a has no absolute value.
    return [*(rng.randbytes(n % 40 + 1) for n in range(300)), bytes.fromhex("618647f697")]


@pytest.fixture(scope="module")
def topic(kafka) -> str:
    return kafka.unique_topic("partitioners", PARTITIONS)


def what_decides(partitions: Sequence[int], rule: KeyRule, key: bytes) -> Choice:
    """By where many records with the same key went, at most a few of them in one batch."""
    if set(partitions) == {rule.number(key) % PARTITIONS}:
        return Choice.HASH
    changes = int(np.count_nonzero(np.diff(partitions)))
    return Choice.RANDOM if changes > len(partitions) // 2 else Choice.STICKY


def by_columns(name: str, keys: Sequence[bytes]) -> list[int]:
    columns = RecordColumns(len(keys), "t", key=pa.array(keys, pa.binary()))
    views = {"t": TopicView(PARTITIONS, ALL, 10_000)}
    return partitioner(name).assign(columns, views, lambda tp: None).tolist()


# ---- librdkafka ----------------------------------------------------------------------------------


def librdkafka(
    kafka, topic: str, name: str, keys: Sequence[bytes | None], linger: int
) -> list[int]:
    """Where confluent-kafka's producer sends them."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "partitioner": name,
            "sticky.partitioning.linger.ms": linger,
            "linger.ms": 0,
        }
    )
    # It takes partitions as not there, and moves on, until it is connected to their brokers.
    producer.produce(topic, b"v", partition=0)
    assert producer.flush(60) == 0
    found: dict[int, int] = {}
    for number, key in enumerate(keys):

        def delivered(error, message, number=number):
            assert error is None, error
            found[number] = message.partition()

        producer.produce(topic, b"v", key, on_delivery=delivered)
    assert producer.flush(60) == 0
    return [found[number] for number in range(len(keys))]


@pytest.mark.parametrize("name", LIBRDKAFKAS)
def test_keys_go_where_librdkafka_sends_them_as_in_the_table(kafka, topic, name):
    rule = KEY_RULES[name]
    keys = some_keys()
    for key, expected in ((None, rule.null), (b"", rule.empty)):
        many = [key] * EACH
        # What is not hashed goes anywhere; but with stickiness, to one of them for a minute.
        restless = what_decides(librdkafka(kafka, topic, name, many, 0), rule, b"")
        settled = what_decides(librdkafka(kafka, topic, name, many, 60_000), rule, b"")
        seen = {
            (Choice.HASH, Choice.HASH): Choice.HASH,
            (Choice.RANDOM, Choice.RANDOM): Choice.RANDOM,
            (Choice.RANDOM, Choice.STICKY): Choice.STICKY,
            # One in seven times it sticks to the very partition of the hash.
            (Choice.RANDOM, Choice.HASH): Choice.STICKY,
        }[restless, settled]
        assert seen is expected, (key, restless, settled)
    got = librdkafka(kafka, topic, name, keys, 60_000)
    if rule.other is Choice.HASH:
        assert got == by_columns(name, keys)
    else:
        assert what_decides(got, rule, b"") is rule.other is Choice.RANDOM


def test_our_producer_sends_keys_as_librdkafka_does(kafka, topic, consume):
    keys = some_keys()
    theirs = librdkafka(kafka, topic, "consistent_random", keys, 60_000)
    options = {"bootstrap.servers": kafka.bootstrap, "partitioner.class": "consistent_random"}
    ours = kafka.unique_topic("ours", PARTITIONS)
    with KafkaProducer(parse_producer_config(options)) as producer:
        producer.send_columns(RecordColumns(len(keys), ours, key=pa.array(keys, pa.binary())))
        futures = [producer.send(ProducerRecord(ours, b"v", key)) for key in keys]
        producer.flush()
    assert [future.result(0).partition for future in futures] == theirs
    found = consume(ours)
    where = {*zip(found.keys, found.partitions, strict=True)}
    assert len(found) == 2 * len(keys)
    assert where == {*zip(keys, theirs, strict=True)}


# ---- Java ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def java(kafka, topic) -> dict[str, list[int]]:
    keys: list[bytes | None] = [*[None] * EACH, *[b""] * EACH, *some_keys()]
    lines = "".join(f"{'null' if key is None else key.hex()}\n" for key in keys)
    printed = run_java("Partitions", [kafka.bootstrap, topic], lines)
    rows = [line.split() for line in printed.splitlines()]
    return {name: [int(number) for number in numbers] for name, *numbers in rows}


@pytest.mark.parametrize(("setting", "rule"), [("built-in", JAVA_RULE), ("ignore.keys", IGNORED)])
def test_keys_go_where_javas_producer_sends_them_as_in_the_table(java, setting, rule):
    """DefaultPartitionerTest#testKeyPartitionIsStable."""
    null, empty = java[setting][:EACH], java[setting][EACH : 2 * EACH]
    others = java[setting][2 * EACH :]
    assert what_decides(null, rule, b"") is rule.null
    assert what_decides(empty, rule, b"") is rule.empty
    if rule.other is Choice.HASH:
        assert others == by_columns("murmur2_random", some_keys())
    else:
        assert what_decides(others, rule, b"") is rule.other


def test_javas_murmur2_is_ours(java):
    """UtilsTest#testMurmur2."""
    keys = [*[b""] * EACH, *some_keys()]
    assert murmur2(pa.array(keys)).view(np.int32).tolist() == java["hashes"]


def test_javas_round_robin_is_ours(java):
    theirs = java["RoundRobinPartitioner"]
    columns = RecordColumns(len(theirs), "t")
    views = {"t": TopicView(PARTITIONS, ALL, 10_000)}
    ours = partitioner("RoundRobinPartitioner").assign(columns, views, lambda tp: None).tolist()
    # The order in which Java's metadata lists partitions is the brokers' own; and ours begins
    # anywhere. But both go through all of them, in one order that they keep.
    for found in (theirs, ours):
        assert sorted(found[:PARTITIONS]) == list(ALL)
        assert found[PARTITIONS:] == found[:-PARTITIONS]
