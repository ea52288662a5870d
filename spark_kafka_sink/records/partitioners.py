"""Which partition each row goes to.

Owns: :class:`Partitioner` and the built-in ones, by Java's names (:func:`partitioner`). Never:
metadata (a :class:`TopicView` is handed in), accumulator state (asked through ``open_room``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.records.record_columns import RecordColumns

#: Raw bytes that the open batch of a partition still takes, or None when no batch is open.
OpenRoom = Callable[[TopicPartition], int | None]


@dataclass(frozen=True, slots=True)
class TopicView:
    """What a partitioner sees of a topic: how many partitions, and those with a leader.

    ``raw_limit`` is how many raw record bytes a batch of this topic takes (see
    ``record_encoder.encode_groups``): the size of a sticky piece.
    """

    count: int
    available: tuple[int, ...]
    raw_limit: int

    @classmethod
    def of(cls, cluster: Cluster, topic: str, raw_limit: int) -> TopicView:
        """The view of ``topic`` in ``cluster``, which must know it."""
        partitions = cluster.topics[topic]
        available = tuple(p.tp.partition for p in partitions if p.leader >= 0)
        return cls(len(partitions), available, raw_limit)


class Partitioner(Protocol):
    """Chooses partitions for rows by columns. State lives as long as the producer; one thread."""

    def assign(
        self, columns: RecordColumns, views: Mapping[str, TopicView], open_room: OpenRoom
    ) -> npt.NDArray[np.int32]:
        """The partition of every row, each within [0, count) of its topic.

        A row's explicit partition beats; one that its topic lacks raises DataError.
        """
        ...


def partitioner(name: str | None, *, ignore_keys: bool = False) -> Partitioner:
    """A new partitioner by Java class name, short or full (None: the built-in one)."""
    raise NotImplementedError
