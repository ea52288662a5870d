"""Calls a user's partitioner class, if ``partitioner.class`` is the import path of a class.

:class:`ColumnPartitioner` is the interface of such a class. This module calls the user's object
once for each topic of a batch, and checks the results. ``import_paths`` imports the class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.base.errors import ConfigError, DataError, safe_text
from spark_kafka_sink.base.security import import_paths
from spark_kafka_sink.records.gather import integers
from spark_kafka_sink.records.partitioning.topic_view import TopicView, explicit, rows_by_topic
from spark_kafka_sink.records.record_columns import RecordColumns, without_views

OPTION = "partitioner.class"
Int32s = npt.NDArray[np.int32]


class ColumnPartitioner(Protocol):
    """The interface that a user's partitioner class implements. Each producer creates two objects
    of the class, without arguments: one for ``send_columns``, and one for ``send``. If the tasks of
    a Python worker share a producer, they also share its objects.
    """

    def partition(
        self,
        topic: str,
        keys: pa.Array | None,
        values: pa.Array | None,
        partition_count: int,
        available: Sequence[int],
    ) -> Sequence[int] | npt.NDArray[np.integer] | pa.Array:
        """Returns the partition of each row, from 0 to ``partition_count`` - 1. All rows of the
        call have the same ``topic``.

        ``keys`` and ``values`` are binary columns. A column is None if all of its values are null.
        ``available`` are the partitions that have a leader now.
        """
        ...


def check(path: str) -> None:
    """Raises ConfigError if the object with the import path ``path`` can't be imported, or has no
    method ``partition``.
    """
    if not callable(getattr(import_paths.find(path, OPTION), "partition", None)):
        raise ConfigError(
            f"{OPTION}: {path} has no method partition",
            hint="it gets topic, keys, values, partition_count and available, and returns a number"
            " for each row",
        )


class OwnPartitioner:
    """A :class:`Partitioner` that calls a user's :class:`ColumnPartitioner`. If a row names its
    partition, the user's class is not called for this row.
    """

    def __init__(self, path: str) -> None:
        check(path)
        self._path = path
        #: The object that the user's class made.
        self.own: ColumnPartitioner = import_paths.make(path, OPTION)  # type: ignore[assignment]

    def assign(
        self, columns: RecordColumns, views: Mapping[str, TopicView], open_room: object
    ) -> Int32s:
        """Implements ``partitioners.Partitioner.assign``. Also raises DataError if the user's
        method raises an exception, or does not return exactly one valid partition for each row.
        """
        del open_room
        given = explicit(columns, views)
        if given is not None and (given >= 0).all():
            return given
        out = np.empty(columns.rows, np.int32) if given is None else given.copy()
        for topic, rows in rows_by_topic(columns, None if given is None else given < 0):
            out[slice(None) if rows is None else rows] = self._ask(
                columns, topic, rows, views[topic]
            )
        return out

    def _ask(
        self,
        columns: RecordColumns,
        topic: str,
        rows: npt.NDArray[np.int64] | None,
        view: TopicView,
    ) -> Int32s:
        count = columns.rows if rows is None else len(rows)
        keys, values = (
            None if column is None else without_views(column)
            for column in (columns.key, columns.value)
        )
        if rows is not None:
            index = integers(rows)
            keys, values = (None if one is None else one.take(index) for one in (keys, values))
        try:
            said = self.own.partition(topic, keys, values, view.count, view.available)
        except Exception as error:  # noqa: BLE001 - a user's code may raise anything
            raised = import_paths.place_of(error)
        else:
            return self._checked(said, topic, count, view.count)
        # Not within the handler: the context would bring its text, which may hold a key.
        raise DataError(
            f"{OPTION} {self._path} raised {raised} for topic {safe_text(topic)}",
            hint="its text is not shown, because it may hold a row",
        )

    def _checked(self, said: object, topic: str, count: int, partitions: int) -> Int32s:
        chosen = np.asarray(said)
        if chosen.shape != (count,) or chosen.dtype.kind not in "iu":
            raise DataError(
                f"{OPTION} {self._path} returned {chosen.dtype} of shape {chosen.shape} for"
                f" {count} rows of topic {topic}",
                hint="it must return one whole number for each row",
            )
        if count and not 0 <= int(chosen.min()) <= int(chosen.max()) < partitions:
            wrong = int(chosen.max()) if int(chosen.max()) >= partitions else int(chosen.min())
            raise DataError(
                f"{OPTION} {self._path} returned partition {wrong} for topic {topic}, which has"
                f" {partitions}",
                hint="it must return numbers from 0 to partition_count - 1",
            )
        return chosen.astype(np.int32)
