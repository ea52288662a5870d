"""A record that the driver writes: in a transaction of the decision, or without one.

Owns: :class:`TopicRecord`, :func:`prepare_record` (the transaction with the batch's report) and
:func:`write_record`. Never: the content of the record, the transaction's end, which follows the
decision like every other transaction's.

The record goes to partition 0 of its topic, so that all of them have one order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.call import Call, CoordinatorKey, Leader, retry_code
from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.producer.transaction.transaction_states import (
    NO_PRODUCER_ID,
    PreparedTransaction,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.control_messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: The last version of Produce whose batches are of transaction version 1 (KIP-890).
LAST_PRODUCE_OF_VERSION_1: Final = 11
LATEST_PRODUCE: Final = 12


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record for partition 0 of ``topic``."""

    topic: str
    value: bytes = field(repr=False)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)


def prepare_record(
    client: TransactionClient, transactional_id: str, record: TopicRecord, deadline_ms: int
) -> PreparedTransaction:
    """Begin a transaction of ``transactional_id`` and write ``record`` in it.

    Raises AuthorizationError (naming the missing right), other ApiErrors of the brokers,
    ConfigError for a timeout above the broker's limit, and KafkaTimeoutError without a definite
    response, also to InitProducerId: that is not retried, since a late one would abort what the id
    has open by then. After any of them the transaction may be open, and the caller must end it.
    """
    version = client.transaction_version(deadline_ms)
    owner = client.init_producer_id(
        transactional_id, client.config.transaction_timeout_ms, deadline_ms, once=True
    )
    if version < 2:
        where = f"AddPartitionsToTxn of {record.tp}, transactional id '{transactional_id}'"

        def handle_response(response: AddPartitionsToTxnResponse) -> ErrorCode | None:
            return retry_code(response.errors[record.tp], where, _right(record))

        # Once: a request that arrives after the commit would open another transaction.
        request = AddPartitionsToTxnRequest(transactional_id, *owner, (record.tp,))
        client.loop.send_and_receive(
            Call(request, CoordinatorKey(transactional_id), handle_response, once=True),
            deadline_ms,
            where,
        )
    _produce(client, record, deadline_ms, owner, transactional_id, version)
    return PreparedTransaction(transactional_id, *owner, version)


def write_record(client: TransactionClient, record: TopicRecord, deadline_ms: int) -> None:
    """Write ``record`` without a transaction, at least once. Raises as :func:`prepare_record`."""
    _produce(client, record, deadline_ms)


def batch_of(
    records: Sequence[tuple[bytes | None, bytes | None]],
    now_ms: int,
    producer: ProducerIdAndEpoch,
    base_sequence: int,
) -> list[bytes]:
    """Keys and values as one record batch, in the buffers of a Produce request; transactional
    unless ``producer`` is NO_PRODUCER_ID.
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
        base_sequence=base_sequence,
        transactional=producer.is_valid,
    )
    return [header, section]


def _produce(
    client: TransactionClient,
    record: TopicRecord,
    deadline_ms: int,
    producer: ProducerIdAndEpoch = NO_PRODUCER_ID,
    transactional_id: str | None = None,
    version: int = 2,
) -> None:
    sequence = 0 if producer.is_valid else -1
    batch = batch_of([(None, record.value)], client.clock.wall_ms(), producer, sequence)
    where = f"Produce to {record.tp}"

    def handle_response(response: ProduceResponse) -> ErrorCode | None:
        code = response.partitions[0].error
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return None  # an earlier request without a response had arrived
        return retry_code(code, where, _right(record))

    data = PartitionProduceData(record.tp, batch, sum(map(len, batch)))
    latest = LATEST_PRODUCE if version >= 2 else LAST_PRODUCE_OF_VERSION_1
    request = ProduceRequest(
        -1, client.config.request_timeout_ms, (data,), transactional_id, max_version=latest
    )
    client.loop.send_and_receive(
        Call(request, Leader(record.tp), handle_response), deadline_ms, where
    )


def _right(record: TopicRecord) -> str:
    return f"WRITE on the topic '{record.topic}' (reportTopic)"
