"""One partition's log as a broker keeps it for one producer id (Kafka's ProducerStateManager).

A record is named by its sequence number. The last sequence and the last five batches are
remembered; a producer that is not known may begin with any sequence.
"""

from __future__ import annotations

from collections import deque

from spark_kafka_sink.producer.partition_sequences import Answer


class PartitionLog:
    """``records`` are the sequence numbers in the order of their offsets."""

    def __init__(self) -> None:
        self.records: list[int] = []
        self.last: int | None = None
        self.window: deque[tuple[int, int, int]] = deque(maxlen=5)

    def append(self, first: int, count: int) -> tuple[Answer, int]:
        """The answer to ``count`` records from sequence ``first``, and their base offset."""
        end = first + count - 1
        for known_first, known_end, offset in self.window:
            if (known_first, known_end) == (first, end):
                return Answer.ACKNOWLEDGED, offset
        if self.last is not None and first != self.last + 1:
            return Answer.OUT_OF_ORDER, -1
        offset = len(self.records)
        self.records.extend(range(first, first + count))
        self.last = end
        self.window.append((first, end, offset))
        return Answer.ACKNOWLEDGED, offset

    def restart(self) -> None:
        """A clean restart: the snapshot holds each producer's last batch only."""
        while len(self.window) > 1:
            self.window.popleft()
