"""The requests for transactions: by a task's producer, by the driver, and by an operator.

Owns: the fields of these requests, and their allowed versions where ``protocol/messages/`` can
encode more. Never: the sending and its time (``producer/transaction/``,
``admin/transaction_client.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from spark_kafka_sink.protocol.messages.end_txn import EndTxnRequest
from spark_kafka_sink.protocol.messages.find_coordinator import FindCoordinatorRequest
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdRequest
from spark_kafka_sink.protocol.messages.list_transactions import ListTransactionsRequest
from spark_kafka_sink.protocol.producer_ids import (
    NO_PRODUCER_ID,
    PreparedTransaction,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.protocol.request import VersionRange


class CoordinatorType(IntEnum):
    """The kind of a key that has a coordinator (FindCoordinatorRequest's key type, KIP-98)."""

    GROUP = 0
    TRANSACTION = 1


def find_coordinator(
    keys: Sequence[str], key_type: CoordinatorType = CoordinatorType.TRANSACTION
) -> FindCoordinatorRequest:
    """The request for the coordinators of ``keys``: transactional ids, or consumer groups.

    Several keys in one request need brokers since 3.0 (v4, KIP-699).
    """
    return FindCoordinatorRequest(
        key=keys[0],
        key_type=key_type.value,
        coordinator_keys=keys,
        versions=VersionRange(1 if len(keys) == 1 else 4, 6),
    )


def init_producer_id(
    transactional_id: str | None,
    timeout_ms: int,
    current: ProducerIdAndEpoch = NO_PRODUCER_ID,
) -> InitProducerIdRequest:
    """The request for a producer id. With a ``current`` id, the request raises its epoch (v3,
    KIP-360).
    """
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=current.producer_id,
        producer_epoch=current.epoch,
    )


def add_partitions_to_txn(
    transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """The request that adds ``partitions`` to the open transaction, or opens a transaction with
    them.

    Only for transactions of version 1: with version 2 the partition's leader adds the partition
    (KIP-890).
    """
    return AddPartitionsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in by_topic(partitions).items()
        ],
    )


def end_txn(transaction: PreparedTransaction, *, committed: bool) -> EndTxnRequest:
    """The request that commits or aborts ``transaction``."""
    return EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=committed,
        versions=versions_of(transaction.transaction_version),
    )


def list_transactions(
    states: Iterable[str] = (),
    producer_ids: Sequence[int] = (),
    *,
    min_duration_ms: int | None = None,
    prefix: str = "",
) -> ListTransactionsRequest:
    """The request for the transactions that one broker coordinates; a caller sends it to every
    broker.

    An id without the right to describe it is left out silently. The error is
    COORDINATOR_LOAD_IN_PROGRESS when any of the broker's coordinator partitions loads: then nothing
    is listed.

    All filters must hold. ``prefix`` is compared exactly: brokers since 4.1 (v2, KIP-1152) filter
    by prefix, and the client filters again. ``min_duration_ms`` needs brokers since 3.8 (v1,
    KIP-994); an id that never opened a transaction is as old as the epoch, so set ``states`` as
    well. (The parameters have the names of the request's fields.)
    """
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=producer_ids,
        duration_filter=-1 if min_duration_ms is None else min_duration_ms,
        transactional_id_pattern=_pattern_of(prefix) if prefix else None,
        versions=VersionRange(0 if min_duration_ms is None else 1, 2),
    )


def _pattern_of(prefix: str) -> str:
    """The regular expression (RE2) that matches only ids beginning with ``prefix``."""
    # A backslash before a letter or digit would mean something; before anything else in ASCII it
    # takes the meaning away.
    quoted = "".join(f"\\{c}" if c.isascii() and not c.isalnum() else c for c in prefix)
    return f"(?s){quoted}.*"


def versions_of(transaction_version: int) -> VersionRange:
    """The versions of EndTxn and of TxnOffsetCommit for a transaction of version
    ``transaction_version``.

    The broker judges these requests by the rules of the request's version, not by the cluster's
    current version. So the version must be the version that the transaction was written with: if a
    transaction of version 2 is ended again with EndTxn 4, the broker reports it as fenced although
    it was committed. TxnOffsetCommit 5 adds the group to the transaction; lower versions must not
    be used for that.
    """
    return VersionRange(5, 5) if transaction_version >= 2 else VersionRange(0, 4)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The topics of ``partitions``, each once with its partitions."""
    topics: dict[str, list[int]] = {}
    for tp in dict.fromkeys(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
