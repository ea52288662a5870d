"""A driver whose commit or abort is to fail, and its transactions: for ``failing_commits.py``."""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.network.channel.selectable import NetworkSend
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch, Block
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.codec import Request, read_request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.transaction_coordinator import Transaction
from tests.fakes.simulated_network import SimulatedNetwork
from tests.transactions.committing_world import LOG_TOPIC, CommittingWorld

KEY = "p~name"
MINE = ("mine0", "mine1")
_LENGTH = 4


class Failing:
    """One key with one driver, which commits batch 0 of ``numbering``."""

    def __init__(self, world: CommittingWorld) -> None:
        self.world = world
        self.control = world.cluster.control
        self.driver = world.driver()
        self.numbering = Numbering.MICRO_BATCHES

    def owner(self, run: str = "run", driver: ExactlyOnceDriver | None = None) -> Owner:
        """As planned now."""
        state = (driver or self.driver).plan(KEY)
        return Owner(KEY, run, "query", state.generation, self.numbering)

    def batch(self, *values: str, number: int = 0, run: str = "run", token: str = "") -> Batch:
        """Written by one task for each of ``values``."""
        prepared = tuple(
            self.world.prepared(f"{KEY}~{run}~b{number}{value}~{n}", value)
            for n, value in enumerate(values)
        )
        block = Block(token) if token else None
        size = sum(map(len, values))
        return Batch(number, prepared, Payload(len(values), size, "t"), block=block)

    def commit_other(self, value: str, number: int = 0, run: str = "run") -> None:
        """A batch that is committed whole, by another driver."""
        with self.world.driver() as driver:
            owner = self.owner(run, driver)
            batch = self.batch(value, number=number, run=run)
            assert driver.commit(owner, batch) is Commit.COMMITTED

    def end_one(self, batch: Batch, nth: int = 0, *, commit: bool = False) -> None:
        """By its coordinator, for another client."""
        one = batch.transactions[nth]
        found = self.world.cluster.transactions.transactions[one.transactional_id]
        self.world.cluster.transactions.end(
            one.transactional_id,
            (found.producer_id, found.epoch),
            commit=commit,
            version=one.transaction_version if one.transaction_version == 2 else 0,
            now=self.world.cluster.now,
        )

    def when_decided(self, then: Callable[[], None]) -> None:
        """Have ``then`` happen when a write of the log is committed, once."""
        done: list[bool] = []

        def decided(transaction: Transaction, commit: bool) -> None:
            if transaction.transactional_id == log_id(KEY) and commit and not done:
                done.append(True)
                then()

        self.world.cluster.on_decided = decided

    def before_send(self, fits: Callable[[Request], bool], then: Callable[[], None]) -> None:
        """Have ``then`` happen before the driver sends the first request that ``fits``."""
        done: list[Request] = []
        for network in self.world.networks:
            self._before_send(network, fits, then, done)

    @staticmethod
    def _before_send(
        network: SimulatedNetwork,
        fits: Callable[[Request], bool],
        then: Callable[[], None],
        done: list[Request],
    ) -> None:
        truly_send = network.send

        def sends(send: NetworkSend) -> None:
            request = read_request(b"".join(bytes(buffer) for buffer in send.buffers)[_LENGTH:])
            if not done and fits(request):
                done.append(request)
                then()
            truly_send(send)

        network.send = sends

    def write_log(self, value: bytes) -> None:
        """In place of the key's state, by a client with the log's own id."""
        with self.world.client() as client:
            deadline = client.deadline()
            session = CommitLog(client, LOG_TOPIC).open(KEY, deadline)
            session._writer.commit(lambda _: {KEY.encode(): value}, deadline, lambda _: None)

    def shut_out(self) -> None:
        """Others open the log before each write of it."""
        fenced = ErrorCode.INVALID_PRODUCER_EPOCH
        self.control.answer(ApiKey.PRODUCE, fenced, FOREVER, topic=LOG_TOPIC)


def of_log(request: Request) -> bool:
    return bool(request.body.transactional_id == log_id(KEY))


def of_data(request: Request) -> bool:
    return not of_log(request)


def opens_log(request: Request) -> bool:
    return request.api == ApiKey.INIT_PRODUCER_ID and of_log(request)
