"""Reads a topic of dead letters.

Owns: :class:`LetterReader`: the offsets of its partitions, and their committed records with all of
their fields. Never: what a letter says (``records/letters/letter_fields.py``); a search that must
survive any bytes (``records/log_records.py``): here a batch that can't be read is an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.datasource.checks.topic_steps import existing_to_read
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from spark_kafka_sink.protocol.request import Buffer
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.log_records import (
    OFFSET_AND_LENGTH,
    ControlType,
    LogBatch,
    LogRecord,
    marker_of,
)
from spark_kafka_sink.records.record_batch import HEADER_SIZE, parse_header
from spark_kafka_sink.records.single_record import read_bytes, read_headers
from spark_kafka_sink.records.varint import MAX_VARLONG_BYTES, read_varint


class LetterReader:
    """Over the connections of ``client``; each request is bounded by its max.block.ms. Raises
    KafkaTimeoutError when there is no such topic.

    ``left_out`` counts letters whose transaction's marker is not there yet.
    """

    def __init__(self, client: AdminClient, topic: str) -> None:
        self._client = client
        self.left_out = 0
        self._reader = PartitionReader(client, "", "READ on the topic")
        self._tps = [info.tp for info in existing_to_read(client, topic).topics[topic]]

    def partitions(self) -> list[tuple[TopicPartition, int]]:
        """Each, and the offset behind its last letter now."""
        offset = self._reader.offset
        return [(tp, offset(tp, OffsetSpec.LATEST, self._client.deadline())) for tp in self._tps]

    def read(self, tp: TopicPartition, end: int) -> Iterator[LogRecord]:
        """All letters before ``end``, those of a transaction when its marker comes; without those
        of one that is open there. Raises CorruptRecordError, and KafkaTimeoutError when nothing
        comes for max.block.ms: the log was cut before ``end``.
        """
        open_ones: dict[int, list[LogRecord]] = {}
        at, before = 0, -1
        while at < end:
            if at > before:
                before, deadline, tries = at, self._client.deadline(), 0
            else:
                # A follower that has just become the leader has no high watermark yet.
                self._client.loop.pause(tries := tries + 1, deadline)
            fetched = self._reader.fetch(tp, at, deadline)
            if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                start = self._reader.offset(tp, OffsetSpec.EARLIEST, deadline)
                if start > at:  # retention has deleted them, and it may be markers of others
                    open_ones.clear()
                at = max(start, at)
                continue
            for batch in _batches(fetched.records):
                header = batch.header
                if header.control:
                    ended = open_ones.pop(header.producer_id, [])
                    yield from ended if marker_of(batch) is ControlType.COMMIT else ()
                else:
                    found = [one for one in _records(batch) if at <= one.offset < end]
                    if header.transactional:
                        open_ones.setdefault(header.producer_id, []).extend(found)
                    else:
                        yield from found
                at = max(at, batch.next_offset)
        self.left_out += sum(map(len, open_ones.values()))


def _batches(data: Buffer) -> Iterator[LogBatch]:
    """The whole ones; the next fetch has what is cut off."""
    view, at = memoryview(data).cast("B"), 0
    while len(view) - at >= OFFSET_AND_LENGTH.size:
        end = at + OFFSET_AND_LENGTH.size + OFFSET_AND_LENGTH.unpack_from(view, at)[1]
        if end > len(view):
            return
        yield LogBatch(parse_header(view[at:end]), view[at + HEADER_SIZE : end])
        at = end


def _records(batch: LogBatch) -> Iterator[LogRecord]:
    header = batch.header
    data, end = Codec(header.codec).decompress(batch.section), 0
    for _ in range(header.record_count):
        size, at = read_varint(data, end)
        end = at + size
        time, at = read_varint(data, at + 1, MAX_VARLONG_BYTES)
        delta, at = read_varint(data, at)
        key, at = read_bytes(data, at)
        value, at = read_bytes(data, at)
        yield LogRecord(
            header.base_offset + delta,
            header.max_timestamp if header.log_append_time else header.base_timestamp + time,
            key,
            value,
            tuple((k.decode(errors="replace"), v) for k, v in read_headers(data[at:end])),
        )
