"""Creates the requests about transactions. A task's producer, the driver or an operator's command
sends them (``producer/transaction/``, ``admin/transaction_client.py``).

For some requests, this module allows only a part of the versions in ``protocol/messages/``.
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
    """The kind of the keys in a FindCoordinator request (its field ``key_type``, KIP-98)."""

    GROUP = 0
    TRANSACTION = 1


def find_coordinator(
    keys: Sequence[str], key_type: CoordinatorType = CoordinatorType.TRANSACTION
) -> FindCoordinatorRequest:
    """Creates the request for the coordinators of ``keys``, which are transactional ids or consumer
    groups.

    A request with more than one key needs brokers of version 3.0 or newer (v4, KIP-699).
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
    """Creates the InitProducerId request, for a new producer or a new epoch.

    * ``transactional_id``: None if the producer is idempotent and has no transactions.
    * ``timeout_ms``: the timeout of the producer's transactions.
    * ``current``: if it is given, the broker raises the epoch only if ``current`` is still the
      newest producer id and epoch of this transactional id (v3, KIP-360). If it is not given, the
      broker raises the epoch in any case. This fences an earlier producer with this transactional
      id.
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
    """Creates the request that adds ``partitions`` to the producer's open transaction. If no
    transaction is open, the coordinator opens one.

    Only transactions of version 1 need this request. In a transaction of version 2, the leader of a
    partition adds the partition at the transaction's first batch for it (KIP-890).
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
    """Creates the EndTxn request for ``transaction``: commit if ``committed``, otherwise abort."""
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
    """Creates the request for the transactions of one coordinator. A caller that wants all
    transactions must send the request to every broker. Only transactions that pass all filters are
    listed:

    * ``states``, ``producer_ids``: if empty, no filter.
    * ``min_duration_ms``: needs brokers of version 3.8 or newer (v1, KIP-994). A transactional id
      that has never opened a transaction counts as very old. So pass ``states`` as well.
    * ``prefix``: brokers of version 4.1 or newer filter by the prefix (v2, KIP-1152). Older brokers
      do not get the prefix, so the caller must filter the response.

    The broker leaves out ids that the principal may not describe. While a broker still loads a
    partition of ``__transaction_state``, it returns COORDINATOR_LOAD_IN_PROGRESS and no
    transactions.
    """
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=producer_ids,
        duration_filter=-1 if min_duration_ms is None else min_duration_ms,
        transactional_id_pattern=_pattern_of(prefix) if prefix else None,
        versions=VersionRange(0 if min_duration_ms is None else 1, 2),
    )


def _pattern_of(prefix: str) -> str:
    """A regular expression (RE2) that matches exactly the ids that begin with ``prefix``."""
    # A backslash before a letter or digit would mean something; before anything else in ASCII it
    # takes the meaning away.
    quoted = "".join(f"\\{c}" if c.isascii() and not c.isalnum() else c for c in prefix)
    return f"(?s){quoted}.*"


def versions_of(transaction_version: int) -> VersionRange:
    """The versions of EndTxn and TxnOffsetCommit requests that are allowed for a transaction.
    ``transaction_version`` is 1 or 2 (KIP-890).

    The broker applies the rules for the version of the request. So this version must fit the
    transaction. Two examples of wrong versions, for a transaction of version 2:

    * If EndTxn v4 is sent again after the commit, the broker returns PRODUCER_FENCED.
    * TxnOffsetCommit below v5 does not add the consumer group to the transaction.
    """
    return VersionRange(5, 5) if transaction_version >= 2 else VersionRange(0, 4)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Groups partitions by topic: ``{"orders": [0, 3]}``. Removes duplicates."""
    topics: dict[str, list[int]] = {}
    for tp in dict.fromkeys(partitions):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return topics
