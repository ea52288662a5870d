"""The rows of a task that can't be sent: found, counted, and made letters.

Owns: :class:`DeadLetters`, what a task knows of them: the limits of its topics, topics that it
can't write to, counts by reason. Never: the checks of columns (``records/record_columns.py``), a
letter's bytes (``records/letters/letter_writer.py``), the limits of a batch, which the driver
applies (``letter_counts.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ApiError,
    DeliveryError,
    ErrorCode,
    KafkaError,
    safe_text,
    warn,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import DeadLetterOptions
from spark_kafka_sink.datasource.write.letter_counts import (
    SAMPLES,
    LetterCount,
    LetterSample,
    check_records,
    listed,
    summed,
)
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows, Finding, Reason
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from spark_kafka_sink.records.letters.letter_writer import LetterWriter
from spark_kafka_sink.records.letters.row_limits import RowLimits
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.varint import Int64s

if TYPE_CHECKING:
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer

_log = logging.getLogger(__name__)

#: Which of these topics the principal may not write to, and what brokers say of each.
ForbiddenTopics = Callable[[Sequence[str]], Mapping[str, str]]

#: Bad rows are held up to so many bytes, with these for each row.
_HELD_BYTES, _ROW_BYTES = 1 << 20, 1000
#: Letters that are made at once: their headers are memory besides the rows'.
_MOST_LETTERS = 8192
#: Characters of a key or value in the log, with errors.log.include.messages.
_SHOWN = 200
_OF_CODE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reason.NO_TOPIC,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Reason.FORBIDDEN_TOPIC,
    ErrorCode.INVALID_TOPIC_EXCEPTION: Reason.TOPIC_NAME,
}


class DeadLetters:
    """Of one task attempt, on the writer's thread. ``topic`` is the option."""

    def __init__(
        self,
        options: DeadLetterOptions,
        config: ProducerConfig,
        topic: str | None,
        limits: Mapping[str, TopicLimits],
        *,
        connector: str = "kprod",
        task: int = 0,
        batch_id: int = -1,
        forbidden: ForbiddenTopics = lambda topics: {},  # noqa: ARG005 - none is known to be
    ) -> None:
        #: Where the letters go.
        self.topic = options.topic
        self._options = options
        self._topic_of_rows = topic
        self._task = task
        self._limits = RowLimits(config, limits.get(topic or "", TopicLimits()))
        of_letters = RowLimits(config, limits.get(options.topic, TopicLimits()))
        self._writer = LetterWriter(options, of_letters, connector, task, batch_id)
        self._forbidden = forbidden
        #: Of a column's topics: why rows can't be written to them, None for the others.
        self._topics: dict[str, Finding | None] = {}
        #: Topics whose partitions were requested again, because a row names one they lack.
        self._refreshed: set[str] = set()
        #: By reason.
        self.counts: tuple[LetterCount, ...] = ()
        #: Rows whose letters are not sent yet, the number of each one's finding, and of itself.
        self._held: list[tuple[RecordColumns, Int64s, Int64s]] = []
        self._held_size = 0
        #: The findings of these rows, and their numbers.
        self._found: dict[Finding, int] = {}

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
        if self._topic_of_rows is None:
            new = [name for name in names.values() if name not in self._topics]
            if new:
                self._topics |= self._looked_at(new, producer)
            for number, name in names.items():
                finding = self._topics[name]
                if finding is not None:
                    bad.add(index == number, finding.reason, finding.text)
            names = {number: n for number, n in names.items() if self._topics[n] is None}
        if columns.partition is not None:
            self._check_partitions(columns.partition, names, index, bad, producer)
        self._limits.check(columns, now_ms, bad)

    def letters(
        self, columns: RecordColumns, bad: BadRows, numbers: Int64s, now_ms: int
    ) -> Iterator[RecordColumns]:
        """The letters of the ``bad`` rows, which are counted, and of those held before; few rows
        are held for more. ``numbers`` are theirs within the task. Raises DataError when there are
        too many.
        """
        rows = bad.rows
        unsent, which = columns.take(rows), bad.which.take(rows) - 1
        for number, finding in enumerate(bad.found):
            of_it = (which == number).nonzero()[0]
            first = numbers[of_it[:SAMPLES]].tolist()
            samples = tuple(LetterSample(self._task, row) for row in first)
            count = LetterCount(finding.reason.code, finding.reason.text, len(of_it), samples)
            self.counts = summed((*self.counts, count))
            if self._options.log:
                self._warn(finding, unsent, numbers, of_it)
        check_records(self._options, self.counts, self._task)
        places = [self._found.setdefault(one, len(self._found)) for one in bad.found]
        self._held.append((unsent, np.array(places).take(which), numbers))
        self._held_size += unsent.rows * _ROW_BYTES + unsent.span_bytes()
        return self.held(now_ms) if self._held_size > _HELD_BYTES else iter(())

    def held(self, now_ms: int) -> Iterator[RecordColumns]:
        """The letters of the rows that are held. What a letter costs is mostly what some do."""
        if not self._held:
            return
        held, found = self._held, list(self._found)
        self._held, self._held_size, self._found = [], 0, {}
        rows = RecordColumns.joined([one for one, _, _ in held])
        which = np.concatenate([one for _, one, _ in held])
        numbers = np.concatenate([one for _, _, one in held])
        del held  # joined, they are copies
        for start in range(0, rows.rows, _MOST_LETTERS):
            part = slice(start, start + _MOST_LETTERS)
            some = rows.slice(start, len(which[part]))
            yield self._writer.letters(some, which[part], found, numbers[part], now_ms)

    @property
    def said(self) -> str:
        """For errors: which rows these are. Their letters may be written, held or aborted."""
        return (
            f"{self.rows} rows of partition {self._task} of the DataFrame can't be sent, and were"
            f" for the dead letter queue {self.topic}: {listed(self.counts)}"
        )

    def not_sent(self, error: ApiError) -> KafkaError:
        """The error of letters that can't be sent."""
        return DeliveryError(
            f"{self.rows} rows of partition {self._task} of the DataFrame can't be sent "
            f"({listed(self.counts)}), and can't be written to the dead letter queue "
            f"{self.topic} either: {error.message}",
            hint=error.hint,
            kind=Kind.LETTER_NOT_SENT,
        )

    def _warn(
        self, finding: Finding, unsent: RecordColumns, numbers: Int64s, of_it: Int64s
    ) -> None:
        first = of_it[:SAMPLES].tolist()
        warn(
            _log,
            Kind.ROWS_TO_DEAD_LETTERS,
            "%d rows became dead letters in %s: %s (%s: %s); partition %d of the DataFrame, row%s",
            len(of_it),
            self.topic,
            finding.reason.text,
            finding.reason.code,
            finding.text,
            self._task,
            ",".join(f" {numbers[row]}{self._shown(unsent, row)}" for row in first),
        )

    def _shown(self, columns: RecordColumns, row: int) -> str:
        """With errors.log.include.messages the row itself."""
        if not self._options.log_messages:
            return ""
        one = columns.take(np.array([row]))
        topic = LetterWriter.asked_topics(one)
        asked = topic if isinstance(topic, bytes) else topic[0].as_py()
        key, value = (
            "null" if part is None or part[0].as_py() is None else _text(part[0].as_py())
            for part in (one.key, one.value)
        )
        return f" (topic {_text(asked)}, key {key}, value {value})"

    # -- topics -----------------------------------------------------------------------------------

    def _looked_at(
        self, names: Sequence[str], producer: KafkaProducer
    ) -> dict[str, Finding | None]:
        """Whether rows can be written to these topics; waits for all of them together."""
        found: dict[str, Finding | None] = dict.fromkeys(names)
        for name, code in producer.unavailable_topics(names).items():
            found[name] = Finding(_OF_CODE[code], code.text)
        there = [name for name in names if found[name] is None]
        for name, text in self._forbidden(there).items() if there else ():
            found[name] = Finding(Reason.FORBIDDEN_TOPIC, text)
        if self.topic in found:
            text = "it is the topic of the dead letter queue, which takes no other rows"
            found[self.topic] = Finding(Reason.TOPIC_NAME, text)
        return found

    def _check_partitions(
        self,
        asked: npt.NDArray[np.int32],
        names: Mapping[int, str],
        index: Int64s,
        bad: BadRows,
        producer: KafkaProducer,
    ) -> None:
        for number, name in names.items():
            count = producer.partition_count(name)
            beyond = (index == number) & (asked >= count)
            if beyond.any() and name not in self._refreshed:
                self._refreshed.add(name)
                count = producer.partition_count(name, fresh=True)
                beyond = (index == number) & (asked >= count)
            text = f"the partition is not present in metadata: the topic has {count} partitions"
            bad.add(beyond, Reason.PARTITION, text)


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


def _text(data: bytes) -> str:
    return repr(safe_text(data.decode(errors="replace"), _SHOWN))
