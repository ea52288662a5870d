"""Counts the committed records that certain producers have written into ranges of offsets.

:func:`count_ranges` reads many ranges with limited memory, and stores the counts in a
:class:`RangeCount` for each range. It decodes only the headers of batches, and verifies the
checksums of the batches. ``datasource/report/audit_verdict.py`` judges the counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    CorruptRecordError,
    ErrorCode,
    InvalidRecordError,
    KafkaTimeoutError,
    RemoteProtocolError,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import FetchedPartition, OffsetSpec
from spark_kafka_sink.records.compression import CompressionType
from spark_kafka_sink.records.log_records import ControlType, LogBatch, marker_of, whole_batches
from spark_kafka_sink.records.record_batch import BatchHeader, increment_sequence, sequence_before

#: A producer id and its epoch.
Producer = tuple[int, int]
#: Ranges that are read together. Each has a response of some 4 MiB in memory.
_AT_ONCE: Final = 8
#: The ``problem`` of a range that was not read to its end in the time for all ranges.
TIME_IS_OVER: Final = "the time for the audit is over"


@dataclass(slots=True)
class RangeCount:
    """Counts the committed records that some producers wrote in a range of a partition. The caller
    sets ``tp``, ``at``, ``last``, ``producers``, ``fetches`` and ``from_zero``.

    A *counted batch* has committed records of these producers in the range. An offset is -1 if
    there is none.
    """

    #: The partition.
    tp: TopicPartition
    #: The first offset of the range. During the count, the first offset that is not read yet.
    at: int
    #: The last offset of the range.
    last: int
    #: The producers, as pairs of producer id and epoch. None counts the records of all producers.
    producers: frozenset[Producer] | None
    #: The count ends after this number of Fetch responses with new batches. Each such response
    #: lowers the number by 1.
    fetches: int = NEVER
    #: The number of committed records of the producers.
    rows: int = 0
    #: The number of aborted records of the producers.
    aborted_rows: int = 0
    #: The number of all records that are not in ``rows``: records of other producers, aborted
    #: records, and markers.
    other: int = 0
    #: The sum of the CRC-32C checksums of the counted batches.
    checksum: int = 0
    #: The number of offsets without a record, for example after a compaction.
    gaps: int = 0
    #: The number of offsets that the log had deleted before they were read.
    deleted: int = 0
    #: The first offset of the first counted batch.
    first_batch: int = -1
    #: The last offset of the last counted batch.
    last_row: int = -1
    #: If True, and if no offset was deleted, the first sequence number of each producer must be 0.
    from_zero: bool = False
    #: The offset of the first counted batch whose sequence number is too high: earlier records of
    #: its producer are missing.
    hole: int = -1
    #: The number of records that are missing at ``hole``.
    hole_rows: int = 0
    #: The offset of the first counted batch with a sequence number that its producer had already
    #: used.
    repeated_at: int = -1
    #: True if a counted batch has the broker's time as its timestamp.
    log_append_time: bool = False
    #: The compression types of the counted batches.
    codecs: set[CompressionType] = field(default_factory=set)
    #: The offset of a batch that can't be read.
    damaged_at: int = -1
    #: The reason why the batch at ``damaged_at`` can't be read.
    damage: str = ""
    #: The end offset of the log, if the log ends within the range.
    log_end: int = -1
    #: The offset at which an open transaction blocked the read.
    open_at: int = -1
    #: The reason why the range could not be read to its end, or an empty text.
    problem: str = ""
    #: The time of the first Fetch response without a new batch, on the client's clock in ms. A
    #: response with a new batch sets the time to NEVER again.
    waits_since_ms: int = NEVER
    #: For each producer, the sequence number that its next batch must have.
    next_sequence: dict[Producer, int] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return (
            self.at > self.last or self.fetches <= 0 or self.damaged_at >= 0 or bool(self.problem)
        )

    @property
    def is_cut_off(self) -> bool:
        """True if the range could not be read to its end, and no response has shown the reason."""
        return bool(self.problem) and self.log_end < 0 and self.open_at < 0

    def take(self, fetched: FetchedPartition) -> bool:
        """Counts the batches of a Fetch response. Returns True if the response has a batch that was
        not read before, or a batch that can't be read. Returns False if it has neither, for example
        at the end of the log. Then ``at``, the offset of the next request, is unchanged.
        """
        aborted = _Aborted(fetched.aborted)
        before = self.at
        try:
            for batch in whole_batches(fetched.records):
                if batch.next_offset > self.at:
                    self._count(batch, aborted.has(batch))
                    if self.at > self.last:
                        break
                else:
                    aborted.has(batch)
        except (CorruptRecordError, InvalidRecordError, RemoteProtocolError) as error:
            self.damaged_at, self.damage = self.at, error.message
        if moved := self.at > before:
            self.fetches -= 1
        return moved or self.damaged_at >= 0

    def skip_to(self, start: int) -> None:
        """Continues at ``start``, the new first offset of the log. The records before ``start``
        count as deleted.
        """
        begin = min(start, self.last + 1)
        self.deleted += begin - self.at
        self.at = begin
        # The next batch of a producer does not follow the batch that was read last.
        self.next_sequence.clear()

    def _count(self, batch: LogBatch, aborted: bool) -> None:
        header = batch.header
        begin, end = max(header.base_offset, self.at), min(batch.next_offset, self.last + 1)
        self.gaps += min(begin, self.last + 1) - self.at
        self.at = max(end, min(begin, self.last + 1))
        if end <= begin:
            return
        # (After a compaction a batch has fewer records than offsets. Which of its records are
        # outside of the range is then not known.)
        rows = min(header.record_count, end - begin)
        self.gaps += end - begin - rows
        producer = header.producer_id, header.producer_epoch
        ours = not header.control and (self.producers is None or producer in self.producers)
        if not ours or aborted:
            self.other += rows
            self.aborted_rows += rows if ours else 0
            return
        self.rows += rows
        self.checksum += header.checksum
        self.log_append_time |= header.log_append_time
        self.codecs.add(header.codec)
        if self.first_batch < 0:
            self.first_batch = header.base_offset
        self.last_row = batch.last_offset
        if header.producer_id >= 0:
            self._follow(producer, header)

    def _follow(self, producer: Producer, header: BatchHeader) -> None:
        """Checks that the sequence number of a batch follows the last batch of the same producer.
        If it does not, sets ``hole`` or ``repeated_at``.
        """
        begin = 0 if self.from_zero and not self.deleted else header.base_sequence
        expected, found = self.next_sequence.get(producer, begin), header.base_sequence
        if sequence_before(expected, found) and self.hole < 0:
            self.hole, self.hole_rows = header.base_offset, (found - expected) % 2**31
        elif sequence_before(found, expected) and self.repeated_at < 0:
            self.repeated_at = header.base_offset
        # Compaction keeps the sequences of a batch.
        self.next_sequence[producer] = increment_sequence(found, header.last_offset_delta + 1)


class _Aborted:
    """Finds the batches of aborted transactions in one Fetch response (Java's ``CompletedFetch``).
    :meth:`has` must be called for all batches, in the order of their offsets.

    ``listed`` has the aborted transactions of the response, each as its producer id and its first
    offset.
    """

    def __init__(self, listed: Sequence[tuple[int, int]]) -> None:
        self._listed = deque(sorted(listed, key=lambda one: one[1]))
        self._open: set[int] = set()

    def has(self, batch: LogBatch) -> bool:
        """True if the batch belongs to an aborted transaction."""
        header = batch.header
        while self._listed and self._listed[0][1] <= batch.last_offset:
            self._open.add(self._listed.popleft()[0])
        if header.control:
            if marker_of(batch) is ControlType.ABORT:
                self._open.discard(header.producer_id)
            return False
        return header.transactional and header.producer_id in self._open


def count_ranges(
    client: AdminClient,
    ranges: Sequence[RangeCount],
    *,
    until_ms: int = NEVER,
    on_progress: Callable[[int, int], None] | None = None,
) -> None:
    """Counts the records of all ``ranges``, which are in partitions of one topic. Stores the counts
    in the ranges. If a range can't be read to its end, its ``problem`` is set.

    * ``until_ms``: the time of the clock at which the count ends. Each request, and each wait for
      the end of an open transaction, may take max.block.ms.
    * ``on_progress``: a function that is called after each round of requests, with the number of
      read offsets and the number of all offsets.

    Raises AuthorizationError if the principal may not read the topic.
    """
    reader = PartitionReader(client, "", "READ on the topic")
    total = sum(one.last + 1 - one.at for one in ranges)
    open_ones = deque(one for one in ranges if not one.is_done)
    tries = 0
    while open_ones:
        if client.clock.now_ms() >= until_ms:
            for one in open_ones:
                one.problem = TIME_IS_OVER
            return
        group = [open_ones.popleft() for _ in range(min(_AT_ONCE, len(open_ones)))]
        deadline = min(client.deadline(), until_ms)
        moved = _fetch(client, reader, group, deadline)
        is_over = client.clock.now_ms() >= until_ms
        for one in group:
            if is_over and one.is_cut_off:
                one.problem = TIME_IS_OVER
            if one.is_done:
                # A large write has a thousand producers, in each of a thousand partitions.
                one.next_sequence.clear()
                continue
            # The ranges that move on are read to their end before others are begun.
            (open_ones.append if one.waits_since_ms < NEVER else open_ones.appendleft)(one)
        if moved:
            tries = 0
        elif open_ones:
            client.loop.pause(tries := tries + 1, deadline)
        if on_progress is not None:
            on_progress(total - sum(max(one.last + 1 - one.at, 0) for one in open_ones), total)


def _fetch(
    client: AdminClient, reader: PartitionReader, group: Sequence[RangeCount], deadline: int
) -> bool:
    """Sends a Fetch request for each range of ``group``. Returns True if at least one range has new
    batches.
    """
    moved = False
    found = reader.fetch_committed([(one.tp, one.at) for one in group], deadline)
    for one, fetched in zip(group, found, strict=True):
        if isinstance(fetched, str):
            one.problem = fetched
            continue
        try:
            if _moved(reader, one, fetched, deadline):
                one.waits_since_ms = NEVER
                moved = True
            else:
                _wait(client, reader, one, deadline)
        except KafkaTimeoutError as error:
            one.problem = error.message
    return moved


def _moved(
    reader: PartitionReader, one: RangeCount, fetched: FetchedPartition, deadline: int
) -> bool:
    """Counts the batches of a Fetch response for the range ``one``. Returns False if the response
    has no new batch, and the range is still at the same offset.

    If the log does not have the requested offset any more, the range continues at the first offset
    of the log.
    """
    if fetched.error is not ErrorCode.OFFSET_OUT_OF_RANGE:
        return one.take(fetched)
    start = reader.offset(one.tp, OffsetSpec.EARLIEST, deadline)
    if start <= one.at:
        return False
    one.skip_to(start)
    return True


def _wait(client: AdminClient, reader: PartitionReader, one: RangeCount, deadline: int) -> None:
    """Handles a Fetch response that has no new batches for the range ``one``.

    After max.block.ms without a new batch, sets the ``problem`` of the range. There are two
    problems: the log ends within the range, or an open transaction hides the offset ``one.at``.
    """
    # For a short time, a response without batches is normal: while the markers of a committed
    # transaction are not written yet, and while a new leader does not know its high watermark.
    now = client.clock.now_ms()
    if one.waits_since_ms == NEVER:
        one.waits_since_ms = now
    if now - one.waits_since_ms < client.config.max_block_ms:
        return
    end = reader.offset(one.tp, OffsetSpec.LATEST, deadline)
    if end <= one.at:
        one.log_end = end
        one.problem = f"the log ends at offset {end}"
    else:
        one.open_at = one.at
        one.problem = (
            f"an open transaction hides offset {one.at} and all after it"
            f" (kprod txn blockers {one.tp.topic})"
        )
