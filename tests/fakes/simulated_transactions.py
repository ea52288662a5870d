"""Simulated brokers with a transaction coordinator of either version, and logs with transactions.

The coordinator keeps the tables of Kafka's TransactionCoordinator for one transactional id; markers
are written some time after its answers; it moves, loads, and works on the requests of connections
that are long dead. Logs know epochs, sequences and markers. With ``verifies`` off, a log takes a
batch of version 1 without asking the coordinator, as brokers before 3.6 do.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.network.client_request import ClientRequest, ClientResponse
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
)
from spark_kafka_sink.protocol.produce import ProduceRequest
from spark_kafka_sink.protocol.responses import (
    AddPartitionsToTxnResponse,
    Coordinator,
    EndTxnResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
)
from tests.fakes.clock import FakeClock
from tests.fakes.sender_world import NODE1, NODE2
from tests.fakes.simulated_brokers import TOO_LARGE, SimulatedBrokers
from tests.fakes.transaction_world import api_versions

PRODUCER_ID = 4711
_EPOCH_SEQUENCE = struct.Struct(">hi")
_EPOCH_AT = 51
_COUNT = struct.Struct(">i")
_COUNT_AT = 57

#: A record is named by its epoch and sequence.
Record = tuple[int, int]


@dataclass
class TransactionLog:
    """``committed`` and ``dropped`` records, and the ``open`` ones, in the order of offsets."""

    epoch: int = -1
    last: int = -1
    window: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=5))
    open: list[Record] = field(default_factory=list)
    committed: list[Record] = field(default_factory=list)
    dropped: list[Record] = field(default_factory=list)

    def judge(self, epoch: int, first: int, count: int) -> ErrorCode | None:
        """None: to be appended."""
        if epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch == self.epoch and (first, first + count - 1) in self.window:
            return ErrorCode.NONE
        known = self.epoch >= 0
        expected = self.last + 1 if epoch == self.epoch else 0
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if known and first != expected else None

    def append(self, epoch: int, first: int, count: int) -> None:
        if epoch != self.epoch:
            self.window.clear()
        self.epoch, self.last = epoch, first + count - 1
        self.window.append((first, self.last))
        self.open += [(epoch, sequence) for sequence in range(first, first + count)]

    def mark(self, epoch: int, *, commit: bool) -> None:
        (self.committed if commit else self.dropped).extend(self.open)
        self.open.clear()
        if epoch > self.epoch:
            self.epoch, self.last = epoch, -1
            self.window.clear()

    def restart(self) -> None:
        while len(self.window) > 1:
            self.window.popleft()


class TransactionCoordinator:
    """The state of one transactional id; see facts of ``TransactionCoordinator.endTransaction``."""

    def __init__(self, logs: dict[TopicPartition, TransactionLog]) -> None:
        self._logs = logs
        self.state = "none"
        self.epoch = -1
        self._last_epoch = -1
        self._marker_epoch = -1
        self.partitions: set[TopicPartition] = set()

    def init(self, producer_id: int, epoch: int) -> tuple[ErrorCode, int]:
        if self.state == "none":
            self.state, self.epoch = "empty", 0
            return ErrorCode.NONE, 0
        if producer_id >= 0 and epoch not in (self.epoch, self._last_epoch):
            return ErrorCode.PRODUCER_FENCED, -1
        if self.state.startswith("prepare"):
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1
        if self.state == "ongoing":
            self._prepare(commit=False, bump=True)
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1
        if producer_id < 0 or epoch == self.epoch:
            self._last_epoch, self.epoch = self.epoch, self.epoch + 1
            self.state = "empty"
        return ErrorCode.NONE, self.epoch

    def add(self, epoch: int, tps: Sequence[TopicPartition]) -> ErrorCode:
        if epoch != self.epoch:
            return ErrorCode.PRODUCER_FENCED
        if self.state.startswith("prepare"):
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if self.state != "ongoing":
            self.state, self.partitions = "ongoing", set()
        self.partitions.update(tps)
        return ErrorCode.NONE

    def end(self, epoch: int, version: int, *, commit: bool) -> ErrorCode:
        done = "commit" if commit else "abort"
        retried = version >= 2 and epoch == self.epoch - 1
        if epoch != self.epoch and not (retried and self.state not in ("ongoing", "empty")):
            return ErrorCode.PRODUCER_FENCED
        if self.state == "ongoing":
            self._prepare(commit=commit, bump=version >= 2)
            return ErrorCode.NONE
        if version >= 2 and epoch == self.epoch:  # never opened
            if self.state.startswith("prepare"):  # the one before is still being ended
                return ErrorCode.CONCURRENT_TRANSACTIONS
            if commit:
                return ErrorCode.INVALID_TXN_STATE
            self._last_epoch, self.epoch, self.state = self.epoch, self.epoch + 1, "complete abort"
            return ErrorCode.NONE
        if self.state == f"prepare {done}":
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return ErrorCode.NONE if self.state == f"complete {done}" else ErrorCode.INVALID_TXN_STATE

    def _prepare(self, *, commit: bool, bump: bool) -> None:
        self.state = "prepare commit" if commit else "prepare abort"
        if bump:
            self._last_epoch, self.epoch = self.epoch, self.epoch + 1
        self._marker_epoch = self.epoch

    def write_marker(self) -> None:
        """One of the markers that are still owed."""
        if not self.state.startswith("prepare"):
            return
        commit = self.state == "prepare commit"
        if self.partitions:
            self._logs[self.partitions.pop()].mark(self._marker_epoch, commit=commit)
        if not self.partitions:
            self.state = "complete commit" if commit else "complete abort"


class SimulatedTransactions(SimulatedBrokers):
    """``version`` is the cluster's. ``logs`` is not used; ``transactions`` are the logs here."""

    def __init__(
        self,
        clock: FakeClock,
        metadata: Metadata,
        cluster: Cluster,
        seed: int,
        version: int,
        *,
        verifies: bool,
    ) -> None:
        super().__init__(clock, metadata, cluster, seed)
        self.version = version
        self.verifies = verifies
        self.transactions = {tp: TransactionLog() for tp in self.logs}
        self.coordinator = TransactionCoordinator(self.transactions)
        self.coordinates = 1
        self.late: list[ClientRequest] = []
        for node_id in (1, 2):
            self.versions[node_id] = api_versions(version)

    def poll(self, timeout_ms: int, now: int) -> Sequence[ClientResponse]:
        responses = super().poll(timeout_ms, now)
        for response in responses:
            request = response.request
            if not response.disconnected or isinstance(request.request, ProduceRequest):
                continue
            # An InitProducerId that comes so late would abort whatever is open by then; ids that
            # no two producers share are the answer to that, not this producer.
            if not isinstance(request.request, InitProducerIdRequest) and self._may("late", 0.3):
                self.late.append(request)
        return responses

    def _may(self, name: str, probability: float) -> bool:
        # What is late must be so late that its transaction is over.
        late = name.startswith("a dead connection's")
        return super()._may(name, 0.02 if late else probability)

    def work_on_everything_late(self) -> None:
        """What dead connections still held, data and requests."""
        for ghost in self._ghosts:
            for piece in ghost.data:
                self._judge(piece.tp, self.leaders[piece.tp], b"".join(piece.buffers))
        for request in self.late:
            self._process(request, self.coordinates)
        self._ghosts.clear()
        self.late.clear()
        while self.coordinator.state.startswith("prepare"):
            self.coordinator.write_marker()

    def _happen(self) -> None:
        super()._happen()
        if self.calm or self._fate.random() < 0.5:
            self.coordinator.write_marker()
        if self._may("coordinator moves", 0.02):
            self.coordinates = 3 - self.coordinates
        for log in self.transactions.values():
            if self._may("restart", 0.01):
                log.restart()
        if self.late and self._may("a dead connection's end is worked on", 0.3):
            request = self.late.pop(self._fate.randrange(len(self.late)))
            self._process(request, self.coordinates)

    def _process(self, request: ClientRequest, node: int) -> object:
        body = request.request
        if isinstance(body, ProduceRequest):
            return super()._process(request, node)
        code = ErrorCode.NONE
        if isinstance(body, FindCoordinatorRequest):
            found = Coordinator(code, (NODE1, NODE2)[self.coordinates - 1])
            if self._may("no coordinator", 0.1):
                found = Coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
            return FindCoordinatorResponse({body.transactional_ids[0]: found})
        if node != self.coordinates:
            code = ErrorCode.NOT_COORDINATOR
        elif self._may("coordinator loads", 0.05):
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if isinstance(body, InitProducerIdRequest):
            epoch = -1
            if code is ErrorCode.NONE:
                code, epoch = self.coordinator.init(body.producer_id, body.producer_epoch)
            return InitProducerIdResponse(code, PRODUCER_ID if epoch >= 0 else -1, epoch)
        if isinstance(body, AddPartitionsToTxnRequest):
            assert self.version == 1, "version 2 adds no partitions"
            if code is ErrorCode.NONE:
                code = self.coordinator.add(body.producer_epoch, body.partitions)
            return AddPartitionsToTxnResponse(dict.fromkeys(body.partitions, code))
        assert isinstance(body, EndTxnRequest)
        assert body.transaction_version == self.version
        if code is ErrorCode.NONE:
            code = self.coordinator.end(body.producer_epoch, self.version, commit=body.committed)
        if code is ErrorCode.NONE and self.version >= 2:
            return EndTxnResponse(code, PRODUCER_ID, self.coordinator.epoch)
        return EndTxnResponse(code)

    def _judge(self, tp: TopicPartition, node: int, data: bytes) -> tuple[ErrorCode, int]:
        if node != self.leaders[tp] or self._may("not leader", 0.02):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if self._may("not enough replicas", 0.02):
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        (count,) = _COUNT.unpack_from(data, _COUNT_AT)
        epoch, first = _EPOCH_SEQUENCE.unpack_from(data, _EPOCH_AT)
        if count > TOO_LARGE:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        if self._may("refused for good", 0.01):
            return ErrorCode.INVALID_RECORD, -1
        log = self.transactions[tp]
        code = log.judge(epoch, first, count)
        if code is not None:
            return code, -1
        if not log.open or epoch != log.epoch:
            code = self._verify(tp, epoch)
            if code is not ErrorCode.NONE:
                return code, -1
        log.append(epoch, first, count)
        if self._may("not enough replicas after append", 0.03):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1
        return ErrorCode.NONE, -1

    def _verify(self, tp: TopicPartition, epoch: int) -> ErrorCode:
        """Is the partition in the transaction? Version 2 puts it there."""
        coordinator = self.coordinator
        if self.version >= 2:
            code = coordinator.add(epoch, [tp])
            return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
        known = coordinator.state == "ongoing" and tp in coordinator.partitions
        if self.verifies and not (known and epoch == coordinator.epoch):
            return ErrorCode.INVALID_TXN_STATE
        return ErrorCode.NONE
