"""A record that the driver writes: in a transaction of the decision, or without one.

Owns: :class:`TopicRecord`, :func:`prepare_record` (the transaction with the batch's report) and
:func:`write_record`. Never: the content of the record, the transaction's end, which follows the
decision like every other transaction's.

The record goes to partition 0 of its topic, so that all of them have one order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_kafka_sink.admin.call import retry_code
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.driver_transactions import (
    add_partition_call,
    begin,
    produce_call,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_kafka_sink.admin.transaction_client import TransactionClient
    from spark_kafka_sink.base.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record for partition 0 of ``topic``, which ``option`` names."""

    topic: str
    value: bytes = field(repr=False)
    key: bytes | None = None
    option: str = "reportTopic"

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)


def prepare_record(
    client: TransactionClient,
    transactional_id: str,
    record: TopicRecord,
    deadline_ms: int,
    *,
    two_phase_commit: bool = False,
) -> PreparedTransaction:
    """Begin a transaction of ``transactional_id`` and write ``record`` in it.

    Raises AuthorizationError (naming the missing right), other ApiErrors of the brokers,
    ConfigError for a timeout above the broker's limit, and KafkaTimeoutError without a definite
    response, also to InitProducerId: that is not retried. After any of them the transaction may be
    open, and the caller must end it.
    """
    where = f"AddPartitionsToTxn of {record.tp}, transactional id '{transactional_id}'"
    prepared = begin(
        client,
        transactional_id,
        deadline_ms,
        where,
        lambda producer: add_partition_call(
            transactional_id, producer, record.tp, _retry_code(record, where)
        ),
        two_phase_commit=two_phase_commit,
    )
    _produce(client, record, deadline_ms, prepared)
    return prepared


def write_record(client: TransactionClient, record: TopicRecord, deadline_ms: int) -> None:
    """Write ``record`` without a transaction, at least once. Raises as :func:`prepare_record`."""
    _produce(client, record, deadline_ms, None)


def _produce(
    client: TransactionClient,
    record: TopicRecord,
    deadline_ms: int,
    within: PreparedTransaction | None,
) -> None:
    where = f"Produce to {record.tp}"
    values = [(record.key, record.value)]
    call = produce_call(client, record.tp, values, _retry_code(record, where), within)
    client.loop.send_and_receive(call, deadline_ms, where)


def _retry_code(record: TopicRecord, where: str) -> Callable[[ErrorCode], ErrorCode | None]:
    right = f"WRITE on the topic '{record.topic}' ({record.option})"
    return lambda code: retry_code(code, where, right)
