"""Limits the number of partition leaders to which a task writes rows without a key.

A task that writes to all partitions has a connection to each leader. With 2000 tasks and 200
leaders, these are 400,000 connections, although each task needs only one connection.

This module only chooses the leaders. ``partitioners`` chooses a partition, and
``producer/accumulator/partition_load.py`` finds slow leaders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.protocol.cluster import PartitionInfos
from spark_kafka_sink.records.partitioning.topic_view import Candidates

Int32s = npt.NDArray[np.int32]

#: 2**32 divided by the golden ratio, and odd.
_GOLDEN = 2_654_435_769
_BITS = 32
_MASK = 2**_BITS - 1


@dataclass(frozen=True, slots=True)
class _Found:
    """The chosen partitions of a topic (``candidates``), and the arguments with which
    :meth:`FewLeaders.candidates` chose these partitions.
    """

    infos: PartitionInfos
    available: Sequence[int]
    slow: AbstractSet[int]
    candidates: Candidates


class FewLeaders:
    """Chooses at most ``most`` leaders for one task, so that the leaders of all tasks are spread
    evenly. ``number`` is Spark's number of the task in its stage, from 0.

    The leaders are chosen when :meth:`candidates` is first called for a topic with more than
    ``most`` leaders. Later calls keep these leaders, because the task is connected to them. As long
    as a chosen leader is slow, or leads no partition of a topic, another leader is used in its
    place.
    """

    def __init__(self, most: int, number: int) -> None:
        self._most = most
        # The leaders of all tasks together must be spread evenly. But a task knows only its own
        # number t, and not the number of tasks. So a task with k leaders uses the points t*k, ...,
        # t*k + k - 1 of the golden-ratio sequence. All points lie between 0 and 1, and for every n,
        # the first n points are spread evenly (Knuth, The Art of Computer Programming, volume 3,
        # 6.4). ``_among`` orders all partitions by their leaders. A point selects a place in this
        # order: 0.25 selects the partition after a quarter of it, and so the leader of this
        # partition. A leader with twice as many partitions is selected twice as often.
        first = number * most
        self._points = [(first + hit) * _GOLDEN & _MASK for hit in range(most)]
        self._leaders: list[int] = []
        self._found: dict[str, _Found] = {}

    def candidates(
        self,
        infos: PartitionInfos,
        available: Sequence[int],
        slow: AbstractSet[int],
        is_near: Callable[[int], bool] | None = None,
    ) -> Candidates:
        """Returns the partitions in ``available`` to which this task writes rows without a key, and
        the weights of these partitions. The weights are None if all are equal.

        The task writes to the partitions of some leaders. These leaders are chosen in three steps.
        Each of the first two steps is skipped if no leader would be left:

        1. If ``is_near`` is given, the leaders outside of the client's rack are left out. For these
           leaders, ``is_near(node)`` is false.
        2. The leaders in ``slow`` are left out.
        3. If more than ``most`` leaders are left, at most ``most`` of them are chosen.
        """
        found = self._found.get(infos.topic)
        if (
            found is None
            or found.infos is not infos
            or found.slow != slow
            or (found.available is not available and found.available != available)
        ):
            among = self._among(infos, available, slow, is_near)
            found = self._found[infos.topic] = _Found(infos, available, slow, among)
        return found.candidates

    def _among(
        self,
        infos: PartitionInfos,
        available: Sequence[int],
        slow: AbstractSet[int],
        is_near: Callable[[int], bool] | None,
    ) -> Candidates:
        numbers, ids = np.array(available, np.int32), _leaders_of(infos, available)
        every = np.unique(ids).tolist()
        near = every if is_near is None else [node for node in every if is_near(node)] or every
        usable = [node for node in near if node not in slow] or near
        if len(usable) < len(every):
            kept = np.isin(ids, usable)
            numbers, ids = numbers[kept], ids[kept]
        known, sizes = np.unique(ids, return_counts=True)
        if len(known) <= self._most:
            return numbers.tolist(), None
        places = np.array(self._points, np.int64) * len(ids) >> _BITS
        here = known[np.searchsorted(np.cumsum(sizes), places, side="right")].tolist()
        if not self._leaders:
            self._leaders = here
        leads = set(known.tolist())
        chosen = Counter(
            own if own in leads else other for own, other in zip(self._leaders, here, strict=True)
        )
        kept = np.isin(ids, list(chosen))
        size_of = dict(zip(known.tolist(), sizes.tolist(), strict=True))
        weights = [chosen[leader] / size_of[leader] for leader in ids[kept].tolist()]
        return numbers[kept].tolist(), None if min(weights) == max(weights) else weights


def in_leader_order(infos: PartitionInfos) -> Int32s:
    """Orders all partitions of a topic by their leaders. Returns the place of each partition in
    this order, as an int32 array.
    """
    order = np.argsort(_leaders_of(infos, range(len(infos))), kind="stable")
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return places


def _leaders_of(infos: PartitionInfos, numbers: Sequence[int]) -> Int32s:
    """The node id of the leader of each partition in ``numbers``. -1 for a partition that ``infos``
    does not contain yet.
    """
    count = len(infos)
    found = (infos.leader(number) if number < count else -1 for number in numbers)
    return np.fromiter(found, np.int32, len(numbers))
