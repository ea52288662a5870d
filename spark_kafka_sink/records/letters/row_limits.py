"""Rows that the producer or the topic's brokers would refuse for their size or their time.

Owns: :class:`RowLimits`, which notes them before anything is sent. Never: other checks of rows
(``record_columns``), an error.

Only writes with dead letters need it: without, the encoder raises for the first row that is too
large for the producer, and what brokers refuse fails the task.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Mask, Reason
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.gather import offsets_of
from spark_kafka_sink.records.record_batch import HEADER_SIZE
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.record_encoder import content_sizes
from spark_kafka_sink.records.single_record import (
    EMPTY_SECTION,
    JAVA_OVERHEAD,
    MOST_OVERHEAD,
    record_bytes,
)
from spark_kafka_sink.records.varint import Int64s, highest, lowest, unsigned_sizes


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The limits of a producer and of the topic of its rows."""

    config: ProducerConfig
    topic: TopicLimits

    @property
    def most_content(self) -> int:
        """The bytes of a record's content that fit the producer, and uncompressed the topic."""
        return min(self._most_of_producer, self.topic.max_bytes) - JAVA_OVERHEAD

    @property
    def _most_of_producer(self) -> int:
        return min(self.config.max_request_size, self.config.buffer_memory)

    def check(self, columns: RecordColumns, now_ms: int, bad: BadRows) -> None:
        """Note the rows that are too large, or whose timestamp the topic does not accept."""
        self._check_sizes(columns, bad)
        if columns.timestamp is not None:
            bad.add(
                outside(columns.timestamp, self.topic, now_ms),
                Reason.TIMESTAMP,
                "Invalid timestamp: the topic's message.timestamp.before.max.ms or"
                " message.timestamp.after.max.ms does not allow it",
            )

    def _check_sizes(self, columns: RecordColumns, bad: BadRows) -> None:
        # A bound from each column's longest row: mostly nothing more is needed.
        parts = (columns.key, columns.value, columns.headers)
        ends = [offsets_of(part) for part in parts if part is not None]
        bound = sum(int(highest(one[1:] - one[:-1], initial=0)) for one in ends)
        if bound + MOST_OVERHEAD <= self.most_content:
            return
        content = content_sizes(columns)
        most = self._most_of_producer
        option = "max.request.size" if most == self.config.max_request_size else "buffer.memory"
        bad.add(
            content + JAVA_OVERHEAD > most,
            Reason.TOO_LARGE,
            f"the message is larger when serialized than {most}, the value of {option}",
        )
        bad.add(
            self._too_large_for_topic(columns, content, bad),
            Reason.TOO_LARGE,
            f"the message is larger than {self.topic.max_bytes} bytes, the topic's"
            " max.message.bytes",
        )

    def _too_large_for_topic(self, columns: RecordColumns, content: Int64s, bad: BadRows) -> Mask:
        """Alone in a batch: larger ones are split until each has one record."""
        body = content + 3  # attributes, and two deltas of 0
        sizes = HEADER_SIZE + body + unsigned_sizes(2 * body, 2 * int(highest(body, initial=0)))
        found: Mask = sizes > self.topic.max_bytes
        codec = Codec.of(self.config)
        if codec.is_none:
            return found
        # Few rows, and each has as many bytes as a whole batch.
        for row in (found & (bad.which == 0)).nonzero()[0].tolist():
            key, value, headers = (
                None if part is None else part[row].as_py()
                for part in (columns.key, columns.value, columns.headers)
            )
            record = record_bytes(0, 0, key, value, headers or EMPTY_SECTION)
            size = HEADER_SIZE + len(codec.compress([record]))
            found[row] = size > self.topic.max_bytes
        return found


def outside(times: Int64s, topic: TopicLimits, now_ms: int) -> Mask:
    """Whether brokers of ``topic`` would refuse a timestamp; a negative one always."""
    earliest, latest = max(now_ms - topic.before_ms, 0), min(now_ms + topic.after_ms, 2**63 - 1)
    if lowest(times, initial=latest) >= earliest and highest(times, initial=earliest) <= latest:
        return np.zeros(len(times), np.bool_)
    return (times < earliest) | (times > latest)
