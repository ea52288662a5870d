"""Produce: KafkaApis.handleProduceRequest and ReplicaManager.handleProduceAppend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.fakes.fake_cluster import batch_checks
from tests.fakes.fake_cluster.batch_checks import Batch, RefusedError
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import Fault
from tests.fakes.fake_cluster.outcome import Closed

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster
    from tests.fakes.fake_cluster.partition_log import PartitionLog

KEY, VERSIONS = 0, (3, 13)
_ABORTABLE, _LEADER_HINT, _TRANSACTIONS_V2 = 11, 10, 12
_LATE_MS = 3_600_000
_CLIENT_BUGS = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


@dataclass(frozen=True, slots=True)
class Done:
    """A partition's answer."""

    index: int
    error: ErrorCode = ErrorCode.NONE
    offset: int = -1
    append_time: int = -1
    log_start: int = -1
    why: str | None = None
    records: tuple[int, ...] = ()
    leader: tuple[int, int] | None = None


def handle(cluster: FakeCluster, node: int, request: Request, fault: Fault | None = None) -> Any:
    body = request.body
    pieces = [p for topic in body.topic_data for p in topic.partition_data]
    transactional = any(batch_checks.is_transactional(_bytes(p.records)) for p in pieces)
    if transactional and body.transactional_id is None:
        return _end(
            cluster, request, _all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        )
    done = []
    for topic in body.topic_data:
        name = getattr(topic, "name", None)
        if name is None:
            found = cluster.topic_of_id(topic.topic_id)
            name = None if found is None else found.name
        parts = []
        for piece in topic.partition_data:
            told = None
            if fault is not None and fault.covers(name, piece.index):
                told = Done(piece.index, fault.answer)
                if not fault.processed:
                    parts.append(told)
                    continue
            worked = _one(cluster, node, request, name, piece)
            parts.append(worked if told is None else told)
        done.append((topic, parts))
    return _end(cluster, request, done)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _end(cluster, request, _all(request, error))


def _all(request: Request, error: ErrorCode) -> list[tuple[Any, list[Done]]]:
    return [
        (topic, [Done(piece.index, error) for piece in topic.partition_data])
        for topic in request.body.topic_data
    ]


def _bytes(records: Any) -> bytes:
    return b"" if records is None else bytes(records)


def _one(cluster: FakeCluster, node: int, request: Request, name: str | None, piece: Any) -> Done:
    if name is None:
        return Done(piece.index, ErrorCode.UNKNOWN_TOPIC_ID)
    tp = TopicPartition(name, piece.index)
    log, start = cluster.log_at(node, tp), -1
    try:
        if log is None:
            raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        batch = batch_checks.validate(_bytes(piece.records), request.version)
        if request.body.acks not in (-1, 0, 1):
            raise RefusedError(ErrorCode.INVALID_REQUIRED_ACKS, f"{request.body.acks}")
        # Only the leader's log can say that a transaction is not open; the coordinator isn't asked.
        if log.leader != node:
            raise RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader is {log.leader}")
        if cluster.is_cut_off(node):
            # It can't ask the coordinator, and nobody replicates what it appends.
            raise RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, "cut off from the other brokers")
        _verify(cluster, request, tp, log, batch)
        start = log.start
        done = _append(cluster, request, piece.index, log, batch)
    except RefusedError as refused:
        cluster.trace(f"{tp} at {node}: {refused.error.name}, {refused.why}")
        leader = None
        if refused.error in _CLIENT_BUGS and log is not None:
            leader = (log.leader, log.leader_epoch)
        return Done(
            piece.index,
            refused.error,
            log_start=start if refused.error in _KNOWN_START else -1,
            why=refused.why,
            records=refused.records,
            leader=leader,
        )
    cluster.trace(f"{tp} at {node}: {done.error.name} {done.offset}")
    return done


#: Errors with which ReplicaManager still tells the log's start, when the log itself refused.
_KNOWN_START = {
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
}


def _verify(
    cluster: FakeCluster, request: Request, tp: TopicPartition, log: PartitionLog, batch: Batch
) -> None:
    """Ask the coordinator about a transaction that the log does not know to be open.

    In protocol 2 that opens it here.
    """
    transactional_id = request.body.transactional_id
    producer = (batch.producer_id, batch.producer_epoch)
    if not batch.transactional or batch.producer_id < 0 or log.has_ongoing(*producer):
        return
    v2 = request.version >= _TRANSACTIONS_V2
    log.begin_verification(batch, v2=v2)
    if v2:
        error = cluster.transactions.add_partitions(
            transactional_id, producer, [tp], cluster.now, version=2
        )
        if error is ErrorCode.NONE:
            cluster.schedule_abort_scan()
    else:
        error = cluster.transactions.verify(transactional_id, producer, tp)
    if error is ErrorCode.PRODUCER_FENCED:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    elif error is ErrorCode.CONCURRENT_TRANSACTIONS and not v2:
        error = ErrorCode.NOT_ENOUGH_REPLICAS
    elif error is ErrorCode.TRANSACTION_ABORTABLE and request.version < _ABORTABLE:
        error = ErrorCode.INVALID_TXN_STATE
    if error is not ErrorCode.NONE:
        raise RefusedError(error, "the coordinator says so")


def _append(
    cluster: FakeCluster,
    request: Request,
    index: int,
    log: PartitionLog,
    batch: Batch,
) -> Done:
    if request.body.acks == -1 and len(log.isr) < log.needed_isr:
        raise RefusedError(ErrorCode.NOT_ENOUGH_REPLICAS, f"in sync: {sorted(log.isr)}")
    batch_checks.check(
        batch,
        max_bytes=log.max_message_bytes,
        compacted=log.compacted,
        latest_ms=2**62 if log.log_append_time else cluster.wall_ms() + _LATE_MS,
    )
    offset = log.append(batch)
    append_time = cluster.wall_ms() if log.log_append_time else -1
    return Done(index, ErrorCode.NONE, offset, append_time, log.start)


def _end(cluster: FakeCluster, request: Request, done: list[tuple[Any, list[Done]]]) -> Any:
    errors = {part.error for _, parts in done for part in parts}
    if request.body.acks == 0:
        return Closed() if errors - {ErrorCode.NONE} else None
    answer = request.answer
    hinted = {part.leader for _, parts in done for part in parts if part.leader is not None}
    return answer.ProduceResponse(
        responses=[
            answer.TopicProduceResponse(
                name=getattr(topic, "name", None),
                topic_id=getattr(topic, "topic_id", None),
                partition_responses=[_part(answer, part, request.version) for part in parts],
            )
            for topic, parts in done
        ],
        throttle_time=cluster.throttle_ms(),
        node_endpoints=[
            answer.NodeEndpoint(
                node_id=node, host="127.0.0.1", port=cluster.brokers[node], rack=None
            )
            for node, _ in sorted(hinted)
            if request.version >= _LEADER_HINT and node in cluster.brokers
        ],
    )


def _part(answer: Any, part: Done, version: int) -> Any:
    fields: dict[str, Any] = {}
    if version >= _LEADER_HINT and part.leader is not None:
        node, epoch = part.leader
        fields["current_leader"] = answer.LeaderIdAndEpoch(leader_id=node, leader_epoch=epoch)
    return answer.PartitionProduceResponse(
        index=part.index,
        error_code=part.error,
        base_offset=part.offset,
        log_append_time=part.append_time,
        log_start_offset=part.log_start,
        record_errors=[
            answer.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message=part.why)
            for i in (part.records if version >= 8 else ())
        ]
        if version >= 8
        else (),
        error_message=part.why,
        **fields,
    )
