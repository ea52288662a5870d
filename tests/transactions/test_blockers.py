"""A consumer that stands still: who makes it wait is named, and what is advised frees it."""

from __future__ import annotations

import re
import threading
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from prometheus_client.parser import text_string_to_metric_families

from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.cli.show import show_blockers
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.operations.blockers import Blocker, Whose, blockers
from spark_kafka_sink.transactions.operations.inspection import DecidedBy
from spark_kafka_sink.transactions.transactional_ids import log_key
from tests.transactions.open_transactions import task_that_wrote
from tests.transactions.operator_stage import Stage
from tests.waiting import wait_for


@pytest.fixture
def topic(stage: Stage) -> str:
    return stage.kafka.unique_topic("blocked")


def produce(stage: Stage, topic: str, value: bytes) -> None:
    """In no transaction."""
    producer = Producer({"bootstrap.servers": stage.kafka.bootstrap})
    producer.produce(topic, value)
    producer.flush(30)


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
    ours = f"{stage.prefix}~run-1~g2.w~0"
    stage.write(CommitState(generation=2, run_id="run-1", last_done=3))
    task = task_that_wrote(stage.kafka.bootstrap, ours, topic, "ours")
    other = of_another_client(stage, topic, f"flink-{stage.prefix}", b"another's")
    produce(stage, topic, b"waits")
    try:
        assert visible(stage, topic) == []
        second, first = stage.json("blockers", topic, code=3)["blockers"]
        assert first["transactionalId"] == ours
        assert first["holdsLastStableOffset"] == [0]
        assert first["offsetsBehind"] == {"0": 3}
        assert first["startOffsets"] == {"0": 0}
        assert (first["runIs"], first["whose"]) == ("owner", "owner")
        assert 0 <= first["ageMs"] < 60_000
        assert second["transactionalId"] == f"flink-{stage.prefix}"
        assert (second["holdsLastStableOffset"], second["runIs"]) == ([], None)
        assert second["whose"] == "another client"
        text = stage.run("blockers", topic, code=3).stdout
        assert "kprod txn abort" in text
        assert "another client" in text

        follow(stage, first["advice"])
        assert visible(stage, topic) == []
        (left,) = stage.json("blockers", topic, code=3)["blockers"]
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
    with task_that_wrote(
        stage.kafka.bootstrap, f"{stage.prefix}~run-1~g2.w~0", topic, "decided"
    ) as task:
        prepared = task.prepare()
    stage.write(stage.state([prepared]))
    (found,) = stage.json("blockers", topic, code=3)["blockers"]
    assert found["decided"] == {"key": stage.prefix, "batch": 8}
    follow(stage, found["advice"])
    assert visible(stage, topic) == [b"decided"]


def test_a_decided_job_that_was_run_again_is_aborted(stage: Stage, topic: str) -> None:
    """No query ends that of a job without txnAppId, and a commit would double its rows."""
    key = log_key(stage.prefix, "run-1")
    name = f"{key}~run-1~g2.w~0"
    with task_that_wrote(stage.kafka.bootstrap, name, topic, "decided") as task:
        prepared = task.prepare()
    aborted = {"run_id": "", "superseded": ("run-1",)}  # by an operator, behind its decision
    stage.write(stage.state([prepared], **aborted), key)
    (found,) = stage.json("blockers", topic, code=3)["blockers"]
    abort = f"abort {name} --force"
    assert found["advice"].endswith(f": kprod txn {abort}; otherwise: kprod txn commit {key}")
    question = stage.run("commit", key, "--dry-run").stdout
    assert "If its job was run again, all rows are duplicated." in " ".join(question.split())
    stage.run(*abort.split(), "--yes")
    assert stage.json("blockers", topic)["blockers"] == []
    assert visible(stage, topic) == []


def test_our_tasks_are_not_fenced_without_reading_the_log(stage: Stage) -> None:
    refused = stage.run("fence", f"{stage.prefix}~run-1~g2.w~0", "--yes", code=2)
    assert "kprod txn abort" in refused.stderr


def test_a_command_of_kafkas_tool_has_none_of_our_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A principal that may not DESCRIBE an id is shown that tool's command, which refused them."""
    unseen = Blocker("orders", 7, 0, {1: 0}, (), None, None, None, None, None)
    show_blockers("orders", [unseen], "-c client.properties")
    shown = capsys.readouterr().out
    assert shown.endswith("abort --topic orders --partition 1 --start-offset 0\n")


ONGOING = TransactionDescription(ErrorCode.NONE, "", TransactionState.ONGOING)
ENDING = TransactionDescription(ErrorCode.NONE, "", TransactionState.PREPARE_COMMIT)


def blocker(name: str | None, found: TransactionDescription | None, **fields: Any) -> Blocker:
    known = {"standing": None, "decided": None, "age_ms": 5, **fields}
    return Blocker("orders", 7, 0, {1: 8, 2: 9}, (), name, found, **known)


@pytest.mark.parametrize(
    ("blocks", "owner", "advice"),
    [
        (
            blocker("p~r~g2.w~0", ONGOING, decided=DecidedBy("p", 8)),
            "batch 8 of p, which is decided",
            "start its query, or: kprod txn commit p",
        ),
        (
            blocker("p~r~g2.w~0", ENDING, decided=DecidedBy("p", 8)),
            "batch 8 of p, which is decided",
            "its coordinator is ending it: check again in a moment",
        ),
        (
            blocker(None, None, committed_id="theirs"),
            "theirs, committed without its marker",
            "an abort loses its rows: copy them first (read_uncommitted). Then Kafka's own tool",
        ),
    ],
    ids=["decided", "ending", "committed without a marker"],
)
def test_who_ends_what_blocks_is_in_its_advice(blocks: Blocker, owner: str, advice: str) -> None:
    assert blocks.owner == owner
    assert blocks.advice.startswith(advice)


def test_a_topic_that_is_not_there_is_one_line(stage: Stage) -> None:
    refused = stage.run("blockers", "nobody-made-it", code=1)
    assert "nobody-made-it" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_orphans_come_before_owners(stage: Stage, topic: str) -> None:
    stage.write(stage.state(superseded=("run-0",)))
    runs = {"run-1": "owner", "run-0": "orphan", "run-x": "not in the log"}
    tasks = [
        task_that_wrote(stage.kafka.bootstrap, f"{stage.prefix}~{run}~g2.w~0", topic, "row")
        for run in runs
    ]
    found = stage.json("blockers", topic, code=3)["blockers"]
    assert [b["whose"] for b in found] == ["orphan", "not in the log", "owner"]
    advice = {b["whose"]: b["advice"] for b in found}
    assert advice["orphan"] == f"kprod txn abort {stage.prefix}~run-0~g2.w~0"
    assert "check that its job is not running" in advice["not in the log"]
    assert "--force" in advice["owner"]
    assert visible(stage, topic) == []
    for one in advice.values():
        follow(stage, one)
    assert stage.json("blockers", topic)["blockers"] == []
    for task in tasks:
        task.close(0)


def test_groups_that_wait_are_named(stage: Stage, topic: str) -> None:
    """One has read up to the open transaction, one has a row to read; others don't wait."""
    produce(stage, topic, b"before")
    task = task_that_wrote(stage.kafka.bootstrap, f"{stage.prefix}~run-1~g2.w~0", topic, "open")
    produce(stage, topic, b"behind")
    names = {name: f"{stage.prefix}-{name}" for name in ("waits", "comes", "reads-all", "gone")}
    with ExitStack() as stack:
        for name, offset in (("waits", 1), ("comes", 0), ("reads-all", 3), ("gone", 1)):
            consumer = member(stage, names[name], topic)
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            if name == "gone":
                consumer.close()
            else:
                stack.callback(consumer.close)
        (found,) = stage.json("blockers", topic, code=3)["blockers"]
        assert found["groupsBehind"] == {names["waits"]: {"0": 0}, names["comes"]: {"0": 1}}
        assert found["offsetsBehind"] == {"0": 2}
        text = stage.run("blockers", topic, code=3).stdout
        assert names["waits"] in text
        assert "0 at 1, 2 behind" in text
    task.close(0)


def member(stage: Stage, group: str, topic: str) -> Consumer:
    """Of a group, with its partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": stage.kafka.bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = stage.soon()
    while not consumer.assignment():
        consumer.poll(0.1)
        assert stage.client.clock.now_ms() < deadline
    return consumer


def test_only_what_is_old_is_an_exit_code(stage: Stage, topic: str) -> None:
    """For cron: a live stream always has a transaction that is open."""
    task = task_that_wrote(stage.kafka.bootstrap, f"{stage.prefix}~run-1~g2.w~0", topic, "row")
    young = stage.json("blockers", topic, "--older-than", "1h")
    assert (young["blockers"], young["younger"]) == ([], 1)
    assert "1 younger" in stage.run("blockers", topic, "--older-than", "1h").stdout
    wait_for(lambda: stage.json("list")["open"][0]["ageMs"] > 1)
    assert stage.json("blockers", topic, "--older-than", "1ms", code=3)["younger"] == 0
    task.close(0)


def metrics_of(stage: Stage, topic: str) -> dict[tuple[str, str], float]:
    """By name and whose, as Prometheus' own library reads them."""
    text = stage.run("blockers", topic, "--prometheus").stdout
    families = list(text_string_to_metric_families(text))
    assert {one.type for one in families} == {"gauge"}
    samples = [sample for family in families for sample in family.samples]
    assert {one.labels["topic"] for one in samples} == {topic}
    return {(one.name, one.labels.get("whose", "")): one.value for one in samples}


def test_what_blocks_is_metrics_for_cron(stage: Stage, topic: str) -> None:
    """Every series is there before a transaction is."""
    age, open_ = "kprod_topic_oldest_transaction_age_seconds", "kprod_topic_open_transactions"
    before = metrics_of(stage, topic)
    assert {value for (name, _), value in before.items() if name in (age, open_)} == {0}
    assert {whose for name, whose in before if name == age} == {one.value for one in Whose}
    task = task_that_wrote(stage.kafka.bootstrap, f"{stage.prefix}~run-x~g2.w~0", topic, "row")
    wait_for(lambda: metrics_of(stage, topic)[age, "not in the log"] > 0)
    found = metrics_of(stage, topic)
    assert found.keys() == before.keys()
    assert found[open_, "not in the log"] == 1
    assert found["kprod_topic_held_offsets", ""] == 1
    now = "kprod_topic_checked_timestamp_seconds"
    assert found[now, ""] >= before[now, ""] > 1.7e9
    task.close(0)


def test_metrics_are_no_other_form_of_output(stage: Stage, topic: str) -> None:
    refused = stage.run("blockers", topic, "--prometheus", "--json", code=2)
    assert "--prometheus" in refused.stderr


def test_no_transaction_of_a_live_stream_seems_to_hang(stage: Stage, topic: str) -> None:
    """It ends between the leader's list of producers and the coordinators' of transactions."""
    stop = threading.Event()
    rounds = 0

    def stream() -> None:
        nonlocal rounds
        options = {
            "bootstrap.servers": stage.kafka.bootstrap,
            "transactional.id": f"flink-{stage.prefix}",
        }
        with KafkaProducer(options) as producer:
            producer.init_transactions()
            while not stop.is_set():
                producer.begin_transaction()
                producer.send(ProducerRecord(topic, b"row"))
                producer.commit_transaction()
                rounds += 1

    thread = threading.Thread(target=stream)
    thread.start()
    found = []
    try:
        while rounds < 300:
            found += blockers(stage.client, stage.log, topic, stage.soon())
            assert thread.is_alive(), f"the stream has ended after {rounds} rounds"
    finally:
        stop.set()
        thread.join()
    assert {b.whose for b in found} <= {Whose.OTHER}
    ended = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    assert not [b for b in found if b.found is None or b.found.state in ended]
