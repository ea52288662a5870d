"""Commits of processes that have left the key open, on a real broker: whatever others do to the key
between two micro-batches, each row is there once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.base.errors import CommitError, KafkaError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_key
from tests.real_kafka import RealKafka
from tests.transactions.open_transactions import task_that_wrote, visible
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.timeout(300)]


class Query:
    """A stream with a topic, a key and a commit log of its own."""

    def __init__(self, kafka: RealKafka, drivers: ExitStack) -> None:
        self.kafka = kafka
        self.topic = kafka.unique_topic("query")
        self.log = kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
        self.key = log_key(f"p{uuid.uuid4().hex[:8]}")
        self.config = parse_producer_config({"bootstrap.servers": kafka.bootstrap})
        self._drivers = drivers
        self.planner = self.driver()

    def driver(self) -> ExactlyOnceDriver:
        return self._drivers.enter_context(ExactlyOnceDriver(self.config, self.log))

    def prepare(self, number: int, worker: str = "w") -> tuple[Owner, Batch]:
        """A micro-batch with one row, which is prepared."""
        owner = Owner(self.key, "run", "query", self.planner.plan(self.key).generation)
        id_ = str(TransactionalId(self.key, "run", worker, number % 2, owner.generation))
        with task_that_wrote(self.kafka.bootstrap, id_, self.topic, f"row {number}") as task:
            return owner, Batch(number, (task.prepare(),), digest=f"{number:032}")

    def create_log_again(self) -> None:
        """Deletes the topic of the log and creates it again."""
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        admin.delete_topics([self.log], operation_timeout=60)[self.log].result(60)
        wait_for(lambda: self.log not in admin.list_topics(timeout=60).topics, 60, "no topic")
        self.kafka.create_topic(self.log, 1, {"cleanup.policy": "compact"})

    def shows(self, count: int) -> bool:
        return visible(self.kafka, self.topic, [f"row {number}" for number in range(count)])


@pytest.fixture
def query(kafka: RealKafka) -> Iterator[Query]:
    with ExitStack() as drivers:
        yield Query(kafka, drivers)


def outcome(commit: Callable[[Owner, Batch], Commit], owner: Owner, batch: Batch) -> str:
    try:
        return commit(owner, batch).name
    except KafkaError as error:
        return type(error).__name__


def test_two_processes_that_commit_one_batch_at_once(query: Query) -> None:
    """Each has left the key open, so each may find that the other one has opened it."""
    one, other = query.driver(), query.driver()
    assert one.commit(*query.prepare(0)) is Commit.COMMITTED
    with ThreadPoolExecutor(2) as threads:
        for number in range(1, 5):
            batches = [query.prepare(number, worker) for worker in ("a", "b")]
            ends = [
                threads.submit(outcome, driver.commit, *batch)
                for driver, batch in zip((one, other), batches, strict=True)
            ]
            assert {end.result() for end in ends} <= {"COMMITTED", "ALREADY_DONE"}
    assert query.shows(5)


def test_the_topic_of_the_log_is_created_again(query: Query) -> None:
    """The error is true: the batch is not visible."""
    driver = query.driver()
    for number in range(2):
        assert driver.commit(*query.prepare(number)) is Commit.COMMITTED
    batch = query.prepare(2)
    query.create_log_again()
    with pytest.raises(CommitError, match="has lost the state of"):
        driver.commit(*batch)
    owner, lost = batch
    driver.abort(owner, lost.number, lost.transactions, tasks_may_run=False)
    assert query.shows(2)
