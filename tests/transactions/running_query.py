"""A query whose planning and commits run in processes that are used again, in simulated time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby

from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_key
from tests.simulation.scene import Scene
from tests.simulation.scene_requests import WatchedRequests

KEY = log_key("orders")


@dataclass(frozen=True, slots=True)
class Query:
    """Plans and commits as Spark does, in a process each that is used again."""

    scene: Scene
    watched: WatchedRequests
    planner: ExactlyOnceDriver
    driver: ExactlyOnceDriver
    numbering: Numbering = Numbering.STREAM

    @classmethod
    def of(cls, scene: Scene) -> Query:
        return cls(scene, scene.watch(), scene.driver(), scene.driver())

    def elsewhere(self) -> Query:
        """Its commits in another process from now on."""
        return replace(self, driver=self.scene.driver())

    def owner(self, run: str = "run") -> Owner:
        """As planned now."""
        state = self.planner.plan(KEY)
        return Owner(KEY, run, "query", state.generation, self.numbering)

    def prepare(
        self, number: int, *, topic: str = "t", run: str = "run", **options: object
    ) -> Callable[[], Commit]:
        """The commit of a micro-batch with one row, which is prepared."""
        owner = self.owner(run)
        prepared = self.write(owner, number, topic=topic, **options)
        self.watched.arrived.clear()
        return lambda: self.driver.commit(owner, Batch(number, (prepared,), digest=f"{number:032}"))

    def write(
        self, owner: Owner, number: int, worker: str = "worker", topic: str = "t", **options: object
    ) -> PreparedTransaction:
        """One row of the micro-batch, which a worker of the owner's run has prepared."""
        run = owner.run_id
        id_ = str(TransactionalId(KEY, run, worker, number % 2, owner.generation))
        producer = self.scene.producer(id_, **options)
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, f"row {number}".encode(), partition=0))
        prepared = producer.prepare()
        self.scene.scheduler.sleep(50)
        return prepared

    def commits(self, *numbers: int) -> None:
        for number in numbers:
            assert self.prepare(number)() is Commit.COMMITTED

    def rounds(self) -> list[list[str]]:
        """The requests since, in groups: a group waits for the answers to the group before."""
        groups = groupby(self.watched.arrived, lambda one: one[0])
        return [[name for _, name in group] for _, group in groups]
