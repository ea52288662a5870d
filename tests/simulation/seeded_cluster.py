"""The fake cluster with faults of its own, by a seed: what brokers do to a producer.

Leaders move, brokers stop and come back, replicas are missing before or after an append, the
coordinator is loading or elsewhere, answers ask for silence. ``heal`` ends all of it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster import FakeCluster, FakeConnection
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import Control, Fault, Kind
from tests.fakes.fake_cluster.outcome import Outcome
from tests.fakes.fake_cluster.partition_log import PartitionLog

NODES = 3


@dataclass(frozen=True)
class Sick:
    """A partition that brokers do not append to in this time: a retriable error in its place."""

    tp: TopicPartition
    from_ms: int
    to_ms: int
    code: ErrorCode


@dataclass(frozen=True)
class ClusterFaults:
    """Probabilities per request, or per partition and request."""

    work_ms: int = 0
    stall: float = 0.0
    leader_moves: float = 0.0
    broker_stops: float = 0.0
    not_leader: float = 0.0
    not_enough_replicas: float = 0.0
    not_enough_after_append: float = 0.0
    throttle: float = 0.0
    metadata_error: float = 0.0
    #: An answer of the coordinator that says: later, or elsewhere.
    coordinator_error: float = 0.0
    coordinator_moves: float = 0.0
    #: A change of a transaction is being written for up to so long.
    append_ms: int = 0
    #: A move of a coordinator takes up to so long, twice: nobody is it, then it loads.
    failover_ms: int = 0
    #: A broker loses its controller for seconds, and goes on answering.
    cut_off: float = 0.0
    #: A request of the transactional calls is on its way for seconds.
    held: float = 0.0
    #: Followers of a partition fall behind for seconds (min.insync.replicas is 2 then).
    under_replicated: float = 0.0
    #: A reader's question that is to be asked again.
    reader_error: float = 0.0
    restart: float = 0.0
    #: An answer that no retry mends.
    refused: float = 0.0
    #: Nobody listens there, though it leads what it leads.
    dead_node: int = 0


_COORDINATOR_ERRORS: Mapping[int, tuple[ErrorCode, ...]] = {
    ApiKey.FIND_COORDINATOR: (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
    ApiKey.INIT_PRODUCER_ID: (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
    ),
    ApiKey.END_TXN: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ),
    ApiKey.LIST_TRANSACTIONS: (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,),
}
_READER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.LEADER_NOT_AVAILABLE)
#: Requests that may be on their way for long.
_HELD = frozenset({ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.ADD_PARTITIONS_TO_TXN})


class SeededCluster(FakeCluster):
    """``fired`` counts the faults that a request met."""

    def __init__(
        self,
        topics: Mapping[str, int],
        fate: random.Random,
        faults: ClusterFaults,
        *,
        too_large: Mapping[str, int],
        nodes: int = NODES,
        transaction_version: int = 2,
        versions: Mapping[int, int] | None = None,
        broker_configs: Mapping[str, str] | None = None,
        trace: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(
            nodes,
            random=fate,
            transaction_version=transaction_version,
            versions=versions,
            broker_configs=broker_configs,
        )
        self.faults = faults
        self.sick: Sick | None = None
        self.fired: Counter[str] = Counter()
        self.fate = fate
        self.trace = trace
        self.control = _SeededControl(self)
        self.work_ms = self._work_ms
        self.append_ms = lambda: self._up_to(self.faults.append_ms)
        self.failover_ms = lambda: (
            self._up_to(self.faults.failover_ms),
            self._up_to(self.faults.failover_ms),
        )
        self.throttle_ms = self._throttle_ms
        self._too_large = too_large
        for topic, partitions in topics.items():
            self.have(topic, partitions)

    def have(self, topic: str, partitions: int) -> None:
        """Create ``topic``, or add partitions to it."""
        if topic in self.topics:
            self.add_partitions(topic, partitions)
            return
        limit = self._too_large.get(topic)
        configs = {} if limit is None else {"max.message.bytes": str(limit)}
        self.create_topic(topic, partitions, configs=configs)

    def heal(self) -> None:
        self.faults = ClusterFaults()
        super().heal()

    def connect(self, node_id: int) -> FakeConnection | None:
        return None if node_id == self.faults.dead_node else super().connect(node_id)

    def work(self, node: int, frame: bytes, now: int) -> Outcome:
        self._happen(now)
        if node in self.down:
            return Outcome()  # its connections are closed, this one with them
        return super().work(node, frame, now)

    def may(self, name: str, probability: float) -> bool:
        if probability <= 0 or self.fate.random() >= probability:
            return False
        self.fired[name] += 1
        return True

    def _happen(self, now: int) -> None:
        faults, fate, nodes = self.faults, self.fate, len(self.brokers)
        for tp, log in self.logs.items():
            if self.may("leader moves", faults.leader_moves):
                able = [node for node in log.replicas if node not in self.down]
                if able:
                    self.move_leader(tp, fate.choice(able))
            if self.may("restart", faults.restart):
                log.restart()
            if self.may("under-replicated", faults.under_replicated):
                log.min_isr = 2
                log.isr = {log.leader}
                self.at(now + fate.randint(10, 8_000), lambda log=log: self._caught_up(log))
        if self.may("coordinator moves", faults.coordinator_moves):
            for key in self.transactions.transactions:
                resigned, loading = self.failover_ms()
                self.move_coordinator(
                    key, fate.randint(1, nodes), resigned_ms=resigned, loading_ms=loading
                )
        if self.may("cut off", faults.cut_off):
            node = fate.randint(1, nodes)
            if not self.down and not self.views:
                self.cut_off(node)
                self.at(now + fate.randint(100, 8_000), lambda: self.rejoin(node))
        if self.may("broker stops", faults.broker_stops):
            node = fate.randint(1, nodes)
            out = self.down | self.views.keys()
            if node not in out and len(out) < nodes - 1:
                self.stop_broker(node)
                self.at(now + fate.randint(10, 5_000), lambda: self.start_broker(node))

    def _caught_up(self, log: PartitionLog) -> None:
        log.isr = set(log.replicas) - self.down - self.views.keys()
        self._elect(log)

    def _up_to(self, ms: int) -> int:
        return self.fate.randint(0, ms) if ms else 0

    def _work_ms(self) -> int:
        if self.may("stall", self.faults.stall):
            return self.fate.randint(100, 20_000)
        return self.fate.randint(0, self.faults.work_ms)

    def _throttle_ms(self) -> int:
        return self.fate.randint(1, 3_000) if self.may("throttle", self.faults.throttle) else 0


class _SeededControl(Control):
    """Lays a fault in the way of a request when fate wants it, where a test has laid none."""

    def __init__(self, cluster: SeededCluster) -> None:
        super().__init__()
        self._cluster = cluster

    def met_by(self, request: Request, node: int) -> list[Fault]:
        laid = super().met_by(request, node)
        if laid:
            return laid
        fault = self._fault(request)
        return [] if fault is None else [fault]

    def _fault(self, request: Request) -> Fault | None:
        cluster, faults = self._cluster, self._cluster.faults
        if request.api == ApiKey.PRODUCE:
            return self._produce(request)
        if request.api in (ApiKey.FETCH, ApiKey.LIST_OFFSETS):
            if cluster.may("reader error", faults.reader_error):
                answer = cluster.fate.choice(_READER_ERRORS)
                return Fault(Kind.ANSWER, request.api, 1, answer=answer)
            return None
        if request.api == ApiKey.METADATA:
            if cluster.may("leader unknown", faults.metadata_error):
                return Fault(Kind.ANSWER, request.api, 1, answer=ErrorCode.LEADER_NOT_AVAILABLE)
        elif request.api in _COORDINATOR_ERRORS and cluster.may(
            "coordinator error", faults.coordinator_error
        ):
            answer = cluster.fate.choice(_COORDINATOR_ERRORS[request.api])
            # It may be told of a change that was written as the coordinator moved.
            late = answer is ErrorCode.NOT_COORDINATOR and cluster.fate.random() < 0.3
            return Fault(Kind.ANSWER, request.api, 1, answer=answer, processed=late)
        return None

    @property
    def may_hold(self) -> bool:
        return self._cluster.faults.held > 0 or super().may_hold

    def held_by(self, request: Request, node: int) -> Fault | None:
        laid = super().held_by(request, node)
        cluster = self._cluster
        if laid is not None or request.api not in _HELD:
            return laid
        if not cluster.may("held", cluster.faults.held):
            return None
        ms = cluster.fate.choice((50, 1_000, 6_000, 40_000))
        return Fault(Kind.HOLD, request.api, 1, delay_ms=ms)

    def _meets(self, request: Request, sick: Sick) -> bool:
        pieces = {
            TopicPartition(str(topic.name), int(piece.index))
            for topic in request.body.topic_data
            for piece in topic.partition_data
        }
        return sick.tp in pieces and sick.from_ms <= self._cluster.now < sick.to_ms

    def _produce(self, request: Request) -> Fault | None:
        """For one of the request's partitions; acks=0 has no answer to be wrong."""
        if request.body.acks == 0:
            return None
        cluster, faults = self._cluster, self._cluster.faults
        if cluster.sick is not None and self._meets(request, cluster.sick):
            cluster.fired["sick partition"] += 1
            sick = cluster.sick
            return Fault(
                Kind.ANSWER,
                request.api,
                1,
                topic=sick.tp.topic,
                partition=sick.tp.partition,
                answer=sick.code,
            )
        topic = cluster.fate.choice(request.body.topic_data)
        piece = cluster.fate.choice(topic.partition_data)
        tp = TopicPartition(str(topic.name), int(piece.index))
        answer, processed = None, False
        if cluster.may("not leader", faults.not_leader):
            answer = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif cluster.may("not enough replicas", faults.not_enough_replicas):
            answer = ErrorCode.NOT_ENOUGH_REPLICAS
        elif cluster.may("not enough after append", faults.not_enough_after_append):
            # (Or it was appended in vain: it may have been refused for what it is.)
            answer, processed = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True
        elif cluster.may("refused", faults.refused):
            answer = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if answer is None:
            return None
        cluster.trace(f"{tp} is answered {answer.name}{' after all' if processed else ''}")
        return Fault(
            Kind.ANSWER,
            request.api,
            1,
            topic=tp.topic,
            partition=tp.partition,
            answer=answer,
            processed=processed,
        )
