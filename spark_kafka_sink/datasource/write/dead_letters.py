"""The rows of a task that can't be sent: found, counted, and made letters.

Owns: :class:`DeadLetters`, what a task knows of them: the limits of its topics, topics that it
can't write to, counts by reason. Never: the checks of columns (``records/record_columns.py``), a
letter's bytes (``records/letters/letter_writer.py``), the limits of a batch, which the driver
applies (``letter_counts.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ApiError,
    DataError,
    DeliveryError,
    ErrorCode,
    KafkaError,
    warn,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import DeadLetterOptions
from spark_kafka_sink.datasource.write.letter_counts import (
    SAMPLES,
    LetterCount,
    LetterSample,
    check_letters,
    listed,
    summed,
)
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Finding, Mask, Reason
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.letters.letter_writer import LetterWriter, asked_topics
from spark_kafka_sink.records.letters.row_limits import RowLimits
from spark_kafka_sink.records.record_columns import RecordColumns, rows_of
from spark_kafka_sink.records.varint import Int64s

if TYPE_CHECKING:
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer

_log = logging.getLogger(__name__)

#: Which of these topics the principal may not write to, and what brokers say of each.
ForbiddenTopics = Callable[[Sequence[str]], Mapping[str, str]]
#: Of bad rows as Spark passed them.
ColumnsOf = Callable[[pa.RecordBatch], RecordColumns]

#: Bad rows are held up to so many bytes, with these for each row.
_HELD_BYTES, _ROW_BYTES = 1 << 20, 1000
#: Letters that are made at once: their headers are memory besides the rows'.
_MOST_LETTERS = 8192
#: Bytes of a key or value in the log, with errors.log.include.messages.
_SHOWN = 200
_OF_CODE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reason.NO_TOPIC,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reason.FORBIDDEN_TOPIC,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reason.TOPIC_NAME,
}


@dataclass(slots=True)
class DeadLetters:
    """Of one task attempt, on the writer's thread. ``topic`` is the option, ``limits`` are those of
    topics, as far as they are known; ``connector``, ``task`` and ``batch_id`` are for headers.
    """

    options: DeadLetterOptions
    config: ProducerConfig
    topic: str | None
    limits: Mapping[str, TopicLimits]
    connector: str = "kprod"
    task: int = 0
    batch_id: int = -1
    forbidden: ForbiddenTopics = lambda topics: {}  # noqa: ARG005 - none is known to be
    #: By reason.
    counts: tuple[LetterCount, ...] = field(default=(), init=False)
    #: Of a column's topics: why rows can't be written to them, None for the others.
    _topics: dict[str, Finding | None] = field(default_factory=dict, init=False)
    #: Topics whose partitions were requested again, because a row names one they lack.
    _refreshed: set[str] = field(default_factory=set, init=False)
    #: Rows whose letters are not sent yet, the number of each one's finding, and of itself.
    _held: list[tuple[pa.RecordBatch, Int64s, Int64s]] = field(default_factory=list, init=False)
    _held_size: int = field(default=0, init=False)
    #: The findings of these rows, and their numbers.
    _found: dict[Finding, int] = field(default_factory=dict, init=False)

    @property
    def rows(self) -> int:
        return sum(count.rows for count in self.counts)

    def check(
        self, columns: RecordColumns, bad: BadRows, producer: KafkaProducer, now_ms: int
    ) -> None:
        """Note the rows that the topic, or the producer, would refuse. Waits for topics that are
        new to the producer, as sending does.
        """
        names, index = _topics_of_good_rows(columns, bad)
        if self.topic is None:
            new = [name for name in names.values() if name not in self._topics]
            if new:
                self._look_at(new, producer)
        for number, name in names.items():
            finding = self._topics.get(name)
            if finding is not None:
                bad.refuse(index == number, finding.reason, finding.text)
            elif columns.partition is not None:
                self._check_partitions(columns.partition, name, index == number, bad, producer)
        self._limits_of(self.topic).check(columns, now_ms, bad)

    def note(
        self, batch: pa.RecordBatch, columns: RecordColumns, bad: BadRows, numbers: Int64s
    ) -> None:
        """Count the ``bad`` rows of ``batch``, which are ``columns``, and hold them; ``numbers``
        are theirs within the task. Raises DataError when there are too many.
        """
        rows = bad.rows
        unsent, which = rows_of(batch, rows), bad.which.take(rows) - 1
        for number, finding in enumerate(bad.found):
            of_it = (which == number).nonzero()[0]
            first = of_it[:SAMPLES]
            samples = tuple(LetterSample(self.task, row) for row in numbers[first].tolist())
            count = LetterCount(finding.reason.code, finding.reason.text, len(of_it), samples)
            self.counts = summed((*self.counts, count))
            if self.options.log:
                text = "rows became dead letters in %s: %s: %s%s"
                shown = self._shown(columns, rows[first])
                topic = self.options.topic
                warn(_log, Kind.ROWS_TO_DEAD_LETTERS, text, topic, count, finding.text, shown)
        check_letters(
            replace(self.options, max_fraction=None),
            self.rows,
            int(numbers[-1]) + 1,
            f"so partition {self.task} of the DataFrame fails: {listed(self.counts)}",
            DataError,
        )
        places = [self._found.setdefault(one, len(self._found)) for one in bad.found]
        self._held.append((unsent, np.array(places).take(which), numbers))
        self._held_size += unsent.nbytes + unsent.num_rows * _ROW_BYTES

    def letters(self, columns_of: ColumnsOf, now_ms: int, *, last: bool) -> Iterator[RecordColumns]:
        """The letters of the rows that are held. Few rows wait for more, unless they are the
        ``last``: what a letter costs is mostly what some do.
        """
        if not self._held or not (last or self._held_size > _HELD_BYTES):
            return
        held, found = self._held, list(self._found)
        self._held, self._held_size, self._found = [], 0, {}
        rows = pa.Table.from_batches([batch for batch, _, _ in held]).combine_chunks()
        which, numbers = (np.concatenate([one[i] for one in held]) for i in (1, 2))
        del held  # joined, they are copies
        writer = LetterWriter(
            self.options,
            self._limits_of(self.options.topic),
            self.connector,
            self.task,
            self.batch_id,
        )
        start = 0
        for batch in rows.to_batches(max_chunksize=_MOST_LETTERS):
            some = slice(start, start := start + batch.num_rows)
            yield writer.letters(columns_of(batch), which[some], found, numbers[some], now_ms)

    @property
    def said(self) -> str:
        """For errors: which rows these are. Their letters may be written, held or aborted."""
        return (
            f"{self.rows} rows of partition {self.task} of the DataFrame can't be sent, and were"
            f" for the dead letter queue {self.options.topic}: {listed(self.counts)}"
        )

    def not_sent(self, error: ApiError) -> KafkaError:
        """The error of letters that can't be sent."""
        text = f"{self.said}; their letters can't be sent either: {error.message}"
        return DeliveryError(text, hint=error.hint, kind=Kind.LETTER_NOT_SENT)

    def _limits_of(self, topic: str | None) -> RowLimits:
        return RowLimits(self.config, self.limits.get(topic or "", TopicLimits()))

    def _shown(self, columns: RecordColumns, numbers: Int64s) -> str:
        """With errors.log.include.messages what rows ``numbers`` have, but for headers."""
        if not self.options.log_messages:
            return ""
        rows = columns.take(numbers)
        topic = rows.topic if isinstance(rows.topic, str) else _texts(asked_topics(rows.topic))
        key, value = (None if one is None else _texts(one) for one in (rows.key, rows.value))
        return f" (topic {topic}, key {key}, value {value})"

    # -- topics -----------------------------------------------------------------------------------

    def _look_at(self, names: Sequence[str], producer: KafkaProducer) -> None:
        """Whether rows can be written to these topics; waits for all of them together."""
        self._topics |= dict.fromkeys(names)
        for name, code in producer.unavailable_topics(names).items():
            self._topics[name] = Finding(_OF_CODE[code], code.text)
        there = [name for name in names if self._topics[name] is None]
        for name, text in self.forbidden(there).items() if there else ():
            self._topics[name] = Finding(Reason.FORBIDDEN_TOPIC, text)
        if self.options.topic in names:
            text = "it is the topic of the dead letter queue, which takes no other rows"
            self._topics[self.options.topic] = Finding(Reason.TOPIC_NAME, text)

    def _check_partitions(
        self,
        asked: npt.NDArray[np.int32],
        topic: str,
        rows: Mask,
        bad: BadRows,
        producer: KafkaProducer,
    ) -> None:
        count = producer.partition_count(topic)
        beyond = rows & (asked >= count)
        if topic not in self._refreshed and beyond.any():
            self._refreshed.add(topic)
            count = producer.partition_count(topic, fresh=True)
            beyond = rows & (asked >= count)
        text = f"the partition is not present in metadata: the topic has {count} partitions"
        bad.refuse(beyond, Reason.PARTITION, text)


def _topics_of_good_rows(columns: RecordColumns, bad: BadRows) -> tuple[dict[int, str], Int64s]:
    """Names by their number, and the number of each row's."""
    topic = columns.topic
    if isinstance(topic, str):
        good = not bad.found or not bad.which.all()
        return {0: topic} if good else {}, np.zeros(columns.rows, np.int64)
    index = topic.indices.to_numpy()
    good_ones = index[bad.which == 0] if bad.found else index
    used = np.bincount(good_ones).nonzero()[0].tolist() if len(good_ones) else []
    return {number: topic.dictionary[number].as_py() for number in used}, index


def _texts(values: pa.Array) -> list[str | None]:
    return [one and one[:_SHOWN].decode(errors="replace") for one in values.to_pylist()]
