"""Reads keys of the commit log, up to the end of their partition.

:class:`LogReader` returns a :class:`LogSnapshot`: the committed records of some keys, and the
offset up to which they were read. ``log_parts.py`` joins the records to documents.

The next read can begin at a snapshot, so that the partition is not read from its beginning again.
``CommitLog`` uses a snapshot only if both of these are true:

* The topic still has the same id. A topic that was created again has other records.
* The snapshot is at most an hour old. Later, compaction may have removed a tombstone that the next
  read needs (delete.retention.ms, a day by default).
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

#: The maximum number of bytes of a batch's records. Batches of this package have less than half
#: of that (``log_parts.PIECE_BYTES``).
_MOST_KEPT: Final = 2 * 1024 * 1024


class _CutOffError(Exception):
    """The log does not have the requested offset: the records there were removed, or the log was
    truncated before the offset.
    """


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The result of a read: the committed records of some keys, by record key. All records before
    the offset ``next_offset`` were read, and the next read can begin there.

    ``end`` is the end of the partition at the time of the read. As a rule, ``next_offset`` is
    ``end``. Exception: if a transaction that writes these keys was open, ``next_offset`` is the
    offset of its first record.
    """

    next_offset: int = 0
    records: Mapping[bytes, bytes] = field(default_factory=dict)
    end: int = 0


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Selects the records of some keys of the commit log: the key ``key``, and if ``prefix`` is
    True, also every key that begins with ``key`` and the separator ``~``.

    A record batch is decoded only if its decompressed bytes contain ``key``. So a malformed record
    of another key does no harm, unless its batch contains ``key``, too. But a batch with a wrong
    checksum, or a batch that can't be decompressed, makes all keys of its partition unreadable.
    """

    key: bytes
    prefix: bool = False

    def takes(self, record_key: bytes) -> bool:
        """Whether the record with the key ``record_key`` is selected."""
        key = key_of(record_key)
        return key == self.key or (self.prefix and key.startswith(self.key + SEPARATOR.encode()))


class LogReader:
    """Reads partitions of the commit log's topic with the connections of ``client``.

    ``rights`` is a text for the hint of an AuthorizationError: the rights that a principal needs to
    read the log.
    """

    def __init__(self, client: TransactionClient, rights: str) -> None:
        self._client = client
        self._reader = PartitionReader(client, "the commit log ", rights)

    def read_keys(
        self, tp: TopicPartition, wanted: KeyFilter, snapshot: LogSnapshot, deadline_ms: int
    ) -> LogSnapshot:
        """Reads the records that ``wanted`` selects, from ``snapshot.next_offset`` to the current
        end of the partition. Returns a new snapshot with the records of ``snapshot`` and these
        records. Exception: if the log does not have the offset ``snapshot.next_offset`` any more,
        the whole partition is read.

        Raises one of these errors:

        * KafkaTimeoutError: the partition could not be read before the deadline.
        * CommitLogError: a record batch is damaged, or has a malformed record (:class:`KeyFilter`).
        """
        # The end is the high watermark in the response to ListOffsets, which fails until a newly
        # elected leader has caught up (KIP-207). The high watermark in a Fetch response may be too
        # low until then. (A broker that no longer leads the partition, and does not know that yet,
        # returns an old end. Only a write detects such a broker.)
        # (An empty log gets a Fetch, too. So a missing right to READ is an error now, and not only
        # at the first start that finds a record.)
        end, fetched = self._reader.end_and_fetch(tp, snapshot.next_offset, deadline_ms)
        if snapshot.next_offset > end:
            snapshot, fetched = LogSnapshot(), None  # an unclean election has truncated the log
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
        """Reads the partition from ``snapshot.next_offset`` up to ``end`` - 1, and returns the new
        snapshot.

        ``fetched`` is None, or a Fetch response that the caller has already received. The response
        begins at ``snapshot.next_offset``.
        """
        # Uncommitted records are read as well, and the next marker of their producer decides
        # whether they count. A read_committed reader would wait for every open transaction in the
        # partition, also for one that a crashed writer of another key has left open.
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
        """Whether the log has a record of ``key``, committed or not, at the offsets ``first`` to
        ``end`` - 1. Exception: the result is also True if the log does not have these offsets any
        more, because they may have had such a record.
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
        """Fetches transactional record batches and markers from the offset ``first`` on, until
        ``end`` is reached. Skips record batches without a transaction. Raises one of these errors:

        * CommitLogError: a record batch can't be read, for example because its checksum is wrong.
          Or a record batch that contains ``wanted.key`` has a record that can't be decoded.
        * KafkaTimeoutError: the deadline is over.

        ``ahead`` is None, or a Fetch response that the caller has already received. The response
        begins at ``first``.
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
                # This package writes no batch without a transaction to the log. Such batches of
                # other clients must not make the keys of the partition unreadable.
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
    """Updates ``records`` in place with ``written``. A value of None removes the record."""
    for key, value in written.items():
        if value is None:
            records.pop(key, None)
        else:
            records[key] = value
