"""Reads one key of the commit log, to the end of its partition.

Owns: :class:`LogPlaces` (how far each key was read, and what was found), :class:`LogReader`. Never:
what a record says (``log_parts.py``), a write.

**The end** is the high watermark by ListOffsets, not by Fetch: a leader that was just elected may
lag behind what was acknowledged, and only ListOffsets refuses to answer until it does not
(KIP-207). Records count up to the last stable offset, so as long as a writer is in the middle of a
transaction below that end, the reader waits for it.

**A place** saves reading the partition from its beginning. It stays valid while the topic is the
same one (its id) and the log still holds its offset: compaction takes away records of a key only
when a newer one of that key follows, which lies behind the place and will be met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from spark_kafka_sink.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.fetch_messages import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    IsolationLevel,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetSpec,
)
from spark_kafka_sink.protocol.request import Request
from spark_kafka_sink.records.log_records import committed_records
from spark_kafka_sink.transactions.calls import Call, Leader, Next, following, refusal
from spark_kafka_sink.transactions.log_parts import belongs_to, join
from spark_kafka_sink.transactions.transaction_client import TransactionClient

ResponseT = TypeVar("ResponseT")
FoundT = TypeVar("FoundT")

#: Places that are remembered, the ones used last.
_MOST_PLACES: Final = 1000


class LogPosition(NamedTuple):
    """From here on a reader meets all that counts of a key. Picklable.

    ``topic_id`` are the 16 bytes of the topic's id: another topic of the same name has another.
    """

    topic_id: bytes
    offset: int


@dataclass(slots=True)
class Place:
    """What was found of a key below ``next_offset``: value and offset by record key."""

    next_offset: int = 0
    records: dict[bytes, tuple[bytes, int]] = field(default_factory=dict)

    def state(self, key: bytes) -> tuple[bytes | None, tuple[bytes, ...]]:
        """As ``log_parts.join``."""
        return join(key, {k: value for k, (value, _) in self.records.items()})

    def first_offset(self, key: bytes) -> int:
        """Of the records that make the state; the end when there are none."""
        _, keys = self.state(key)
        return min((self.records[k][1] for k in keys), default=self.next_offset)


class LogPlaces:
    """Of one process, or of one log. Threads may share it: they take copies."""

    def __init__(self) -> None:
        self._places: dict[tuple[bytes, bytes], Place] = {}
        #: Ids of topics whose settings were looked at.
        self.checked: set[bytes] = set()

    def get(self, topic_id: bytes | None, key: bytes) -> Place:
        found = None if topic_id is None else self._places.get((topic_id, key))
        return Place() if found is None else Place(found.next_offset, dict(found.records))

    def put(self, topic_id: bytes | None, key: bytes, place: Place) -> None:
        """Keep a copy; without the topic's id (brokers before 2.8) nothing is kept."""
        if topic_id is None:
            return
        self._places.pop((topic_id, key), None)
        self._places[topic_id, key] = Place(place.next_offset, dict(place.records))
        for oldest in list(self._places)[: max(0, len(self._places) - _MOST_PLACES)]:
            self._places.pop(oldest, None)

    def begin_at(self, key: bytes, position: LogPosition) -> None:
        """Read ``key`` from there on, unless more is known."""
        if (position.topic_id, key) not in self._places:
            self.put(position.topic_id, key, Place(position.offset))


class LogReader:
    """Of one topic; ``rights`` are what an AuthorizationError names."""

    def __init__(self, client: TransactionClient, rights: str) -> None:
        self._client = client
        self._rights = rights

    def read(self, tp: TopicPartition, key: bytes, place: Place, deadline_ms: int) -> Place:
        """``place``, moved to the end that the partition has now. KafkaTimeoutError when that is
        not reached in time, because a leader is silent, or a transaction stays open.
        """
        return self.read_keys(tp, lambda name: belongs_to(key, name), place, deadline_ms)

    def read_keys(
        self, tp: TopicPartition, wanted: Callable[[bytes], bool], place: Place, deadline_ms: int
    ) -> Place:
        """As :meth:`read`, with the records of every key that is ``wanted``."""
        end = self._offset(tp, OffsetSpec.LATEST, deadline_ms)
        if place.next_offset > end:
            place = Place()  # the log was cut off behind our back: an unclean election
        if end == 0:
            # Who may not read hears of it now, and not at the first start that finds a record.
            self._fetch(tp, 0, deadline_ms)
        attempts = 0
        while place.next_offset < end:
            try:
                fetched = self._fetch(tp, place.next_offset, deadline_ms)
            except KafkaTimeoutError as error:
                if attempts == 0:
                    raise
                raise KafkaTimeoutError(
                    f"{tp} of the commit log could not be read to its end, offset {end}: a "
                    f"transaction is open from offset {place.next_offset} on",
                    hint="another driver is in the middle of a write, or died in it; then its time "
                    "is over within a minute",
                    code=ErrorCode.REQUEST_TIMED_OUT,
                ) from error
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                place = Place(self._offset(tp, OffsetSpec.EARLIEST, deadline_ms))
                continue
            records, next_offset = committed_records(fetched)
            for record in records:
                if record.key is None or not wanted(record.key):
                    continue
                if record.value is None:
                    place.records.pop(record.key, None)
                else:
                    place.records[record.key] = (record.value, record.offset)
            if next_offset > place.next_offset:
                place.next_offset, attempts = next_offset, 0
                continue
            self._client.calls.pause(attempts, deadline_ms)
            attempts += 1
        return place

    def _offset(self, tp: TopicPartition, spec: OffsetSpec, deadline_ms: int) -> int:
        def take(response: ListOffsetsResponse) -> tuple[ErrorCode, int]:
            found = response.partitions[tp]
            return found.error, found.offset

        request = ListOffsetsRequest((tp,), spec)
        return self._ask(request, tp, take, deadline_ms)

    def _fetch(self, tp: TopicPartition, offset: int, deadline_ms: int) -> FetchedPartition:
        def take(response: FetchResponse) -> tuple[ErrorCode, FetchedPartition]:
            if response.error is not ErrorCode.NONE:
                nothing = FetchedPartition(response.error, offset, IsolationLevel.READ_COMMITTED)
                return response.error, nothing
            found = response.partitions[tp]
            return found.error, found

        request = FetchRequest(
            (FetchPartition(tp, offset),), IsolationLevel.READ_COMMITTED, max_wait_ms=0
        )
        return self._ask(
            request, tp, take, deadline_ms, answers=frozenset({ErrorCode.OFFSET_OUT_OF_RANGE})
        )

    def _ask(
        self,
        request: Request[ResponseT],
        tp: TopicPartition,
        take: Callable[[ResponseT], tuple[ErrorCode, FoundT]],
        deadline_ms: int,
        answers: frozenset[ErrorCode] = frozenset(),
    ) -> FoundT:
        """The leader's answer; codes of ``answers`` are some, too."""
        name = f"{request.api_key.name} of the commit log {tp}"
        taken: list[FoundT] = []

        def answer(response: ResponseT) -> ErrorCode | None:
            code, found = take(response)
            if code is not ErrorCode.NONE and code not in answers:
                if following(code) is Next.CLEAR:
                    raise refusal(code, name, self._rights)
                return code
            taken.append(found)
            return None

        call = Call(request, Leader(tp), answer)
        if not self._client.calls.run([call], deadline_ms):
            raise self._client.calls.timeout(name, [call])
        return taken[0]
