"""A consumer that stands still: who makes it wait is named, and what is advised frees it."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Producer

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.transactions.commit_state import CommitState
from tests.transactions.operator_stage import Stage


@pytest.fixture
def topic(stage: Stage) -> str:
    return stage.kafka.unique_topic("blocked")


def of_a_task(stage: Stage, topic: str, name: str, value: bytes) -> KafkaProducer:
    """A task of this package that has written, and is silent since."""
    producer = KafkaProducer({"bootstrap.servers": stage.kafka.bootstrap, "transactional.id": name})
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(ProducerRecord(topic, value))
    producer.flush()
    return producer


def of_another_client(stage: Stage, topic: str, name: str, value: bytes) -> Producer:
    producer = Producer(
        {"bootstrap.servers": stage.kafka.bootstrap, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.flush(30)
    return producer


def visible(stage: Stage, topic: str) -> list[bytes]:
    """What a consumer that reads committed gets before it waits."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": stage.kafka.bootstrap,
            "group.id": "blocked",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while True:
            message = consumer.poll(30)
            assert message is not None, "no end came"
            if message.error():
                return found
            found.append(message.value())
    finally:
        consumer.close()


def follow(stage: Stage, advice: str) -> None:
    command = re.search(r"kprod txn (.+)$", advice)
    assert command, advice
    stage.run(*command[1].split(), "--yes")


def test_each_blocker_is_named_and_the_advice_frees_the_consumer(stage: Stage, topic: str) -> None:
    ours = f"{stage.prefix}~run-1~w~0"
    stage.write(CommitState(generation=1, run_id="run-1", last_done=3))
    task = of_a_task(stage, topic, ours, b"ours")
    other = of_another_client(stage, topic, f"flink-{stage.prefix}", b"another's")
    plain = Producer({"bootstrap.servers": stage.kafka.bootstrap})
    plain.produce(topic, b"waits")
    plain.flush(30)
    try:
        assert visible(stage, topic) == []
        first, second = stage.json("blockers", topic)["blockers"]
        assert first["transactionalId"] == ours
        assert first["holdsLastStableOffset"] == [0]
        assert first["startOffsets"] == {"0": 0}
        assert first["runIs"] == "owner"
        assert 0 <= first["ageMs"] < 60_000
        assert second["transactionalId"] == f"flink-{stage.prefix}"
        assert (second["holdsLastStableOffset"], second["runIs"]) == ([], None)
        text = stage.run("blockers", topic).stdout
        assert "kprod txn abort" in text
        assert "another client" in text

        follow(stage, first["advice"])
        assert visible(stage, topic) == []
        (left,) = stage.json("blockers", topic)["blockers"]
        assert left["holdsLastStableOffset"] == [0]
        listed = {t["transactionalId"]: t for t in stage.json("list")["open"]}
        assert listed[f"flink-{stage.prefix}"]["prefix"] is None
        assert listed[f"flink-{stage.prefix}"]["partitions"] == {topic: [0]}
        assert f"flink-{stage.prefix}" in stage.run("list").stdout

        follow(stage, left["advice"])
        assert stage.json("blockers", topic)["blockers"] == []
        assert visible(stage, topic) == [b"waits"]
        assert "no consumer waits" in stage.run("blockers", topic).stdout
    finally:
        task.close(0)
        other.purge()


def test_a_decided_transaction_is_advised_to_be_committed(stage: Stage, topic: str) -> None:
    with of_a_task(stage, topic, f"{stage.prefix}~run-1~w~0", b"decided") as task:
        prepared = task.prepare()
    stage.write(stage.state([prepared]))
    (found,) = stage.json("blockers", topic)["blockers"]
    assert found["decided"] == {"key": stage.prefix, "batch": 8}
    follow(stage, found["advice"])
    assert visible(stage, topic) == [b"decided"]


def test_our_tasks_are_not_fenced_without_reading_the_log(stage: Stage) -> None:
    refused = stage.run("fence", f"{stage.prefix}~run-1~w~0", "--yes", code=2)
    assert "kprod txn abort" in refused.stderr


def test_a_topic_that_is_not_there_is_one_line(stage: Stage) -> None:
    refused = stage.run("blockers", "nobody-made-it", code=1)
    assert "nobody-made-it" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
