"""Reads keys of the commit log, to the end of their partition.

Owns: :class:`LogCache` (how far each key was read, and what was found), :class:`LogReader`. Never:
what a record says (``log_parts.py``), a write.

**The end** is the high watermark by ListOffsets, not by Fetch: a leader that was just elected may
lag behind what was acknowledged, and only ListOffsets refuses to answer until it does not
(KIP-207). It may still be old: a leader that was deposed and doesn't know it tells its own. Who
writes finds that out (:meth:`LogReader.has_records`).

**Uncommitted** records are read, and each transaction is judged by its marker. So nobody waits for
a stranger whose key lies in the same partition and who died between his record and its end. What
has no marker yet is somebody's write under way.

**A place** saves reading the partition from its beginning. It stays valid while the topic is the
same one (its id) and the log still holds its offset: compaction takes away records of a key only
when a newer one of that key follows, which lies behind the place and will be met.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.admin.call import Call, Leader, judged
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.errors import CommitError, ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.fetch_messages import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    IsolationLevel,
    ListOffsetsRequest,
    OffsetSpec,
)
from spark_kafka_sink.records.log_records import (
    ControlType,
    ReadBatch,
    Unreadable,
    read_batches,
)
from spark_kafka_sink.transactions.log_parts import belongs_to
from spark_kafka_sink.transactions.transactional_ids import SEPARATOR

#: Places that are remembered, the ones used last.
_MOST_PLACES: Final = 1000
#: Bytes of a batch's records. Ours have half of that at most (``log_parts.PART_BYTES``).
_MOST_KEPT: Final = 2 * 1024 * 1024


class _CutOffError(Exception):
    """The log does not hold the offset that is asked for."""


@dataclass(slots=True)
class LogSnapshot:
    """What was found below ``next_offset``: value by record key. ``settled`` is False when a write
    is under way there, from ``next_offset`` on.
    """

    next_offset: int = 0
    records: dict[bytes, bytes] = field(default_factory=dict)
    settled: bool = True

    def copy(self) -> LogSnapshot:
        return LogSnapshot(self.next_offset, dict(self.records), self.settled)


@dataclass(frozen=True, slots=True)
class Wanted:
    """``key``; as a ``prefix`` every key of it. Who doesn't name it in a batch harms nobody else:
    what can't be read there is not looked at.
    """

    key: bytes
    prefix: bool = False

    def takes(self, record_key: bytes) -> bool:
        return belongs_to(self.key, record_key) or (
            self.prefix and record_key.startswith(self.key + SEPARATOR.encode())
        )


class LogCache:
    """Of one log."""

    def __init__(self) -> None:
        self._places: dict[tuple[bytes, bytes], LogSnapshot] = {}
        #: Ids of topics whose settings were looked at.
        self.checked: set[bytes] = set()

    def get(self, topic_id: bytes | None, key: bytes) -> LogSnapshot:
        found = None if topic_id is None else self._places.get((topic_id, key))
        return LogSnapshot() if found is None else found.copy()

    def put(self, topic_id: bytes | None, key: bytes, place: LogSnapshot) -> None:
        """Keep a copy; without the topic's id (brokers before 2.8) nothing is kept."""
        if topic_id is None:
            return
        self.forget(topic_id, key)
        self._places[topic_id, key] = place.copy()
        while len(self._places) > _MOST_PLACES:
            del self._places[next(iter(self._places))]

    def forget(self, topic_id: bytes | None, key: bytes) -> None:
        """It is read from the beginning again."""
        if topic_id is not None:
            self._places.pop((topic_id, key), None)


class LogReader:
    """Of one topic; ``rights`` are what an AuthorizationError names."""

    def __init__(self, client: TransactionClient, rights: str) -> None:
        self._client = client
        self._rights = rights

    def read_keys(
        self, tp: TopicPartition, wanted: Wanted, place: LogSnapshot, deadline_ms: int
    ) -> LogSnapshot:
        """``place``, moved to the end that the partition has now, with the records of what is
        ``wanted``. KafkaTimeoutError when that is not reached in time, because a leader is silent.
        """
        end = self._offset(tp, OffsetSpec.LATEST, deadline_ms)
        if place.next_offset > end:
            place = LogSnapshot()  # the log was cut off behind our back: an unclean election
        if end == 0:
            # Who may not read hears of it now, and not at the first start that finds a record.
            self._fetch(tp, 0, deadline_ms)
        try:
            return self._read_up_to(tp, wanted, place, end, deadline_ms)
        except _CutOffError:
            place = LogSnapshot(self._offset(tp, OffsetSpec.EARLIEST, deadline_ms))
            return self._read_up_to(tp, wanted, place, end, deadline_ms)

    def _read_up_to(
        self,
        tp: TopicPartition,
        wanted: Wanted,
        place: LogSnapshot,
        end: int,
        deadline_ms: int,
    ) -> LogSnapshot:
        begun: dict[int, tuple[int, dict[bytes, bytes | None]]] = {}
        for batch in self._batches(tp, wanted, place.next_offset, end, deadline_ms):
            producer, first = batch.producer_id, batch.base_offset
            if batch.marker is not None:
                _, written = begun.pop(producer, (first, {}))
                _apply(place, written if batch.marker is ControlType.COMMIT else {})
            elif batch.records:
                written = {r.key: r.value for r in batch.records if r.key is not None}
                begun.setdefault(producer, (first, {}))[1].update(written)
        place.settled = not begun
        place.next_offset = min((offset for offset, _ in begun.values()), default=end)
        return place

    def has_records(
        self, tp: TopicPartition, key: bytes, first: int, end: int, deadline_ms: int
    ) -> bool:
        """Does anything of ``key``, committed or not, lie in [first, end)? True, too, when it can't
        be looked at.
        """
        batches = self._batches(tp, Wanted(key), first, end, deadline_ms)
        try:
            return any(batch.records and batch.base_offset < end for batch in batches)
        except _CutOffError:
            return True

    def _batches(
        self,
        tp: TopicPartition,
        wanted: Wanted,
        first: int,
        end: int,
        deadline_ms: int,
    ) -> Iterator[ReadBatch]:
        """Transactions' batches and markers in [first, end), and behind it in the last Fetch. What
        is in no transaction is somebody else's: who may write the topic must not stop every key of
        the partition. CommitError when what is wanted can't be read.
        """
        attempts = 0
        while first < end:
            fetched = self._fetch(tp, first, deadline_ms)
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise _CutOffError
            before = first
            for batch in read_batches(fetched, wanted.takes, wanted.key, _MOST_KEPT):
                first = max(first, batch.next_offset)
                if batch.header_known and not batch.transactional:
                    continue
                if batch.unreadable is not None:
                    raise _unreadable(tp, batch.unreadable)
                yield batch
            if first > before:
                attempts = 0
                continue
            # A follower that has just become the leader: it doesn't know its end yet.
            self._client.loop.pause(attempts, deadline_ms)
            attempts += 1

    def _offset(self, tp: TopicPartition, spec: OffsetSpec, deadline_ms: int) -> int:
        call = Call(
            ListOffsetsRequest((tp,), spec),
            Leader(tp),
            lambda response: self._judged("ListOffsets", tp, response.partitions[tp].error),
        )
        return (
            self._client.loop.ask(call, deadline_ms, _named("ListOffsets", tp))
            .partitions[tp]
            .offset
        )

    def _fetch(self, tp: TopicPartition, offset: int, deadline_ms: int) -> FetchedPartition:
        def take(response: FetchResponse) -> ErrorCode | None:
            code = response.error
            if code is ErrorCode.NONE:
                code = response.partitions[tp].error
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    return None
            return self._judged("Fetch", tp, code)

        request = FetchRequest(
            (FetchPartition(tp, offset),), IsolationLevel.READ_UNCOMMITTED, max_wait_ms=0
        )
        call = Call(request, Leader(tp), take)
        return self._client.loop.ask(call, deadline_ms, _named("Fetch", tp)).partitions[tp]

    def _judged(self, what: str, tp: TopicPartition, code: ErrorCode) -> ErrorCode | None:
        return judged(code, _named(what, tp), self._rights)


def _named(what: str, tp: TopicPartition) -> str:
    return f"{what} of the commit log {tp}"


def _apply(place: LogSnapshot, written: dict[bytes, bytes | None]) -> None:
    for key, value in written.items():
        if value is None:
            place.records.pop(key, None)
        else:
            place.records[key] = value


def _unreadable(tp: TopicPartition, found: Unreadable) -> CommitError:
    return CommitError(
        f"offset {found.offset} of {tp}, the commit log, can't be read: {found.reason}",
        hint="the topic of commitLogTopic must not be written by anybody else; "
        "kafka-delete-records takes away what lies before an offset, and what is decided there",
    )
