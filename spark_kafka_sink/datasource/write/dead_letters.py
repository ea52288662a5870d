"""Finds and counts the rows of a task that can't be sent, and makes dead letters of them.

:class:`DeadLetters` finds topics that the task can't write to, and records that are too large or
have a forbidden timestamp. Bad values of columns are found by ``records/record_columns.py``. The
driver applies the limits of a batch (``letter_counts.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ApiError, DataError, DeliveryError, ErrorCode, warn
from spark_kafka_sink.datasource.write.letter_counts import (
    SAMPLES,
    LetterCount,
    LetterSample,
    check_letters,
    listed,
    summed,
)
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Finding, Reason
from spark_kafka_sink.records.gather import integers
from spark_kafka_sink.records.letters.letter_writer import LetterWriter, asked_topics
from spark_kafka_sink.records.letters.row_limits import RowLimits
from spark_kafka_sink.records.record_columns import RecordColumns, rows_of
from spark_kafka_sink.records.varint import Int64s

_log = logging.getLogger(__name__)


class Topics(Protocol):
    """The source of topic metadata: a KafkaProducer, or ``TopicsNow`` for a task without a
    producer. ``partitions_for`` returns the partitions of a topic. With ``fresh``, it requests them
    again from the brokers.
    """

    def partitions_for(self, topic: str, *, fresh: bool = False) -> Sized: ...

    def unavailable_topics(self, topics: Sequence[str]) -> dict[str, ErrorCode]:
        """The topics that do not exist or that the principal may not see, with the broker's error
        code.
        """
        ...


#: Converts bad rows, as Spark passed them, to the columns of records.
ColumnsOf = Callable[[pa.RecordBatch], RecordColumns]

#: Bad rows are kept until they take _HELD_BYTES. Each row counts as its bytes and _ROW_BYTES.
_HELD_BYTES, _ROW_BYTES = 1 << 20, 1000
#: The largest number of dead letters that are made together, because their headers take memory.
_MOST_LETTERS = 8192
#: The largest number of bytes of a key or value in the log, with errors.log.include.messages.
_SHOWN = 200
_OF_CODE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reason.NO_TOPIC,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reason.FORBIDDEN_TOPIC,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reason.TOPIC_NAME,
}


@dataclass(slots=True)
class DeadLetters:
    """The dead letters of a task attempt. Used on the writer's thread only.

    - ``topic``: the option ``topic``. None if the topic is a column.
    - ``limits``: the limits for sizes and timestamps of a row.
    - ``topics``: the source of topic metadata for a task without a producer. (A task has no
      producer if its batch is already done.)
    - ``counts``: the numbers of dead letters by reason.
    """

    writer: LetterWriter
    topic: str | None
    limits: RowLimits
    #: The topics that the principal may not write to, with the brokers' answer for each.
    forbidden: Callable[[Sequence[str]], Mapping[str, ErrorCode]]
    topics: Topics
    counts: tuple[LetterCount, ...] = field(default=(), init=False)
    #: By topic of a column: the reason why rows can't be written to it, or None.
    _topics: dict[str, Finding | None] = field(default_factory=dict, init=False)
    #: Topics whose partitions were requested again, because a row names one they lack.
    _refreshed: set[str] = field(default_factory=set, init=False)
    #: Rows whose letters are not sent yet; their last two columns are the number of each one's
    #: finding, in ``_found``, and of itself.
    _held: list[pa.RecordBatch] = field(default_factory=list, init=False)
    _held_size: int = field(default=0, init=False)
    _found: list[Finding] = field(default_factory=list, init=False)

    @property
    def rows(self) -> int:
        return sum(count.rows for count in self.counts)

    def check(self, columns: RecordColumns, bad: BadRows, topics: Topics, now_ms: int) -> int:
        """Finds the rows that the topic or the producer would reject, and adds them to ``bad``.
        Waits for the metadata of new topics, as sending does.

        Returns the number of rows in ``bad``, which the driver compares if the batch runs again.
        Rows whose only problem is the timestamp are not counted: the topic may then allow it.
        """
        self._check_topics(columns, bad, topics)
        self.limits.check_sizes(columns, bad)
        compared = int(np.count_nonzero(bad.which)) if bad.found else 0
        self.limits.check_times(columns, now_ms, bad)
        return compared

    def count(self, columns: RecordColumns, bad: BadRows) -> int:
        """Finds the rows that :meth:`check` would count. A task calls this method if it writes
        nothing, because its batch is already done. Adds the rows to ``bad``, and returns their
        number.
        """
        self._check_topics(columns, bad, self.topics)
        self.limits.check_sizes(columns, bad)
        return int(np.count_nonzero(bad.which))

    def _check_topics(self, columns: RecordColumns, bad: BadRows, topics: Topics) -> None:
        names, index = _topics_of_good_rows(columns, bad)
        if self.topic is None and (new := [n for n in names.values() if n not in self._topics]):
            self._look_at(new, topics)
        for number, name in names.items():
            if (finding := self._topics.get(name)) is not None:
                bad.refuse(index == number, finding.reason, finding.text)
            elif (asked := columns.partition) is not None:
                count = len(topics.partitions_for(name))
                beyond = (index == number) & (asked >= count)
                if beyond.any() and name not in self._refreshed:
                    self._refreshed.add(name)
                    count = len(topics.partitions_for(name, fresh=True))
                    beyond &= asked >= count
                text = f"the partition is not present in metadata: the topic has {count} partitions"
                bad.refuse(beyond, Reason.PARTITION, text)

    def note(
        self, batch: pa.RecordBatch, columns: RecordColumns, bad: BadRows, numbers: Int64s
    ) -> None:
        """Counts the ``bad`` rows of ``batch``, and keeps them until :meth:`letters` returns their
        dead letters. If errors.log.enable is true, also logs them.

        ``columns`` are the converted rows. ``numbers`` are the numbers of the bad rows within the
        task, from 0. Raises DataError if the task has more dead letters than errors.max.records.
        """
        rows, options, task = bad.rows, self.writer.options, self.writer.task
        unsent, which = rows_of(batch, rows), bad.which.take(rows) - 1
        for number, finding in enumerate(bad.found):
            of_it = (which == number).nonzero()[0]
            first = of_it[:SAMPLES]
            samples = tuple(LetterSample(task, row) for row in numbers[first].tolist())
            reason = finding.reason
            count = LetterCount(reason.kind.kp_code, reason.text, len(of_it), samples)
            self.counts = summed((*self.counts, count))
            if options.log:
                text = "rows became dead letters in %s: %s: %s%s"
                shown = _shown(columns.take(rows[first])) if options.log_messages else ""
                topic = options.topic
                warn(_log, Kind.ROWS_TO_DEAD_LETTERS, text, topic, count, finding.text, shown)
        then = f"so partition {task} of the DataFrame fails: {listed(self.counts)}"
        limits, rows_in = replace(options, max_fraction=None), int(numbers[-1]) + 1
        check_letters(limits, self.rows, rows_in, then, DataError)
        self._held_size += unsent.nbytes + unsent.num_rows * _ROW_BYTES
        for more in (which + len(self._found), numbers):
            unsent = unsent.append_column("", integers(more))
        self._held.append(unsent)
        self._found += bad.found

    def letters(self, columns_of: ColumnsOf, now_ms: int, *, last: bool) -> Iterator[RecordColumns]:
        """Yields the dead letters of the rows that :meth:`note` has kept, in parts of at most 8192
        dead letters.

        If ``last`` is false and the kept rows are small, yields nothing, and the rows stay kept. If
        ``last`` is true, yields the dead letters of all kept rows.
        """
        # Each part has a fixed cost, so a few rows wait for more rows.
        if not self._held or not (last or self._held_size > _HELD_BYTES):
            return
        rows, found = pa.Table.from_batches(self._held).combine_chunks(), self._found
        self._held, self._held_size, self._found = [], 0, []
        for batch in rows.to_batches(max_chunksize=_MOST_LETTERS):
            which, numbers = (one.to_numpy() for one in batch.columns[-2:])
            yield self.writer.letters(columns_of(batch), which, found, numbers, now_ms)

    @property
    def said(self) -> str:
        """Describes the numbers and reasons of this task's dead letters, for the message of an
        error. It is not known here whether brokers have accepted the dead letters.
        """
        return (
            f"{self.rows} rows of partition {self.writer.task} of the DataFrame can't be sent, and"
            f" were for the dead letter queue {self.writer.options.topic}: {listed(self.counts)}"
        )

    def not_sent(self, error: ApiError) -> DeliveryError:
        """Creates the error for dead letters that can't be sent, because brokers answered with
        ``error``.
        """
        text = f"{self.said}; their dead letters can't be sent either: {error.message}"
        return DeliveryError(text, hint=error.hint, kind=Kind.LETTER_NOT_SENT)

    def _look_at(self, names: Sequence[str], topics: Topics) -> None:
        """Requests the metadata of the topics in ``names`` and the principal's rights on them.
        Stores for each topic whether rows can be written to it. The dead-letter topic is stored as
        a topic to which no row can be written, because this topic takes only dead letters.
        """
        codes = topics.unavailable_topics(names)
        codes |= self.forbidden([name for name in names if name not in codes])
        found = {name: Finding(_OF_CODE[code], code.text) for name, code in codes.items()}
        self._topics |= dict.fromkeys(names) | found
        if (queue := self.writer.options.topic) in names:
            text = "it is the topic of the dead letter queue, which takes no other rows"
            self._topics[queue] = Finding(Reason.TOPIC_NAME, text)


def _topics_of_good_rows(columns: RecordColumns, bad: BadRows) -> tuple[dict[int, str], Int64s]:
    """Returns the topics that have good rows, by number, such as ``{0: "orders", 2: "payments"}``.
    Also returns an array with the topic number of each row.
    """
    topic = columns.topic
    index = np.zeros(columns.rows, np.int64) if isinstance(topic, str) else topic.indices.to_numpy()
    good = index[bad.which == 0] if bad.found else index
    if isinstance(topic, str):
        return {0: topic} if len(good) else {}, index
    used = np.bincount(good).nonzero()[0].tolist()
    return {number: topic.dictionary[number].as_py() for number in used}, index


def _shown(rows: RecordColumns) -> str:
    """Topic, key and value of rows as text for the log."""

    def texts(values: pa.Array | None) -> list[str | None] | None:
        return values and [t and t[:_SHOWN].decode(errors="replace") for t in values.to_pylist()]

    topic = rows.topic if isinstance(rows.topic, str) else texts(asked_topics(rows.topic))
    return f" (topic {topic}, key {texts(rows.key)}, value {texts(rows.value)})"
