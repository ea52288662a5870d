"""Prepares the input of every partitioner: facts about topics, the partitions in the column
``partition``, and the rows of each topic.

``partitioners`` chooses the partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.varint import Int64s

#: The partitions to choose from, in ascending order, and the weight of each partition. None in
#: place of the weights: all partitions have the same weight.
Candidates = tuple[Sequence[int], Sequence[float] | None]

Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TopicView:
    """The facts about a topic that a partitioner needs.

    * ``count``: the number of partitions of the topic.
    * ``available``: the partitions that have a leader.
    * ``raw_limit``: the number of raw (uncompressed) record bytes that fill a batch of this topic.
      A sticky partition gets about that many bytes before another partition is chosen.
    """

    count: int
    available: Sequence[int]
    raw_limit: int

    @classmethod
    def of(cls, cluster: Cluster, topic: str, raw_limit: int) -> TopicView:
        """Reads the facts about ``topic`` from ``cluster``, which must contain the topic."""
        partitions = cluster.topics[topic]
        return cls(len(partitions), partitions.available, raw_limit)


def explicit(columns: RecordColumns, views: Mapping[str, TopicView]) -> Int32s | None:
    """The partitions that the column ``partition`` sets: an int32 array with the partition of each
    row, or -1 for a row without a partition. None if there is no such column.

    Raises DataError for a partition that the row's topic does not have.
    """
    given = columns.partition
    if given is None:
        return None
    beyond = given >= counts(columns, views)
    if beyond.any():
        row = int(np.argmax(beyond))
        topic = columns.topic if isinstance(columns.topic, str) else columns.topic[row].as_py()
        raise DataError(
            f"Partition {int(given[row])} of topic {topic} with partition count "
            f"{views[topic].count} is not present in metadata (row {columns.first_row + row} of "
            "the Arrow batch).",
            hint="the partition column must be below the topic's partition count, or null",
            kind=Kind.PARTITION_NOT_THERE,
        )
    return given


def counts(columns: RecordColumns, views: Mapping[str, TopicView]) -> Int32s | np.int32:
    """The number of partitions of each row's topic. If all rows have the same topic, the result is
    a single number.
    """
    topic = columns.topic
    if isinstance(topic, str):
        return np.int32(views[topic].count)
    # A dictionary may hold topics that none of these rows uses; their count is never read.
    names = topic.dictionary.to_pylist()
    counts = [views[name].count if name in views else 1 for name in names]
    return np.array(counts, np.int32).take(_codes(topic))


def _codes(topic: pa.DictionaryArray) -> npt.NDArray[np.integer]:
    codes: npt.NDArray[np.integer] = topic.indices.to_numpy()
    return codes


def rows_by_topic(
    columns: RecordColumns, wanted: Bools | None
) -> Iterator[tuple[str, Int64s | None]]:
    """Yields each topic, with the indexes of its rows. If the mask ``wanted`` is given, only the
    rows in this mask are included.

    If ``columns.topic`` is one name and ``wanted`` is None, all rows belong to this topic. Then
    None is yielded in place of the indexes.
    """
    topic = columns.topic
    if isinstance(topic, str):
        yield topic, None if wanted is None else np.flatnonzero(wanted)
        return
    codes = _codes(topic)
    names = topic.dictionary.to_pylist()
    for code in np.unique(codes if wanted is None else codes[wanted]).tolist():
        of_topic = codes == code
        yield names[code], np.flatnonzero(of_topic if wanted is None else of_topic & wanted)
