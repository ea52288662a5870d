"""Reads the committed records of a small topic, such as a topic of dead letters or of reports.

:class:`CommittedReader` returns records with key, value, timestamp and headers, and does not
interpret them. It raises an error for a damaged batch. The commit log has a reader of its own,
because other clients may write invalid bytes to it (``transactions/commit_log/log_reader.py``).
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.existing_topic import existing_to_read
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.errors import CorruptRecordError, ErrorCode, RemoteProtocolError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.log_records import (
    ControlType,
    LogBatch,
    LogRecord,
    marker_of,
    whole_batches,
)
from spark_kafka_sink.records.record_batch import BatchHeader
from spark_kafka_sink.records.single_record import read_bytes, read_headers
from spark_kafka_sink.records.varint import MAX_VARLONG_BYTES, read_varint


class CommittedReader:
    """Reads the committed records of ``topic`` with the connections of ``client``. Each request has
    the time limit max.block.ms.

    The constructor raises KafkaTimeoutError if the topic does not exist, and AuthorizationError if
    the principal may not see the topic.
    """

    def __init__(self, client: AdminClient, topic: str) -> None:
        self._client = client
        #: The number of records that :meth:`read` has not yielded, because the read ended
        #: before the marker of their transaction. Each read adds its number at its end.
        self.left_out = 0
        self._reader = PartitionReader(client, "", "READ on the topic")
        self._tps = [info.tp for info in existing_to_read(client, topic).topics[topic]]

    def partitions(self) -> list[tuple[TopicPartition, int]]:
        """Returns the partitions of the topic, each with its end offset: the offset after its last
        record.
        """
        offset = self._reader.offset
        return [(tp, offset(tp, OffsetSpec.LATEST, self._client.deadline())) for tp in self._tps]

    def read(self, tp: TopicPartition, end: int) -> Iterator[LogRecord]:
        """Yields the committed records of a partition before the offset ``end``. The records of a
        transaction are held in memory, and yielded when the commit marker is read. So the offsets
        of the yielded records are not always ascending.

        Two kinds of records are missing in the result:

        * records of a transaction whose marker was not read. ``left_out`` counts these records.
        * records that retention deletes during the read. If retention deletes the current offset,
          the read continues at the new first offset, and the records that are held in memory are
          also missing. ``left_out`` does not count these records.

        Raises one of these errors:

        * CorruptRecordError: a batch is damaged.
        * KafkaTimeoutError: no batch has arrived within max.block.ms, for example because the log
          was truncated before ``end``.
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
                # (The deleted batches may have been markers of the open transactions.)
                if start > at:
                    open_ones.clear()
                at = max(start, at)
                continue
            for batch in whole_batches(fetched.records):
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


def _records(batch: LogBatch) -> Iterator[LogRecord]:
    header = batch.header
    data, at = Codec(header.codec).decompress(batch.section), 0
    for index in range(header.record_count):
        try:
            body, at = read_bytes(data, at)
            yield _record(header, body or b"")
        except RemoteProtocolError as error:
            raise CorruptRecordError(
                f"record {index} of the batch at offset {header.base_offset} can't be read:"
                f" {error.message}"
            ) from None
    if at != len(data):
        raise CorruptRecordError(
            f"{len(data) - at} bytes follow the {header.record_count} records of the batch at"
            f" offset {header.base_offset}"
        )


def _record(header: BatchHeader, body: bytes) -> LogRecord:
    """Decodes the bytes of one record, without their length. Raises RemoteProtocolError if a field
    runs past the end of the record, or if bytes follow the record's headers.
    """
    time, at = read_varint(body, 1, MAX_VARLONG_BYTES)
    delta, at = read_varint(body, at)
    key, at = read_bytes(body, at)
    value, at = read_bytes(body, at)
    return LogRecord(
        header.base_offset + delta,
        header.max_timestamp if header.log_append_time else header.base_timestamp + time,
        key,
        value,
        tuple((k.decode(errors="replace"), v) for k, v in read_headers(body[at:])),
    )
