"""What is tried on each broker, in a process of its own: ``python -m tests.other_brokers.scenarios
BOOTSTRAP NAME...`` prints a line of JSON for each.

A scenario returns a word or two for a cell of the table, or raises; an error of ours with a code
becomes its code, as a service may lack what the scenario needs.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import CommitOutcomeUnknownError, KafkaError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import Step, StepState
from spark_kafka_sink.datasource.checks.cluster_checks import check_cluster, check_exactly_once
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Decision, Payload
from spark_kafka_sink.transactions.driver_transactions import TopicRecord, prepare
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.waiting import PATIENCE, with_patience

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK = "ok"
_LOG = "__kprod_commits"
_TASKS = 3
_TIMEOUT_MS = int(20_000 * PATIENCE)
#: A broker's scan for transactions that timed out, six times.
_LATE_S = 60.0 * PATIENCE
_CHECK_MS = int(15_000 * PATIENCE)


def new_topic(bootstrap: str, *, partitions: int = 1) -> str:
    """A topic, made by confluent-kafka, which shares no code with what is tried."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin, name = AdminClient({"bootstrap.servers": bootstrap}), f"compat-{uuid.uuid4().hex[:12]}"
    admin.create_topics([NewTopic(name, partitions, 1)], request_timeout=60)[name].result(60)
    return name


def committed(bootstrap: str, topic: str) -> list[str]:
    """The values that a read_committed consumer finds up to the end, sorted."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    values, deadline = list[str](), time.monotonic() + 60
    try:
        left = set(consumer.list_topics(topic, timeout=60).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in left])
        while left:
            assert time.monotonic() < deadline, f"no end of {topic}, partitions {left}"
            message = consumer.poll(1)
            error = None if message is None else message.error()
            if message is None:
                continue
            if error is None:
                values.append((message.value() or b"").decode())
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    finally:
        consumer.close()
    return sorted(values)


def options_of(bootstrap: str, topic: str, **more: str) -> dict[str, str]:
    """Of a write that gives up after a minute."""
    limits = with_patience({"kafka.max.block.ms": 30_000, "kafka.delivery.timeout.ms": 60_000})
    return {"kafka.bootstrap.servers": bootstrap, "topic": topic} | limits | more


# --- with Spark


@cache
def spark() -> SparkSession:
    """A session of this process."""
    from pyspark.sql import SparkSession

    from spark_kafka_sink import register

    builder = SparkSession.builder.master("local[2]").appName("compat")
    for name, value in (
        ("spark.ui.enabled", "false"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.sql.shuffle.partitions", "2"),
    ):
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    register(session)
    return session


def plain_write(bootstrap: str) -> str:
    """At-least-once, else without idempotence."""
    topic = new_topic(bootstrap, partitions=3)
    rows = spark().range(1000).selectExpr("cast(id as string) value", "cast(id as string) key")

    def save(guarantee: str) -> None:
        options = options_of(bootstrap, topic, deliveryGuarantee=guarantee)
        rows.write.format("kprod").options(**options).mode("append").save()

    how = OK
    try:
        save("at-least-once")
    except Exception as error:
        if "deliveryGuarantee=none" not in str(error):
            raise
        save("none")
        how = "with deliveryGuarantee=none"
    assert committed(bootstrap, topic) == sorted(map(str, range(1000)))
    return how


def stream(bootstrap: str) -> str:
    """Exactly-once, stopped and started again on its checkpoint."""
    topic = new_topic(bootstrap)
    options = options_of(bootstrap, topic, deliveryGuarantee="exactly-once")
    options["transactionalIdPrefix"] = topic
    with tempfile.TemporaryDirectory() as home:
        source, wanted = Path(home, "source"), list[str]()
        source.mkdir()
        for part in range(2):
            lines = [f"{part}-{n}" for n in range(100)]
            Path(source, f"{part}.txt").write_text("\n".join(lines))
            wanted += lines
            rows = spark().readStream.format("text").load(str(source))
            writer = rows.writeStream.format("kprod").options(**options)
            writer = writer.option("checkpointLocation", str(Path(home, "checkpoint")))
            writer.trigger(availableNow=True).start().awaitTermination()
    assert committed(bootstrap, topic) == sorted(wanted)
    return OK


def dead_letters(bootstrap: str) -> str:
    """A row that is too large goes to the queue, which the sink creates."""
    topic = new_topic(bootstrap)
    rows = spark().sql("select explode(array('a', repeat('b', 2000000), 'c')) value")
    queue = f"{topic}-letters"
    options = options_of(bootstrap, topic) | {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": queue,
        "errors.deadletterqueue.topic.replication.factor": "1",
    }
    rows.write.format("kprod").options(**options).mode("append").save()
    assert committed(bootstrap, topic) == ["a", "c"]
    assert len(committed(bootstrap, queue)) == 1
    return OK


# --- the driver's side, without Spark


class Query:
    """What a stream's drivers and tasks do, life after life."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.topic = self.key = new_topic(bootstrap)
        options = options_of(bootstrap, self.topic, deliveryGuarantee="exactly-once")
        options["kafka.transaction.timeout.ms"] = str(_TIMEOUT_MS)
        self.config = parse_sink_config(options).producer

    def driver(self) -> ExactlyOnceDriver:
        return ExactlyOnceDriver(self.config, _LOG)

    def tasks(
        self, driver: ExactlyOnceDriver, run: str, generation: int, what: str
    ) -> tuple[PreparedTransaction, ...]:
        """A transaction of each, with a row."""
        return tuple(
            prepare(
                driver.client,
                str(TransactionalId(self.key, run, f"a{task}", 0, generation)),
                TopicRecord(self.topic, f"{what} {task}".encode(), None, "topic"),
                driver.client.deadline(),
            )
            for task in range(_TASKS)
        )

    def batch(self, number: int) -> Commit:
        """By a new run of the query."""
        run = str(uuid.uuid4())
        with self.driver() as driver:
            state = driver.plan(self.key)
            written = self.tasks(driver, run, state.generation, f"batch {number}")
            owner = Owner(self.key, run, "query", state.generation)
            return driver.commit(owner, Batch(number, written, Payload(_TASKS)))

    def dies(self, number: int, *, decided: bool) -> tuple[PreparedTransaction, ...]:
        """A driver of a process of its own is killed, before its decision or its first EndTxn."""
        processes = multiprocessing.get_context("spawn")
        mine, its = processes.Pipe(duplex=False)
        driver = processes.Process(target=self._killed, args=(number, decided, its))
        driver.start()
        its.close()
        with mine:
            written: tuple[PreparedTransaction, ...] = mine.recv()
        driver.join(60)
        assert driver.exitcode == -signal.SIGKILL, driver.exitcode
        return written

    def _killed(self, number: int, decided: bool, found: Connection) -> None:
        """Its last act is SIGKILL: no connection is closed by it, and no transaction ended."""
        run = str(uuid.uuid4())
        with self.driver() as driver:
            state = driver.plan(self.key)
            written = self.tasks(driver, run, state.generation, f"batch {number}")
            if decided:
                log = CommitLog(driver.client, _LOG).open(self.key, driver.client.deadline())
                taken = log.state.taken_over(run, "query", driver.client.clock.wall_ms())
                decision = Decision(number, written, (Payload(_TASKS),))
                log.write(taken.decided(decision), driver.client.deadline())
            found.send(written)
            os.kill(os.getpid(), signal.SIGKILL)

    def is_open(self, written: tuple[PreparedTransaction, ...]) -> bool:
        with self.driver() as driver:
            ids = [one.transactional_id for one in written]
            found = driver.client.describe(ids, driver.client.deadline()).values()
        return any(one.state is TransactionState.ONGOING for one in found)

    def has(self, *batches: int) -> bool:
        """Whether exactly these are visible, each row once."""
        rows = [f"batch {number} {task}" for number in batches for task in range(_TASKS)]
        return committed(self.bootstrap, self.topic) == sorted(rows)


def killed_driver(bootstrap: str) -> str:
    """Before its decision, and after it: each batch is written once, and a replay is dropped."""
    query = Query(bootstrap)
    assert query.batch(0) is Commit.COMMITTED
    query.dies(1, decided=False)
    assert query.batch(1) is Commit.COMMITTED
    assert query.batch(1) is Commit.ALREADY_DONE
    query.dies(2, decided=True)
    assert query.batch(3) is Commit.COMMITTED, "batch 2 is rolled forward first"
    if query.has(0, 1, 2, 3):
        return OK
    # Without ListTransactions the dead driver's rows hold back those after them.
    deadline = time.monotonic() + _TIMEOUT_MS / 1000 + _LATE_S
    while not query.has(0, 1, 2, 3):
        assert time.monotonic() < deadline, committed(bootstrap, query.topic)
        time.sleep(1)
    return "visible after the timeout"


def after_the_timeout(bootstrap: str) -> str:
    """A driver that died after its decision comes back when its transactions have timed out: the
    next start undoes the batch, and it is written again. KP0610 where that can't be known.
    """
    query = Query(bootstrap)
    written = query.dies(0, decided=True)
    deadline = time.monotonic() + _TIMEOUT_MS / 1000 + _LATE_S + 5
    while query.is_open(written) and time.monotonic() < deadline:
        time.sleep(1)
    never = query.is_open(written)
    hint = None
    try:
        query.batch(0)
    except CommitOutcomeUnknownError as error:
        hint = error.hint or ""
    if hint is None:
        assert query.has(0)
        return OK
    assert query.has()
    assert ("no start resolves the batch" in hint) == never
    return "KP0610 (it never times out)" if never else "KP0610"


def check(bootstrap: str) -> str:
    """``kprod check`` for a default write: the row that is red, or yellow."""
    config = parse_sink_config(options_of(bootstrap, new_topic(bootstrap)))
    return _worst(list(check_cluster(config, timeout_ms=_CHECK_MS)))


def check_of_exactly_once(bootstrap: str) -> str:
    """``kprod check --exactly-once``."""
    options = options_of(bootstrap, new_topic(bootstrap), deliveryGuarantee="exactly-once")
    return _worst(list(check_exactly_once(parse_sink_config(options), timeout_ms=_CHECK_MS)))


def _worst(steps: Sequence[Step]) -> str:
    for state in (StepState.FAILED, StepState.WARNING):
        codes = list(dict.fromkeys(f"{step.code}" for step in steps if step.state is state))
        if codes:
            return f"{'red' if state is StepState.FAILED else 'warns'}: {', '.join(codes)}"
    return OK


#: By the column of the table.
SCENARIOS: Mapping[str, Callable[[str], str]] = {
    "plain write": plain_write,
    "dead letters": dead_letters,
    "stream": stream,
    "killed driver": killed_driver,
    "after the timeout": after_the_timeout,
    "check": check,
    "check --exactly-once": check_of_exactly_once,
}
#: Those that need Spark.
WITH_SPARK = frozenset({"plain write", "dead letters", "stream"})


def cell(scenario: Callable[[str], str], bootstrap: str) -> tuple[str, str]:
    """The word for the table, and the error."""
    try:
        return scenario(bootstrap), ""
    except Exception as error:
        text = error.one_line() if isinstance(error, KafkaError) else f"{error!r}"
        code = re.search(r"\[(KP\d{4})\]", str(error))
        return (code[1] if code else f"failed: {type(error).__name__}"), text


def main() -> None:
    logging.disable(logging.WARNING)
    bootstrap, *names = sys.argv[1:]
    for name in names:
        said, why = cell(SCENARIOS[name], bootstrap)
        print(json.dumps({"scenario": name, "said": said, "why": why[:2000]}), flush=True)


if __name__ == "__main__":
    main()
