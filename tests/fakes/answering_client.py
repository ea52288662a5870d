"""A KafkaClient that answers at once, for a producer with its real network thread.

Unlike ``MockClient`` it blocks in poll until it is woken or has something to answer, and keeps the
logs of its partitions: every Produce request is read record by record and appended, unless
``answer`` is returned instead. It works on the real clock.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.network.client.client_request import ClientRequest, ClientResponse
from spark_kafka_sink.protocol.cluster import Cluster, Node, TopicPartition
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
)
from spark_kafka_sink.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
)
from spark_kafka_sink.protocol.request import Request
from tests.fakes.kafka_messages import init_response
from tests.fakes.mock_client import ConnectedClient, Sent
from tests.fakes.record_reader import RecordBatch, parse_batch

#: ``answer`` returns it to leave a request without an answer.
HOLD = object()


class AnsweringClient(ConnectedClient):
    """``answer(request)`` may return a response body, HOLD, or None for what a broker would do."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._nodes = list(cluster.nodes.values())
        self._changed = threading.Condition()
        self._woken = False
        self._producer_id = 4710
        self.answer: Callable[[Request[object]], object] = lambda request: None
        self.on_wakeup: Callable[[], None] = lambda: None
        self.logs: dict[TopicPartition, list[RecordBatch]] = defaultdict(list)
        self.batch_sizes: dict[TopicPartition, list[int]] = defaultdict(list)
        self.next_offset: dict[TopicPartition, int] = defaultdict(int)
        self.produced = 0

    def values(self, tp: TopicPartition) -> list[bytes | None]:
        return [record.value for batch in self.logs[tp] for record in batch.records]

    def await_produced(self, count: int, real_seconds: float = 60) -> None:
        """Block until ``count`` Produce requests have been sent in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.produced >= count, real_seconds)

    def release(self) -> None:
        """Answer what was held, as a broker does."""
        with self._changed:
            self.answer = lambda request: None
            self._woken = True
            self._changed.notify_all()

    # -- KafkaClient --

    def poll(self, timeout_ms: int, now: int) -> Sequence[ClientResponse]:
        self.on_poll()
        answered = self._answers()
        if not answered:
            with self._changed:
                self._changed.wait_for(lambda: self._woken, min(timeout_ms / 1000, 60))
                self._woken = False
            answered = self._answers()
        for response in answered:
            response.complete()
        return answered

    def _answers(self) -> list[ClientResponse]:
        answered = []
        now = time.monotonic_ns() // 1_000_000
        for sent in list(self._in_flight):
            request = sent.request
            body = self.answer(request.request)
            if body is HOLD:
                continue
            self._in_flight.remove(sent)
            if body is None and request.expect_response:
                body = self._as_a_broker(request.request)
            elif body is None:
                self._as_a_broker(request.request)
            version = request.request.versions.max
            answered.append(ClientResponse(request, version, request.created_ms, now, body))
        return answered

    def _as_a_broker(self, request: Request[object]) -> object:
        if isinstance(request, InitProducerIdRequest):
            self._producer_id += 1
            return init_response(ErrorCode.NONE, self._producer_id, 0)
        assert isinstance(request, ProduceRequest)
        answers = []
        for piece in request.data:
            batch = parse_batch(b"".join(piece.buffers))
            self.logs[piece.tp].append(batch)
            self.batch_sizes[piece.tp].append(piece.size)
            offset = self.next_offset[piece.tp]
            self.next_offset[piece.tp] += len(batch.records)
            answers.append(PartitionProduceResponse(piece.tp, ErrorCode.NONE, offset))
        return ProduceResponse(tuple(answers))

    def send(self, request: ClientRequest, now: int) -> None:
        with self._changed:
            self._in_flight.append(Sent(request, now))
            self.produced += isinstance(request.request, ProduceRequest)
            self._changed.notify_all()

    def wakeup(self) -> None:
        self.on_wakeup()
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def least_loaded_node(self, now: int) -> Node | None:
        return self._nodes[0]
