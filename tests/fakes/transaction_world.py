"""A transactional producer's sender over a mock client: both versions of transactions.

Answers are prepared in the order of the requests; node 2 coordinates.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import IncompleteBatches
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.producer.transaction.transaction_states import State
from spark_kafka_sink.producer.transaction.txn_requests import TransactionalResult, TxnRequestKind
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
)
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest
from spark_kafka_sink.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
)
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.produce import PartitionProduceResponse, ProduceRequest
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from tests.fakes.clock import FakeClock
from tests.fakes.kafka_messages import add_response, end_response, find_response, init_response
from tests.fakes.sender_world import NODE2, PRODUCER_ID, TP0, SenderWorld

TRANSACTIONAL_ID = "orders"
#: In both versions of the transaction protocol.
BOTH = pytest.mark.parametrize("version", [1, 2])
#: A configuration whose batches expire soon.
SHORT = {"delivery_timeout_ms": 1_000, "request_timeout_ms": 600, "linger_ms": 0}
BACKOFF = 130  # the longest that retry.backoff.ms (100, without growth) becomes

_NAMES = {
    FindCoordinatorRequest: "find",
    InitProducerIdRequest: "init",
    AddPartitionsToTxnRequest: "add",
    EndTxnRequest: "end",
    ProduceRequest: "produce",
}


def api_versions(version: int, *, features_epoch: int = 1, init: int = 5) -> NodeApiVersions:
    """What a broker says whose cluster writes transactions of ``version``."""
    return NodeApiVersions(
        {
            ApiKey.INIT_PRODUCER_ID: VersionRange(0, init),
            ApiKey.PRODUCE: VersionRange(0, 12),
            ApiKey.END_TXN: VersionRange(0, 5),
        },
        {"transaction.version": version},
        features_epoch,
    )


def is_completed(result: TransactionalResult) -> bool:
    """Without a wait, which would count as the caller's."""
    return result._completed


def new_manager(
    transactional_id: str | None = None,
    incomplete: IncompleteBatches | None = None,
    lifecycle: Lifecycle | None = None,
) -> TransactionManager:
    """Without a sender."""
    return TransactionManager(
        lifecycle or Lifecycle(),
        IncompleteBatches() if incomplete is None else incomplete,
        lambda: None,
        transactional_id=transactional_id,
    )


def initialized_manager(incomplete: IncompleteBatches | None = None) -> TransactionManager:
    """READY without a sender, with producer id 7 and epoch 0: what one guard alone holds back."""
    manager = new_manager(TRANSACTIONAL_ID, incomplete)
    result = manager.initialize_transactions()
    request, _ = manager.requests.next_request(0)
    assert request is not None
    assert request.kind is TxnRequestKind.INIT_PRODUCER_ID
    manager.requests.build(request)
    body = init_response(ErrorCode.NONE, 7, 0)
    manager.requests.handle_response(request, body, "here")
    result.await_(FakeClock(), NEVER)
    return manager


class TransactionWorld(SenderWorld):
    """``manager`` is transactional. ``epoch`` is what the coordinator gave last."""

    manager: TransactionManager

    def __init__(
        self,
        version: int = 2,
        *,
        init: int = 5,
        begun: bool = False,
        written: bool = False,
        **options: object,
    ) -> None:
        """``begun``: in a transaction; ``written``: and one record of it is acknowledged."""
        super().__init__(with_id=False, transactional_id=TRANSACTIONAL_ID, **options)  # type: ignore[arg-type]
        self.version = version
        self.epoch = -1
        self.set_version(version, init=init)
        if begun or written:
            self.begin()
        if written:
            self.write()

    def set_version(self, version: int, *, features_epoch: int = 1, init: int = 5) -> None:
        for node_id in (1, 2):
            self.client.versions[node_id] = api_versions(
                version, features_epoch=features_epoch, init=init
            )

    # -- answers --

    def find(self, error: ErrorCode = ErrorCode.NONE, node: Node = NODE2, **more: object) -> None:
        body = find_response(TRANSACTIONAL_ID, error, node, "the broker's words")
        self.client.prepare(FindCoordinatorRequest, body, **more)  # type: ignore[arg-type]

    def init(self, error: ErrorCode = ErrorCode.NONE, **more: object) -> None:
        if error is ErrorCode.NONE:
            self.epoch += 1
            body = init_response(error, PRODUCER_ID, self.epoch)
        else:
            body = init_response(error, -1, -1)
        self.client.prepare(InitProducerIdRequest, body, **more)  # type: ignore[arg-type]

    def add(
        self,
        *tps: TopicPartition,
        error: ErrorCode = ErrorCode.NONE,
        errors: dict[TopicPartition, ErrorCode] | None = None,
        **more: object,
    ) -> None:
        body = add_response(errors or dict.fromkeys(tps or (TP0,), error))
        self.client.prepare(AddPartitionsToTxnRequest, body, **more)  # type: ignore[arg-type]

    def end(self, error: ErrorCode = ErrorCode.NONE, **more: object) -> None:
        body = end_response(error)
        if error is ErrorCode.NONE and self.manager._identity.transaction.version >= 2:
            self.epoch += 1
            body = end_response(error, PRODUCER_ID, self.epoch)
        self.client.prepare(EndTxnRequest, body, **more)  # type: ignore[arg-type]

    def acknowledge_all(self, tps: tuple[TopicPartition, ...], offset: int) -> None:
        """One answer for the batches of several partitions."""
        self.prepare(*(PartitionProduceResponse(tp, ErrorCode.NONE, offset) for tp in tps))

    def cut(self, request: type, **more: object) -> None:
        """The answer to ``request`` is a disconnect."""
        self.client.prepare(request, disconnected=True, **more)  # type: ignore[arg-type]

    # -- steps --

    def initialize(self) -> None:
        """READY, and nothing of how it came there in ``requests``."""
        result = self.manager.initialize_transactions()
        self.find()
        self.init()
        self.round(4)
        self.check_done(result)
        self.client.requests.clear()

    def begin(self) -> None:
        """IN_TRANSACTION, for the first time."""
        self.initialize()
        self.manager.begin_transaction()

    def begin_and_write(self) -> None:
        """IN_TRANSACTION, for the first time, with a record that is acknowledged."""
        self.begin()
        self.write()

    def send(self, tp: TopicPartition = TP0, records: int = 1) -> ProducerBatch:
        """As the facade does: append, then tell the partition."""
        self.manager.ensure_in_transaction()
        batch = self.append(tp, records)
        self.manager.maybe_add_partition(tp)
        return batch

    def write(self, tp: TopicPartition = TP0, offset: int = 0) -> ProducerBatch:
        """A record is sent and acknowledged."""
        batch = self.send(tp)
        if (
            self.manager._identity.transaction.version < 2
            and tp not in self.manager._identity.transaction.partitions
        ):
            self.add(tp)
            self.round()
        self.acknowledge(tp, offset)
        self.round(3)
        assert batch.is_done
        assert batch.error is None
        return batch

    def finish(self, result: TransactionalResult) -> None:
        """Rounds until ``result`` is there, with time for every backoff."""
        for _ in range(20):
            if is_completed(result):
                return
            self.round(1, ms=BACKOFF)
        raise AssertionError(f"{result.operation} never ends; state {self.manager.state}")

    def await_(self, result: TransactionalResult) -> None:
        """As the application: wait, then see the error."""
        self.finish(result)
        result.await_(self.clock, NEVER)

    def commit(self) -> None:
        self.end()
        self.await_(self.manager.begin_commit())

    def abort(self) -> None:
        self.end()
        self.await_(self.manager.begin_abort())

    def check_failed(self, result: TransactionalResult, kind: type[KafkaError]) -> None:
        """A caller that waits for ``result`` sees an error of this class."""
        with pytest.raises(kind):
            result.await_(self.clock, NEVER)

    def check_done(self, result: TransactionalResult) -> None:
        assert is_completed(result)
        result.await_(self.clock, NEVER)

    # -- what it looks at --

    @property
    def asked(self) -> list[str]:
        """The kinds of all requests, in order."""
        return [_NAMES[type(r.request)] for r in self.client.requests]

    @property
    def state(self) -> State:
        return self.manager.state
