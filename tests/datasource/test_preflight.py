"""When brokers are asked, and what the answer is worth."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.documentation import where_to_read
from spark_kafka_sink.base.errors import KafkaTimeoutError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.preflight import (
    KEPT_ANSWERS,
    KEPT_MS,
    WARN_WAIT_MS,
    PreflightCheck,
)
from spark_kafka_sink.datasource.source import KprodDataSource
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.protocol.cluster import Cluster, PartitionInfo, PartitionInfos, TopicPartition

CLUSTER = Cluster(topics={"t": PartitionInfos.of("t", [PartitionInfo(TopicPartition("t", 0), 1)])})


class Hand:
    """A clock that a test moves by hand."""

    def __init__(self):
        self.now = 1_000

    def now_ms(self):
        return self.now

    wall_ms = now_ms

    def wait(self, condition, deadline_ms):
        raise AssertionError("the preflight itself never waits")


class Brokers:
    def __init__(self, answer=CLUSTER):
        self.answer = answer
        self.asked = []

    def __call__(self, config, topics, timeout_ms):
        self.asked.append((topics, timeout_ms))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def config(**options):
    given = {"kafka.bootstrap.servers": "127.0.0.1:9092", "topic": "t"} | options
    return parse_sink_config({name: value for name, value in given.items() if value is not None})


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, (("t",), 60_000)),
        ({"kafka.max.block.ms": "1234"}, (("t",), 1234)),
        ({"topic": None}, ((), 60_000)),
    ],
    ids=["a topic", "max.block.ms", "topics of rows"],
)
def test_a_batch_ships_what_the_brokers_said(options, asked):
    brokers = Brokers()
    assert PreflightCheck(brokers, Hand()).check(config(**options), streaming=False) is CLUSTER
    assert brokers.asked == [asked]


def test_the_answer_is_kept_for_a_minute():
    brokers, clock = Brokers(), Hand()
    preflight = PreflightCheck(brokers, clock)
    for _ in range(3):
        assert preflight.check(config(), streaming=True) is CLUSTER
    assert len(brokers.asked) == 1
    clock.now += KEPT_MS
    preflight.check(config(), streaming=True)
    assert len(brokers.asked) == 2


def test_another_topic_or_another_option_is_another_question():
    brokers = Brokers()
    preflight = PreflightCheck(brokers, Hand())
    preflight.check(config(), streaming=False)
    preflight.check(config(topic="u"), streaming=False)
    preflight.check(config(**{"kafka.bootstrap.servers": "127.0.0.1:9093"}), streaming=False)
    assert len(brokers.asked) == 3


def test_the_answer_without_dead_letters_does_not_do_with_them():
    """Without them, the wait for the topics' limits is shorter, and the limits may be missing."""
    brokers = Brokers()
    preflight = PreflightCheck(brokers, Hand())
    letters = {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "letters"}
    preflight.check(config(reportTopic="letters"), streaming=False)
    preflight.check(config(**letters), streaming=False)
    assert [topics for topics, _ in brokers.asked] == [("t", "letters")] * 2


def test_a_process_with_many_topics_keeps_the_newest_answers():
    brokers = Brokers()
    preflight = PreflightCheck(brokers, Hand())
    topics = [f"t{number}" for number in range(KEPT_ANSWERS + 1)]
    for topic in (*topics, topics[1], topics[0]):
        preflight.check(config(topic=topic), streaming=False)
    assert [asked for (asked,), _ in brokers.asked] == [*topics, topics[0]]


def test_a_failure_stops_a_batch_and_is_asked_again():
    brokers = Brokers(KafkaTimeoutError("Topic t not present in metadata after 5000 ms."))
    preflight = PreflightCheck(brokers, Hand())
    for _ in range(2):
        with pytest.raises(KafkaTimeoutError, match="Topic t not present"):
            preflight.check(config(), streaming=False)
    assert len(brokers.asked) == 2


def test_a_failure_warns_a_stream_once_a_minute_and_costs_little(caplog):
    brokers, clock = Brokers(KafkaTimeoutError("no broker answered", hint="tried a:1")), Hand()
    preflight = PreflightCheck(brokers, clock)
    for _ in range(3):
        assert preflight.check(config(), streaming=True) is None
    assert brokers.asked == [(("t",), WARN_WAIT_MS)]
    (warning,) = (r.getMessage() for r in caplog.records)
    assert warning == (
        "preflight=warn, continuing despite: [KP0305] no broker answered (tried a:1; see "
        f"{where_to_read('KP0305')})"
    )


def test_a_streams_warning_does_not_replace_a_batchs_error():
    brokers = Brokers(KafkaTimeoutError("no broker answered"))
    preflight = PreflightCheck(brokers, Hand())
    preflight.check(config(), streaming=True)
    brokers.answer = CLUSTER
    assert preflight.check(config(), streaming=False) is CLUSTER


def test_the_option_beats_the_default_of_batch_and_stream(caplog):
    brokers = Brokers(KafkaTimeoutError("no broker answered"))
    preflight = PreflightCheck(brokers, Hand())
    with pytest.raises(KafkaTimeoutError):
        preflight.check(config(preflight="required"), streaming=True)
    assert preflight.check(config(preflight="warn"), streaming=False) is None
    before = len(brokers.asked)
    assert preflight.check(config(preflight="off"), streaming=False) is None
    assert len(brokers.asked) == before


@pytest.mark.parametrize("writes", [None, 2], ids=["write", "end"])
def test_the_end_of_a_block_is_no_write_to_check(writes):
    """All rows are acknowledged then. Brokers that are slow must not fail the block."""
    context = WriteContext("run", writes=writes)
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.max.block.ms": "300",
        "deliveryGuarantee": "exactly-once",
        "txnAppId": "job",
        "txnVersion": "1",
        "txnContext": context.to_option(),
    }
    schema = StructType([StructField(name, StringType()) for name in ("key", "value", "topic")])
    with pytest.raises(KafkaTimeoutError, match="no broker answered") as raised:
        KprodDataSource(options).writer(schema, overwrite=False)
    is_after_the_preflight = "InitProducerId" in str(raised.value)
    assert is_after_the_preflight is (writes is not None)
