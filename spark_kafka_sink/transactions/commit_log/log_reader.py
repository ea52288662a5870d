"""Reads keys of the commit log, up to the end of their partition.

Owns: :class:`LogSnapshot` (the offset up to which keys were read, and their records),
:class:`LogReader`. Never: the meaning of a record (``log_parts.py``), a write.

**The end** is the high watermark that ListOffsets returns, not the one in a Fetch response. The
high watermark of a leader that was just elected may be too low, and only ListOffsets fails until
the leader has caught up (KIP-207). The end may still be stale: a deposed leader that does not know
its successor returns its own end. A write detects that (:meth:`LogReader.has_records`). The first
Fetch is sent right after ListOffsets, on the same connection. The leader answers in order, so the
Fetch has all records below the end.

**Uncommitted** records are read as well, and each transaction's marker decides whether its records
count. So a reader of one key never waits for the crashed writer of another key in the same
partition. A transaction without a marker is a write in progress.

**A snapshot** makes it unnecessary to read the partition from its beginning again. A snapshot stays
valid while the topic has the same id and the log still has the snapshot's offset. Compaction does
no harm: it removes a record only if a newer record of the same key follows, and the reader will
read the newer record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import CommitLogError, ErrorCode, KafkaTimeoutError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import FetchedPartition, OffsetSpec
from spark_kafka_sink.records.log_records import ControlType, ReadBatch, read_batches
from spark_kafka_sink.transactions.commit_log.log_parts import key_of
from spark_kafka_sink.transactions.transactional_ids import SEPARATOR

#: Bytes of a batch's records. Ours have at most half of that (``log_parts.PIECE_BYTES``).
_MOST_KEPT: Final = 2 * 1024 * 1024


class _CutOffError(Exception):
    """The log no longer has, or does not have yet, the requested offset."""


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The records below ``next_offset``, by record key.

    ``end`` is the end of the partition that was read. If a write was in progress, ``next_offset``
    is below ``end``.
    """

    next_offset: int = 0
    records: Mapping[bytes, bytes] = field(default_factory=dict)
    end: int = 0


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A filter for one key. With ``prefix``, it accepts every key of a prefix.

    Other batches are not decompressed, so a corrupt batch of another key does no harm.
    """

    key: bytes
    prefix: bool = False

    def takes(self, record_key: bytes) -> bool:
        key = key_of(record_key)
        return key == self.key or (self.prefix and key.startswith(self.key + SEPARATOR.encode()))


class LogReader:
    """Reads the commit log's topic. ``rights`` are the rights that an AuthorizationError names."""

    def __init__(self, client: TransactionClient, rights: str) -> None:
        self._client = client
        self._reader = PartitionReader(client, "the commit log ", rights)

    def read_keys(
        self, tp: TopicPartition, wanted: KeyFilter, snapshot: LogSnapshot, deadline_ms: int
    ) -> LogSnapshot:
        """Advances ``snapshot`` to the partition's current end, for the ``wanted`` keys.

        Raises KafkaTimeoutError if the leader does not respond in time.
        """
        # (Also of an empty log: a missing right to READ is an error now, not at the first start
        # that finds a record.)
        end, fetched = self._reader.end_and_fetch(tp, snapshot.next_offset, deadline_ms)
        if snapshot.next_offset > end:
            snapshot, fetched = LogSnapshot(), None  # truncated meanwhile: an unclean election
        try:
            return self._read_up_to(tp, wanted, snapshot, end, deadline_ms, fetched)
        except _CutOffError:
            snapshot = LogSnapshot(self._reader.offset(tp, OffsetSpec.EARLIEST, deadline_ms))
            return self._read_up_to(tp, wanted, snapshot, end, deadline_ms)

    def _read_up_to(
        self,
        tp: TopicPartition,
        wanted: KeyFilter,
        snapshot: LogSnapshot,
        end: int,
        deadline_ms: int,
        fetched: FetchedPartition | None = None,
    ) -> LogSnapshot:
        """Reads the partition up to ``end``. ``fetched`` contains the first batches if an earlier
        request has already fetched them.
        """
        records = dict(snapshot.records)
        begun: dict[int, tuple[int, dict[bytes, bytes | None]]] = {}
        for batch in self._batches(tp, wanted, snapshot.next_offset, end, deadline_ms, fetched):
            producer, first = batch.producer_id, batch.base_offset
            if batch.marker is not None:
                _, written = begun.pop(producer, (first, {}))
                apply(records, written if batch.marker is ControlType.COMMIT else {})
            elif batch.records:
                written = {r.key: r.value for r in batch.records if r.key is not None}
                begun.setdefault(producer, (first, {}))[1].update(written)
        return LogSnapshot(min((offset for offset, _ in begun.values()), default=end), records, end)

    def has_records(
        self, tp: TopicPartition, key: bytes, first: int, end: int, deadline_ms: int
    ) -> bool:
        """Whether the offsets from ``first`` up to ``end`` - 1 have a record of ``key``, committed
        or not. Also true if these offsets can't be read.
        """
        batches = self._batches(tp, KeyFilter(key), first, end, deadline_ms)
        try:
            return any(batch.records and batch.base_offset < end for batch in batches)
        except _CutOffError:
            return True

    def _batches(
        self,
        tp: TopicPartition,
        wanted: KeyFilter,
        first: int,
        end: int,
        deadline_ms: int,
        ahead: FetchedPartition | None = None,
    ) -> Iterator[ReadBatch]:
        """Fetches the transactional batches and the markers from ``first`` on, until a response
        reaches ``end``.

        Batches without a transaction are skipped: this package does not write such batches to the
        log, and another principal with the right to write must not block the keys of the partition.
        Raises CommitLogError if a wanted batch can't be decoded, and KafkaTimeoutError if the
        deadline passes.
        """
        attempts = 0
        while first < end:
            fetched = ahead or self._reader.fetch(tp, first, deadline_ms)
            ahead = None
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise _CutOffError
            before = first
            for batch in read_batches(fetched, wanted.takes, wanted.key, _MOST_KEPT):
                first = max(first, batch.next_offset)
                if batch.transactional or not batch.header_known:
                    if (found := batch.unreadable) is not None:
                        raise CommitLogError(
                            f"offset {found.offset} of {tp}, the commit log, can't be read: "
                            f"{found.reason}",
                            hint="no other client may write to the topic of commitLogTopic; with "
                            "cleanup.policy=compact,delete for a moment kafka-delete-records.sh "
                            "removes the records before an offset, and their decisions",
                        )
                    yield batch
                if first < end and self._client.clock.now_ms() >= deadline_ms:
                    raise KafkaTimeoutError(
                        f"the commit log {tp} can't be read in time: of its {end} offsets, {first} "
                        "were read",
                        hint="no other client may write to the topic of commitLogTopic; "
                        "kafka.max.block.ms bounds the time",
                    )
            if first > before:
                attempts = 0
                continue
            # A follower that has just become the leader has no high watermark yet.
            self._client.loop.pause(attempts, deadline_ms)
            attempts += 1


def apply(records: dict[bytes, bytes], written: Mapping[bytes, bytes | None]) -> None:
    """Applies written records to ``records``, in place. The value None removes a record."""
    for key, value in written.items():
        if value is None:
            records.pop(key, None)
        else:
            records[key] = value
