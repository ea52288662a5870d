"""Two brokers behind a KafkaClient, with partition logs and every fault that a seed can bring.

Answers come in order on each connection, late, or not at all; a connection may die with requests
that are still worked on afterwards; leaders move, brokers restart, replicas are missing.
"""

from __future__ import annotations

import random
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.network.client_request import ClientRequest, ClientResponse
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.partition_sequences import Answer
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.protocol.messages import InitProducerIdRequest
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from spark_kafka_sink.protocol.responses import InitProducerIdResponse
from tests.fakes.clock import FakeClock
from tests.fakes.mock_client import MockClient
from tests.fakes.partition_log import PartitionLog

#: A batch of more records is answered MESSAGE_TOO_LARGE.
TOO_LARGE = 4
_COUNT = struct.Struct(">i")
_COUNT_AT = 57
_BASE_SEQUENCE_AT = 53


@dataclass(eq=False)
class _OnTheWire:
    request: ClientRequest
    sent_ms: int
    body: object | None = None


class SimulatedBrokers(MockClient):
    """Drives itself: every poll lets time pass and some things happen. ``calm`` heals all."""

    def __init__(self, clock: FakeClock, metadata: Metadata, cluster: Cluster, seed: int) -> None:
        super().__init__(clock, metadata)
        self.calm = False
        self.logs = {info.tp: PartitionLog() for infos in cluster.topics.values() for info in infos}
        self.leaders = dict.fromkeys(self.logs, -1)
        self.epochs = dict.fromkeys(self.logs, 1)
        self.faults: dict[str, int] = {}
        self._fate = random.Random(seed)
        self._wires: dict[int, deque[_OnTheWire]] = {1: deque(), 2: deque()}
        self._ghosts: list[ProduceRequest] = []
        self._topic = next(iter(cluster.topics))

    def _may(self, name: str, probability: float) -> bool:
        if self.calm or self._fate.random() >= probability:
            return False
        self.faults[name] = self.faults.get(name, 0) + 1
        return True

    # -- KafkaClient --

    def send(self, request: ClientRequest, now: int) -> None:
        assert self.in_flight_request_count(request.destination) < self._max_in_flight
        self.requests.append(request)
        self._wires[request.destination].append(_OnTheWire(request, now))

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        return sum(len(w) for n, w in self._wires.items() if node_id in (None, n))

    def poll(self, timeout_ms: int, now: int) -> Sequence[ClientResponse]:
        now = self._clock.advance(min(timeout_ms, self._fate.choice((0, 1, 5, 40))))
        self._happen()
        self._answer_metadata(now)
        responses: list[ClientResponse] = []
        for node, wire in self._wires.items():
            if self._may("cut", 0.03):
                dead = list(wire)
                wire.clear()
                for lost in dead:
                    if lost.body is None and isinstance(lost.request.request, ProduceRequest):
                        self._ghosts.append(lost.request.request)
                    responses.append(self._response(lost, now, lost=True))
                continue
            for waiting in wire:
                if waiting.body is None and (self.calm or self._fate.random() < 0.5):
                    waiting.body = self._process(waiting.request, node)
                if waiting.body is None:
                    break  # a broker takes one request of a connection at a time
            while wire and wire[0].body is not None and (self.calm or self._fate.random() < 0.5):
                responses.append(self._response(wire.popleft(), now))
        for response in responses:
            response.complete()
        return responses

    @staticmethod
    def _response(sent: _OnTheWire, now: int, *, lost: bool = False) -> ClientResponse:
        body = None if lost else sent.body
        return ClientResponse(sent.request, 12, sent.sent_ms, now, body, disconnected=lost)

    # -- the cluster --

    def _happen(self) -> None:
        for tp in self.logs:
            if self.calm or self._may("leader moves", 0.01) or self.leaders[tp] < 0:
                leader = 1 + (tp.partition + (not self.calm and self._fate.random() < 0.5)) % 2
                if leader != self.leaders[tp]:
                    self.leaders[tp] = leader
                    self.epochs[tp] += 1
            if self._may("restart", 0.01):
                self.logs[tp].restart()
        if self._ghosts and self._may("a dead connection's request is worked on", 0.3):
            ghost = self._ghosts.pop(self._fate.randrange(len(self._ghosts)))
            for piece in ghost.data:
                self._judge(piece.tp, self.leaders[piece.tp], b"".join(piece.buffers))

    def _answer_metadata(self, now: int) -> None:
        from tests.fakes.sender_world import metadata_answer

        if self._metadata.time_to_next_update(now) == 0:
            _, token = self._metadata.new_request(now)
            if self._may("metadata is lost", 0.1):
                self._metadata.failed_update(now, None)
                return
            leaders = [self.leaders[tp] for tp in sorted(self.logs)]
            answer = metadata_answer(leaders, max(self.epochs.values()), self._topic)
            self._metadata.update(token, answer, now)

    def _process(self, request: ClientRequest, node: int) -> object:
        body = request.request
        if isinstance(body, InitProducerIdRequest):
            return InitProducerIdResponse(ErrorCode.NONE, 4711, 0)
        assert isinstance(body, ProduceRequest)
        answers = []
        for piece in body.data:
            code, offset = self._judge(piece.tp, node, b"".join(piece.buffers))
            leader = (self.leaders[piece.tp], max(self.epochs.values()))
            hint = leader if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and leader[0] > 0 else None
            answers.append(PartitionProduceResponse(piece.tp, code, offset, leader=hint))
        return ProduceResponse(tuple(answers))

    def _judge(self, tp: TopicPartition, node: int, data: bytes) -> tuple[ErrorCode, int]:
        if node != self.leaders[tp] or self._may("not leader", 0.02):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        if self._may("not enough replicas", 0.02):
            return ErrorCode.NOT_ENOUGH_REPLICAS, -1
        (count,) = _COUNT.unpack_from(data, _COUNT_AT)
        (first,) = _COUNT.unpack_from(data, _BASE_SEQUENCE_AT)
        if count > TOO_LARGE:
            return ErrorCode.MESSAGE_TOO_LARGE, -1
        answer, offset = self.logs[tp].append(first, count)
        if answer is Answer.OUT_OF_ORDER:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        if self._may("not enough replicas after append", 0.03):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1
        return ErrorCode.NONE, offset
