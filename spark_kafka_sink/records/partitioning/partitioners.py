"""The built-in partitioners, which choose the partition of each row.

The default partitioner chooses the partition of a row in this order:

1. A row that names its partition gets this partition.
2. A row with a key gets the hash of the key modulo the number of *all* partitions. (``key_rules``
   defines the hash.)
3. All other rows are *sticky* (KIP-794). Sticky rows are written to one partition until they fill
   about one batch, then to another partition.

The caller passes the facts about topics (:class:`TopicView`), and a function ``open_room`` that
returns the state of a partition's open batch.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.batch_cutter import size_bounds
from spark_kafka_sink.records.partitioning.key_rules import JAVA_RULE, Choice, KeyRule, key_rule
from spark_kafka_sink.records.partitioning.own_partitioner import OwnPartitioner
from spark_kafka_sink.records.partitioning.topic_view import (
    Candidates,
    TopicView,
    counts,
    explicit,
    rows_by_topic,
)
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.record_encoder import content_sizes
from spark_kafka_sink.records.varint import Int64s

Int32s = npt.NDArray[np.int32]
Bools = npt.NDArray[np.bool_]

#: A function that returns the raw bytes that still fit into the open batch of a partition. It
#: returns None if no batch is open.
OpenRoom = Callable[[TopicPartition], int | None]

#: The largest assumed timestamp delta of a row without a timestamp, in ms. The delta is as large as
#: the age of the open batch.
_SPREAD_MS = 8191


class Partitioner(Protocol):
    """Chooses the partition of each row, for whole columns. Each producer has its own partitioner,
    and only one thread may use it.
    """

    def assign(
        self, columns: RecordColumns, views: Mapping[str, TopicView], open_room: OpenRoom
    ) -> Int32s:
        """Returns the partition of every row, as an int32 array. Raises DataError if a row names a
        partition that its topic does not have.

        ``views`` has the facts about each topic. ``open_room`` returns the number of raw
        (uncompressed) bytes that still fit into the open batch of a partition, or None if no batch
        is open.
        """
        ...


#: A function that returns the partitions of a topic that can become the next sticky partition, and
#: KIP-794's adaptive weights (by the accumulator's queues). Its arguments are the topic, and the
#: partitions that have a leader.
Choose = Callable[[str, Sequence[int]], Candidates]


def all_alike(topic: str, available: Sequence[int]) -> Candidates:
    """All partitions in ``available``, without weights: each partition is chosen equally often."""
    del topic
    return available, None


@dataclass(slots=True)
class _Sticky:
    """The current sticky partition of a topic, and the number of raw bytes that this partition has
    received since it was chosen. Rows without a key are written to the sticky partition.
    """

    partition: int
    produced: int = 0


class BuiltInPartitioner:
    """Java's default partitioner (``BuiltInPartitioner``, KIP-794). Rows with a key are distributed
    by the key's murmur2 hash. Rows without a key are *sticky*: they are written to one partition
    until they fill about one batch, then to another partition.

    The argument ``rule`` replaces this treatment of rows with a key and without a key
    (:class:`KeyRule`).
    """

    def __init__(
        self,
        *,
        candidates: Choose = all_alike,
        rng: random.Random | None = None,
        rule: KeyRule = JAVA_RULE,
    ) -> None:
        self._rule = rule
        self._candidates = candidates
        # A task's start must not be every other task's start, or they gang up on one partition.
        self._random = random.Random() if rng is None else rng  # noqa: S311 - spreads load
        self._sticky: dict[str, _Sticky] = {}

    def assign(
        self, columns: RecordColumns, views: Mapping[str, TopicView], open_room: OpenRoom
    ) -> Int32s:
        """Implements :meth:`Partitioner.assign`."""
        if columns.rows == 0:
            return np.empty(0, np.int32)
        given = explicit(columns, views)
        if given is not None and (given >= 0).all():
            return given
        rule, keys = self._rule, columns.key
        choice = rule.null if keys is None else rule.other
        all_sticky = choice is Choice.STICKY
        if all_sticky:
            out = np.empty(columns.rows, np.int32)
        elif choice is Choice.HASH:
            rule.check(columns, given)
            out = _by_hash(rule, columns, views)
        else:
            out = self._anywhere(columns, views)
        sticky = None if all_sticky or keys is None else rule.sticky(keys)
        if given is not None:
            chosen = given >= 0
            out[chosen] = given[chosen]
            if all_sticky or sticky is not None:
                sticky = ~chosen if sticky is None else sticky & ~chosen
        if all_sticky or sticky is not None:
            self._assign_sticky(columns, views, open_room, sticky, out)
        return out

    def _anywhere(self, columns: RecordColumns, views: Mapping[str, TopicView]) -> Int32s:
        """A random partition for each row, among the partitions that have a leader."""
        out = np.empty(columns.rows, np.int32)
        dice = np.random.default_rng(self._random.getrandbits(64))
        for topic, rows in rows_by_topic(columns, None):
            view = views[topic]
            among = np.array(view.available or range(view.count), np.int32)
            count = columns.rows if rows is None else len(rows)
            out[slice(None) if rows is None else rows] = dice.choice(among, count)
        return out

    def _assign_sticky(
        self,
        columns: RecordColumns,
        views: Mapping[str, TopicView],
        open_room: OpenRoom,
        sticky: Bools | None,
        out: Int32s,
    ) -> None:
        if sticky is not None and not sticky.any():
            return
        content = content_sizes(columns)
        spread = _SPREAD_MS if columns.timestamp is None else int(np.ptp(columns.timestamp))
        for topic, rows in rows_by_topic(columns, sticky):
            view = views[topic]
            part = content if rows is None else content.take(rows)
            sizes = size_bounds(part, len(part), view.raw_limit, spread)
            out[slice(None) if rows is None else rows] = self._runs(topic, view, sizes, open_room)

    def _runs(self, topic: str, view: TopicView, sizes: Int64s, open_room: OpenRoom) -> Int32s:
        """Chooses the partitions of the sticky rows of ``topic``. Rows that follow each other get
        the same partition, until they fill about one batch. Then the next partition is chosen.

        ``sizes`` are upper bounds of the rows' sizes in bytes.
        """
        # Java compares the received bytes with the limit before each row. Here, one comparison is
        # made for all consecutive rows of a partition.
        ends = np.cumsum(sizes)
        partitions: list[int] = []
        lengths: list[int] = []
        state = self._sticky.get(topic)
        row = taken = 0
        while row < len(sizes):
            if state is None or state.partition >= view.count or self._is_lost(state, view):
                state = self._sticky[topic] = _Sticky(self._next(topic, view))
            room = open_room(TopicPartition(topic, state.partition))
            left = _until_switch(state.produced, room, view.raw_limit)
            if left <= 0 or (state.produced and sizes[row] > left):
                state = None
                continue
            # The row that would exceed the limit begins the next run: here it would open a new
            # batch just before the switch. A first row that is too large is a batch by itself.
            end = int(np.searchsorted(ends, taken + left, side="right"))
            end = min(max(end, row + 1), len(sizes))
            partitions.append(state.partition)
            lengths.append(end - row)
            state.produced += int(ends[end - 1]) - taken
            row, taken = end, int(ends[end - 1])
            if row < len(sizes):
                # This run fills its batch, so the next one goes to another partition. ``open_room``
                # would still return the state before this run, which is not appended yet.
                state = None
        return np.repeat(np.array(partitions, np.int32), lengths)

    def _is_lost(self, state: _Sticky, view: TopicView) -> bool:
        return bool(view.available) and state.partition not in view.available

    def _next(self, topic: str, view: TopicView) -> int:
        """Chooses the next sticky partition at random, with the weights of the topic's
        candidates.
        """
        among, weights = self._candidates(topic, view.available or range(view.count))
        if weights is None:
            return self._random.choice(among)
        return self._random.choices(among, weights)[0]


def _by_hash(rule: KeyRule, columns: RecordColumns, views: Mapping[str, TopicView]) -> Int32s:
    """The hash of each row's key modulo the number of partitions. The caller overwrites the result
    for rows that the rule does not hash.
    """
    if columns.key is None:
        numbers = np.full(columns.rows, rule.number(b""), np.uint32)
    else:
        numbers = rule.numbers(columns.key)
    partitions: Int32s = (numbers % counts(columns, views).astype(np.uint32)).view(np.int32)
    return partitions


def _until_switch(produced: int, room: int | None, limit: int) -> int:
    """The number of bytes that a sticky partition still gets before another partition is chosen.
    All sizes are raw (uncompressed) bytes.

    * ``produced``: the bytes that the partition has received since it was chosen.
    * ``room``: the bytes that still fit into its open batch. None if no batch is open.
    * ``limit``: the bytes that fill a batch.

    As in Java (KIP-794, ``updatePartitionInfo``), another partition is chosen in either of these
    cases:

    * The partition has received at least ``limit`` bytes, and has no open batch with room. So no
      batch is left partly filled.
    * The partition has received at least twice the ``limit``, even if an open batch has room.
    """
    if room is None:
        if produced >= limit:
            return 0
        room = limit
    full = produced + max(room, 0)
    while full < limit:
        full += limit
    return min(full, 2 * limit) - produced


#: The value of ``partitioner.class`` for Java's RoundRobinPartitioner.
ROUND_ROBIN = "RoundRobinPartitioner"


class RoundRobinPartitioner:
    """Java's ``RoundRobinPartitioner``: row after row goes to the next partition that has a leader.
    Keys have no effect.

    The first partition is random. If all tasks began at partition 0, this partition would get the
    first rows of all tasks.
    """

    def __init__(self, rng: random.Random | None = None) -> None:
        self._random = random.Random() if rng is None else rng  # noqa: S311 - spreads load
        self._next: dict[str, int] = {}

    def assign(
        self, columns: RecordColumns, views: Mapping[str, TopicView], open_room: OpenRoom
    ) -> Int32s:
        """Implements :meth:`Partitioner.assign`."""
        del open_room
        given = explicit(columns, views)
        out = np.empty(columns.rows, np.int32) if given is None else given.copy()
        for topic, rows in rows_by_topic(columns, None if given is None else given < 0):
            view = views[topic]
            turn = np.array(view.available or range(view.count), np.int32)
            count = columns.rows if rows is None else len(rows)
            first = self._taken(topic, count, len(turn))
            out[slice(None) if rows is None else rows] = turn.take(
                np.arange(first, first + count) % len(turn)
            )
        return out

    def next(self, topic: str, among: Sequence[int]) -> int:
        """Chooses the partition for a single record: the next one in ``among``, the partitions of
        the topic that have a leader.
        """
        return among[self._taken(topic, 1, len(among)) % len(among)]

    def _taken(self, topic: str, count: int, among: int) -> int:
        """Reserves numbers for the next ``count`` rows of a topic, and returns the first of these
        numbers. The rows of a topic have consecutive numbers. The first number of a topic is
        random.

        ``among`` is the number of partitions with a leader. The row with the number p is written to
        the partition with the index p modulo ``among``.
        """
        first = self._next.get(topic)
        if first is None:
            first = self._random.randrange(among)
        self._next[topic] = first + count
        return first


def without_fixed_partition(
    name: str | None, columns: RecordColumns, *, ignore_keys: bool = False
) -> Bools:
    """The mask of the rows that a partitioner may write to another partition if it gets them again,
    because it chooses at random, or depending on the rows before. The partition of all other rows
    is fixed by the hash of their key, or by the column ``partition``.

    ``name`` is a value of ``partitioner.class``, or None for the built-in partitioner. With a
    user's class, only the column ``partition`` fixes the partition of a row.
    """
    rule, keys = key_rule(name, ignore_keys=ignore_keys), columns.key
    mask: Bools | None = None
    if rule is None or (rule.null if keys is None else rule.other) is not Choice.HASH:
        mask = np.ones(columns.rows, np.bool_)
    elif keys is not None:
        mask = rule.sticky(keys)
    if mask is None:
        return np.zeros(columns.rows, np.bool_)
    return mask if columns.partition is None else mask & (columns.partition < 0)


def partitioner(
    name: str | None, *, ignore_keys: bool = False, candidates: Choose = all_alike
) -> Partitioner:
    """Creates the partitioner for ``name``, a value of ``partitioner.class``.

    * None: the built-in partitioner. If ``ignore_keys`` is true, it treats all rows as rows without
      a key.
    * A name of ``key_rules``, or RoundRobinPartitioner.
    * The import path of a user's class. Raises ConfigError if the class can't be imported or
      created.

    ``candidates`` returns the partitions that can be chosen for rows without a key.
    """
    rule = key_rule(name, ignore_keys=ignore_keys)
    if name is None or rule is not None:
        return BuiltInPartitioner(candidates=candidates, rule=rule or JAVA_RULE)
    return RoundRobinPartitioner() if name == ROUND_ROBIN else OwnPartitioner(name)
