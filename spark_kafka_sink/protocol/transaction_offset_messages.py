"""A consumer group's offsets as a part of a transaction: AddOffsetsToTxn and TxnOffsetCommit.

Owns: both requests (by kio), both answers (by our own reader), and :class:`OffsetAndMetadata`.
Never: who asks which of them, and what an error code is worth (``transactions/offset_commits.py``).

They become the group's offsets when the transaction is committed (KIP-98). With transactions of
version 1 the transaction's coordinator is told of the group first, by AddOffsetsToTxn; with version
2 the group's coordinator does that when it gets TxnOffsetCommit v5 (KIP-890).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.kio_codec import check_version, read_body, topic_name, write_body
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.responses import read_partition_errors
from spark_kafka_sink.protocol.wire import WireReader, error_code

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddOffsetsToTxnResponse",
    "OffsetAndMetadata",
    "TxnOffsetCommitRequest",
    "TxnOffsetCommitResponse",
]

_THROTTLE_AND_ERROR = struct.Struct(">ih")


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """``offset``: the next one to read, as in Kafka's class of the same name.

    ``leader_epoch``: of the last record that was read; -1 when it is not known. ``metadata`` is the
    committer's own text.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnResponse:
    """NONE: the transaction is open and has the group's partition of __consumer_offsets."""

    error: ErrorCode
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitResponse:
    """``errors`` by partition, each for itself: some may be kept and others not."""

    errors: Mapping[TopicPartition, ErrorCode]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnRequest:
    """Adds the group's offsets to the open transaction, or opens it with them.

    For the transaction's coordinator, and for transactions of version 1 only.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

    api_key = ApiKey.ADD_OFFSETS_TO_TXN
    versions = VersionRange(0, 4)

    def encode(self, version: int) -> Buffers:
        check_version(self.api_key, version, self.versions)
        return write_body(
            self.api_key,
            version,
            lambda kio: kio.AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                group_id=self.group_id,
            ),
        )

    def decode(self, version: int, body: memoryview) -> AddOffsetsToTxnResponse:
        check_version(self.api_key, version, self.versions)
        return read_body(self.api_key, version, body, _read_add_offsets_to_txn)


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest:
    """The ``offsets`` that the group has from the transaction's commit on.

    For the group's coordinator. It names no member of the group, so none of its consumers is asked
    whether it may. ``transaction_version`` decides the request's version, as with EndTxn: version 5
    adds the group to the transaction, the versions below must not be asked for that.
    """

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    transaction_version: int

    api_key = ApiKey.TXN_OFFSET_COMMIT

    @property
    def versions(self) -> VersionRange:
        return VersionRange(5, 5) if self.transaction_version >= 2 else VersionRange(0, 4)

    def encode(self, version: int) -> Buffers:
        """Raises InvalidTopicError for a topic name that is too long even for the wire.

        Before version 2 (brokers before 2.1) leader epochs are left out.
        """
        check_version(self.api_key, version, self.versions)
        topics: dict[str, list[tuple[int, OffsetAndMetadata]]] = {}
        for tp, offset in self.offsets.items():
            topics.setdefault(topic_name(tp.topic), []).append((tp.partition, offset))

        def partition(kio: Any, number: int, committed: OffsetAndMetadata) -> object:  # noqa: ANN401 - a module of kio
            epoch = {"committed_leader_epoch": committed.leader_epoch} if version >= 2 else {}
            return kio.TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=committed.offset,
                committed_metadata=committed.metadata,
                **epoch,
            )

        def entity(kio: Any) -> object:  # noqa: ANN401 - a module of kio, one for each version
            return kio.TxnOffsetCommitRequest(
                transactional_id=self.transactional_id,
                group_id=self.group_id,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                topics=tuple(
                    kio.TxnOffsetCommitRequestTopic(
                        name=topic, partitions=tuple(partition(kio, *one) for one in partitions)
                    )
                    for topic, partitions in topics.items()
                ),
            )

        return write_body(self.api_key, version, entity)

    def decode(self, version: int, body: memoryview) -> TxnOffsetCommitResponse:
        """The answer, which names every partition of this request once and no other."""
        check_version(self.api_key, version, self.versions)
        asked = self.offsets
        return read_body(self.api_key, version, body, lambda r, _: _read_errors(r, asked))


def _read_add_offsets_to_txn(reader: WireReader, version: int) -> AddOffsetsToTxnResponse:  # noqa: ARG001 - as the others
    """AddOffsetsToTxn v0 to v4: one layout, flexible from v3 on."""
    throttle_ms, code = reader.unpack(_THROTTLE_AND_ERROR)
    reader.skip_tagged_fields()
    return AddOffsetsToTxnResponse(error_code(code), max(0, throttle_ms))


def _read_errors(reader: WireReader, asked: Iterable[TopicPartition]) -> TxnOffsetCommitResponse:
    """TxnOffsetCommit v0 to v5: one layout, flexible from v3 on."""
    throttle_ms, errors = read_partition_errors(reader, asked)
    return TxnOffsetCommitResponse(errors, throttle_ms)
