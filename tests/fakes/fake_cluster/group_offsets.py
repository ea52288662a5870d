"""Offsets of consumer groups, those of open transactions apart: Kafka's OffsetMetadataManager.

No members, no expiry. All groups are in one partition of __consumer_offsets, which has no log here:
a transaction's marker for it ends in :meth:`GroupOffsets.end`.
"""

from __future__ import annotations

from typing import NamedTuple

from spark_kafka_sink.protocol.cluster import TopicPartition

OFFSETS_PARTITION = TopicPartition("__consumer_offsets", 0)


class Committed(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str | None


Offsets = dict[TopicPartition, Committed]


class GroupOffsets:
    """``committed`` by group; ``open`` by producer id: its epoch, and what it brought. ``members``
    has the states of groups that have some, which can't be joined here.
    """

    def __init__(self) -> None:
        self.committed: dict[str, Offsets] = {}
        self.open: dict[int, tuple[int, dict[str, Offsets]]] = {}
        self.members: dict[str, str] = {}

    def has_ongoing(self, producer_id: int, epoch: int) -> bool:
        return self.open.get(producer_id, (-1, {}))[0] == epoch

    def add(self, producer: tuple[int, int], group: str, offsets: Offsets) -> None:
        """Into the open transaction of (producer id, epoch)."""
        producer_id, epoch = producer
        brought = self.open.setdefault(producer_id, (epoch, {}))[1]
        brought.setdefault(group, {}).update(offsets)

    def end(self, producer_id: int, *, commit: bool) -> None:
        """The transaction's marker."""
        _, brought = self.open.pop(producer_id, (-1, {}))
        for group, offsets in brought.items() if commit else ():
            self.committed.setdefault(group, {}).update(offsets)

    def states(self) -> dict[str, str]:
        """Of each group that is known; one with offsets alone is Empty."""
        open_ = (group for _, brought in self.open.values() for group in brought)
        return dict.fromkeys((*self.committed, *open_), "Empty") | self.members

    def unstable(self, group: str) -> set[TopicPartition]:
        """The partitions for which an open transaction has an offset."""
        return {tp for _, brought in self.open.values() for tp in brought.get(group, {})}
