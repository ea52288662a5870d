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
    """The request for a producer id. If ``current`` is a producer id, the request raises the epoch
    of this id (v3, KIP-360).
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
    """The request that adds ``partitions`` to the open transaction. If no transaction is open, it
    opens a transaction with these partitions.

    The request is only for transactions of version 1. With version 2, the leader of a partition
    adds the partition (KIP-890).
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
    """The request for the transactions that one broker coordinates. A caller must send it to every
    broker.

    The broker silently omits ids that the principal may not describe. While any of its coordinator
    partitions is loading, the broker returns COORDINATOR_LOAD_IN_PROGRESS and no transactions.

    A transaction is listed if it passes all filters. Brokers since 4.1 (v2, KIP-1152) filter by
    ``prefix``. For older brokers, the client filters the response. ``min_duration_ms`` needs
    brokers since 3.8 (v1, KIP-994). For this filter, an id that never opened a transaction counts
    as very old, so set ``states`` as well. (The other parameters have the names of the request's
    fields.)
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

    The broker handles these requests by the rules of the request's version, not by the cluster's
    current version. So the request's version must fit the version with which the transaction was
    written. For example, if EndTxn v4 ends a transaction of version 2 again, the broker reports the
    producer as fenced, although the transaction was committed. For a transaction of version 2,
    TxnOffsetCommit v5 adds the group to the transaction, which lower versions do not do.
    """
    return VersionRange(5, 5) if transaction_version >= 2 else VersionRange(0, 4)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Groups ``partitions`` by topic. Returns the partition numbers of each topic."""
    topics: dict[str, list[int]] = {}
    for tp in dict.fromkeys(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
