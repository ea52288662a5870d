"""Offsets with the data: a consumer group's offsets in a transaction that the driver then ends.

Owns: how a group may be named, and :func:`prepare_offsets`, the one transaction of a batch that
holds no record but a group's offsets: which requests open and fill it, to whom, and which answers
are worth asking again. Never: its end, which is the decision's like that of every other
transaction; where offsets come from (``datasource/exactly_once/source_offsets.py``).

The group's consumers are not asked: no member is named, so the offsets are kept whoever reads with
that group, as Java's producer does it without ``ConsumerGroupMetadata``. What is asked twice is
kept once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.call import Call, Coordinator, judged
from spark_kafka_sink.errors import ConfigError, ErrorCode, IllegalStateError, safe_text
from spark_kafka_sink.producer.transaction.transaction_states import PreparedTransaction
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.control_messages import CoordinatorType
from spark_kafka_sink.protocol.transaction_offset_messages import (
    AddOffsetsToTxnRequest,
    OffsetAndMetadata,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: Bytes that the offsets of one request take in __consumer_offsets, which takes a request's offsets
#: as one batch of at most 1 MiB (max.message.bytes), or not at all.
_MOST_BYTES: Final = 512 * 1024
#: Of one offset there, beside the names of group and topic and the metadata.
_BYTES_OF_AN_OFFSET: Final = 80
#: Kafka's own limit is 32767 bytes, in which no tool and no metric shows a group.
_LONGEST_GROUP_ID: Final = 1024
#: How long a partition may be unknown to the group's coordinator: a young topic is after a moment.
_BELIEVE_MISSING_MS: Final = 5_000


def check_group_id(option: str, value: str) -> str:
    """``value`` if a group can be named so; else ConfigError naming ``option``."""
    try:
        size = len(value.encode())
    except UnicodeEncodeError:  # a surrogate
        size = 0
    if not 0 < size <= _LONGEST_GROUP_ID or not value.isprintable():
        raise ConfigError(
            f"{option} is '{safe_text(value, 120)}'; printable characters are allowed, at least "
            f"one and at most {_LONGEST_GROUP_ID} bytes of them",
            hint="it is the group.id whose offsets consumers and lag tools read",
        )
    return value


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """What a consumer group has read when a batch is committed: the offset to read next."""

    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]


def prepare_offsets(
    client: TransactionClient,
    transactional_id: str,
    group: GroupOffsets,
    deadline_ms: int,
    *,
    transaction_version: int | None = None,
) -> PreparedTransaction:
    """A new transaction of ``transactional_id`` that holds the offsets of ``group``, to be ended.

    ``transaction_version`` (1 or 2) is the cluster's unless it is given; the topics must be in the
    cluster of ``client``.

    Raises AuthorizationError (naming the right that is missing), ProducerFencedError when the id
    has another owner by now, InvalidMetadataError for a partition that the cluster has not got,
    other ApiErrors as the brokers say, ConfigError for a time-out above the broker's, and
    KafkaTimeoutError without a clear answer in time, also when InitProducerId got lost: should that
    arrive late, it would abort what the id has open then. After any of them the transaction may be
    open: whoever gave the id ends it, as with every id that it gives to a task. What
    DescribeTransactions then tells of its partitions is empty for who may not see the topic
    __consumer_offsets.
    """
    if not group.offsets:
        raise IllegalStateError("a transaction of no offsets can't be committed")
    version = transaction_version or client.transaction_version(deadline_ms)
    timeout_ms = client.config.transaction_timeout_ms
    owner = client.init_producer_id(transactional_id, timeout_ms, deadline_ms, once=True)
    if version < 2:
        where = (
            f"AddOffsetsToTxn of group '{group.group_id}', transactional id '{transactional_id}'"
        )
        # Once: one that arrives behind the commit would open another transaction.
        call = Call(
            AddOffsetsToTxnRequest(transactional_id, *owner, group.group_id),
            Coordinator(transactional_id),
            lambda response: _judged(response.error, where, transactional_id),
            once=True,
        )
        client.loop.ask(call, deadline_ms, where)
    calls = [
        Call(
            TxnOffsetCommitRequest(transactional_id, group.group_id, *owner, part, version),
            Coordinator(group.group_id, CoordinatorType.GROUP),
            _kept(client, transactional_id, group.group_id),
        )
        for part in _parts(group)
    ]
    if not client.loop.run(calls, deadline_ms):
        raise client.loop.timeout(f"TxnOffsetCommit of group '{group.group_id}'", calls)
    return PreparedTransaction(transactional_id, *owner, version)


def _kept(
    client: TransactionClient, transactional_id: str, group_id: str
) -> Callable[[TxnOffsetCommitResponse], ErrorCode | None]:
    """A request's offsets are kept when each of them is; else all of them are given again."""
    believe_until: int | None = None

    def take(response: TxnOffsetCommitResponse) -> ErrorCode | None:
        nonlocal believe_until
        again: ErrorCode | None = None
        for tp, code in response.errors.items():
            where = f"TxnOffsetCommit of {tp}, group '{group_id}'"
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                now = client.clock.now_ms()
                believe_until = believe_until or now + _BELIEVE_MISSING_MS
                if now >= believe_until:
                    raise code.error(
                        where,
                        "the cluster that is written to does not have this partition, and so "
                        "keeps no offset of it",
                    )
            again = _judged(code, where, transactional_id) or again
        return again

    return take


def _judged(code: ErrorCode, where: str, transactional_id: str) -> ErrorCode | None:
    rights = {
        ErrorCode.GROUP_AUTHORIZATION_FAILED: "READ on the group",
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: "READ on the topic whose offsets are committed",
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
            f"WRITE on the transactional id '{transactional_id}'"
        ),
    }
    return judged(code, where, rights.get(code, ""))


def _parts(group: GroupOffsets) -> Iterator[dict[TopicPartition, OffsetAndMetadata]]:
    """Its offsets in pieces that __consumer_offsets takes. An item of its own is never cut."""
    part: dict[TopicPartition, OffsetAndMetadata] = {}
    size = 0
    for tp, offset in group.offsets.items():
        texts = group.group_id, tp.topic, offset.metadata
        needed = _BYTES_OF_AN_OFFSET + sum(len(text.encode()) for text in texts)
        if part and size + needed > _MOST_BYTES:
            yield part
            part, size = {}, 0
        part[tp] = offset
        size += needed
    yield part
