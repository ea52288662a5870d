"""Transactions that the driver fills itself: with offsets, a report, a state of the commit log.

Owns: how one begins, and the Produce of records into one. Never: what the records mean, its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.admin.call import Call, CoordinatorKey, Leader
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.control_messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse
from spark_kafka_sink.protocol.producer_ids import (
    NO_PRODUCER_ID,
    PreparedTransaction,
    ProducerIdAndEpoch,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_kafka_sink.admin.transaction_client import TransactionClient
    from spark_kafka_sink.protocol.cluster import TopicPartition

#: The last version of Produce whose batches are of transaction version 1 (KIP-890).
_LAST_PRODUCE_OF_VERSION_1: Final = 11
_LATEST_PRODUCE: Final = 12


def begin(
    client: TransactionClient,
    transactional_id: str,
    deadline_ms: int,
    where: str,
    add: Callable[[ProducerIdAndEpoch], Call[Any]],
    *,
    two_phase_commit: bool,
) -> PreparedTransaction:
    """A new identity of the id; with version 1, ``add`` is the call that adds what is written, and
    ``where`` its name in an error.

    Each request is sent once: InitProducerId that arrives late would abort what the id has open by
    then, and what is added behind the commit would open another transaction.
    """
    version = client.transaction_version(deadline_ms)
    producer = client.init_producer_id(
        transactional_id,
        client.config.transaction_timeout_ms,
        deadline_ms,
        once=True,
        two_phase_commit=two_phase_commit,
    )
    if version < 2:
        call = add(producer)
        call.once = True
        client.loop.send_and_receive(call, deadline_ms, where)
    return PreparedTransaction(transactional_id, *producer, version)


def add_partition_call(
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    tp: TopicPartition,
    retry_code: Callable[[ErrorCode], ErrorCode | None],
) -> Call[AddPartitionsToTxnResponse]:
    """AddPartitionsToTxn, which version 1 needs."""
    return Call(
        AddPartitionsToTxnRequest(transactional_id, *producer, (tp,)),
        CoordinatorKey(transactional_id),
        lambda response: retry_code(response.errors[tp]),
    )


def produce_call(
    client: TransactionClient,
    tp: TopicPartition,
    records: Sequence[tuple[bytes | None, bytes | None]],
    retry_code: Callable[[ErrorCode], ErrorCode | None],
    within: PreparedTransaction | None,
    sequence: int = 0,
) -> Call[ProduceResponse]:
    """Produce of keys and values, in one batch; ``within`` None: without a transaction."""
    producer, version = NO_PRODUCER_ID, 2
    if within is not None:
        producer = ProducerIdAndEpoch(within.producer_id, within.producer_epoch)
        version = within.transaction_version
    batch = _batch_of(records, client.clock.wall_ms(), producer, sequence)

    def handle_response(response: ProduceResponse) -> ErrorCode | None:
        code = response.partitions[0].error
        # A duplicate: an earlier request without a response had arrived.
        duplicate = code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        return retry_code(ErrorCode.NONE if duplicate else code)

    data = PartitionProduceData(tp, batch, sum(map(len, batch)))
    latest = _LATEST_PRODUCE if version >= 2 else _LAST_PRODUCE_OF_VERSION_1
    timeout_ms = client.config.request_timeout_ms
    id_ = None if within is None else within.transactional_id
    request = ProduceRequest(-1, timeout_ms, (data,), id_, max_version=latest)
    return Call(request, Leader(tp), handle_response)


def _batch_of(
    records: Sequence[tuple[bytes | None, bytes | None]],
    now_ms: int,
    producer: ProducerIdAndEpoch,
    base_sequence: int,
) -> list[bytes]:
    """One record batch, in the buffers of a Produce request; transactional when ``producer`` is
    valid.
    """
    # Imported here, so that a commit without exactly-once doesn't load Arrow.
    from spark_kafka_sink.records.compression import Codec, CompressionType
    from spark_kafka_sink.records.record_batch import write_header
    from spark_kafka_sink.records.single_record import record_bytes

    codec = Codec(CompressionType.ZSTD, 3)
    raw = [record_bytes(i, 0, key, value) for i, (key, value) in enumerate(records)]
    section = codec.compress(raw)
    header = write_header(
        [section],
        codec=codec,
        record_count=len(records),
        base_timestamp=now_ms,
        max_timestamp=now_ms,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        base_sequence=base_sequence if producer.is_valid else -1,
        transactional=producer.is_valid,
    )
    return [header, section]
