"""Finds rows that the producer or a broker would reject because of their size or timestamp.

Only writes with dead letters use this check, before the rows are sent. All other writes fail when
the producer or a broker rejects such a row. ``record_columns`` has the other checks of rows.
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
from spark_kafka_sink.records.varint import Int64s, highest, lowest


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Finds the rows that exceed the limits for size and timestamp. The producer's options
    (``config``) and the row's topic set these limits.
    """

    config: ProducerConfig
    topic: TopicLimits

    @property
    def most_content(self) -> int:
        """The largest content of a record, in bytes, that the producer and the topic accept without
        compression. The content is the record without its length, attributes and deltas.
        """
        limits = self.config.max_request_size, self.config.buffer_memory, self.topic.max_bytes
        return min(limits) - JAVA_OVERHEAD

    def check(self, columns: RecordColumns, now_ms: int, bad: BadRows) -> None:
        """Finds the rows that are too large, and the rows with a timestamp that the topic does not
        accept. Adds these rows to ``bad``. ``now_ms`` is the time now in milliseconds since the
        epoch.
        """
        self.check_sizes(columns, bad)
        self.check_times(columns, now_ms, bad)

    def check_sizes(self, columns: RecordColumns, bad: BadRows) -> None:
        # A bound from each column's longest row: mostly nothing more is needed.
        parts = (columns.key, columns.value, columns.headers)
        ends = [offsets_of(part) for part in parts if part is not None]
        bound = sum(int(highest(one[1:] - one[:-1], initial=0)) for one in ends)
        if bound + MOST_OVERHEAD > self.most_content:
            sizes = content_sizes(columns) + JAVA_OVERHEAD  # Java's upper bounds
            for option in ("max_request_size", "buffer_memory"):
                most = getattr(self.config, option)
                text = f"the message is larger when serialized than {most}, the value of "
                bad.refuse(sizes > most, Reason.TOO_LARGE, text + option.replace("_", "."))
            # Alone in a batch: larger ones are split until each has one record. Few rows, and each
            # has as many bytes as a whole batch.
            most, codec = self.topic.max_bytes, Codec.of(self.config)
            found = (sizes > most) & (bad.which == 0)
            for row in found.nonzero()[0].tolist():
                key, value, headers = (None if p is None else p[row].as_py() for p in parts)
                record = record_bytes(0, 0, key, value, headers or EMPTY_SECTION)
                found[row] = HEADER_SIZE + len(codec.compress([record])) > most
            text = f"the message is larger than {most} bytes, the topic's max.message.bytes"
            bad.refuse(found, Reason.TOO_LARGE, text)

    def check_times(self, columns: RecordColumns, now_ms: int, bad: BadRows) -> None:
        if columns.timestamp is not None:
            limits = "message.timestamp.before.max.ms or message.timestamp.after.max.ms"
            text = f"Invalid timestamp: the topic's {limits} does not allow it"
            bad.refuse(outside(columns.timestamp, self.topic, now_ms), Reason.TIMESTAMP, text)


def outside(times: Int64s, topic: TopicLimits, now_ms: int) -> Mask:
    """The mask of the timestamps that the brokers would reject. ``times`` and ``now_ms`` are
    milliseconds since the epoch.

    The mask is true for a timestamp that is negative, earlier than ``topic.before_ms`` before
    ``now_ms``, or later than ``topic.after_ms`` after ``now_ms``.
    """
    earliest, latest = max(now_ms - topic.before_ms, 0), min(now_ms + topic.after_ms, 2**63 - 1)
    if lowest(times, initial=latest) >= earliest and highest(times, initial=earliest) <= latest:
        return np.zeros(len(times), np.bool_)
    return (times < earliest) | (times > latest)
