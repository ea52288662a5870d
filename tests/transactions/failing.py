"""A driver whose commit or abort is to fail, and its transactions: for ``failing_commits.py``."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch, Block
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import Scene
from tests.simulation.scene_requests import is_a_logs, opens_a_log
from tests.simulation.spark_world import LOG_TOPIC

KEY = "p~name"
MINE = ("mine0", "mine1")


class Failing:
    """One key with one driver, which commits batch 0 of ``numbering``."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.control = scene.control
        self.run = scene.run("driver")
        self.driver = scene.driver(self.run)
        self.numbering = Numbering.MICRO_BATCHES

    def owner(self, run: str = "run", driver: ExactlyOnceDriver | None = None) -> Owner:
        """As planned now."""
        state = (driver or self.driver).plan(KEY)
        return Owner(KEY, run, "query", state.generation, self.numbering)

    def batch(self, *values: str, number: int = 0, run: str = "run", token: str = "") -> Batch:
        """Written by one task for each of ``values``."""
        prepared = tuple(
            self.scene.prepared(f"{KEY}~{run}~g2.b{number}{value}~{n}", value)
            for n, value in enumerate(values)
        )
        block = Block(token) if token else None
        size = sum(map(len, values))
        return Batch(number, prepared, Payload(len(values), size, "t"), block=block)

    def commit_other(self, value: str, number: int = 0, run: str = "run") -> None:
        """A batch that is committed whole, by another driver."""
        with self.scene.driver() as driver:
            owner = self.owner(run, driver)
            batch = self.batch(value, number=number, run=run)
            assert driver.commit(owner, batch) is Commit.COMMITTED

    def end_one(self, batch: Batch, nth: int = 0, *, commit: bool = False) -> None:
        """By its coordinator, for another client."""
        self.scene.end_elsewhere(batch.transactions[nth], commit=commit)

    def when_decided(self, then: Callable[[], None]) -> None:
        """Have ``then`` happen when a write of the log is committed, once."""
        self.scene.when_decided(KEY, then)

    def before_send(self, fits: Callable[[Request], bool], then: Callable[[], None]) -> None:
        """Have ``then`` happen before the driver sends the first request that ``fits``."""
        self.scene.before_send(self.run, fits, then)

    def loses_the_response(self, then: Callable[[], None]) -> None:
        """The log's EndTxn is done, and each response to it is lost, until the log is opened again.
        ``then`` happens before that.
        """
        is_open = Event()

        def opened() -> None:
            is_open.set()
            then()

        def fits(request: Request) -> bool:
            return is_a_logs(request) and not is_open.is_set()

        lost = self.control.drop(ApiKey.END_TXN, FOREVER, where=fits)
        self.before_send(lambda r: lost.fired > 0 and opens_a_log(r), opened)

    def write_log(self, value: bytes) -> None:
        """In place of the key's state, by a client with the log's own id."""
        with self.scene.client() as client:
            deadline = client.deadline()
            session = CommitLog(client, LOG_TOPIC).open(KEY, deadline)
            session._writer.commit(lambda _: {KEY.encode(): value}, deadline, lambda _: None)

    def shut_out(self) -> None:
        """Others open the log before each write of it."""
        fenced = ErrorCode.INVALID_PRODUCER_EPOCH
        self.control.answer(ApiKey.PRODUCE, fenced, FOREVER, topic=LOG_TOPIC)
