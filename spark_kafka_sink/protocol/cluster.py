"""What a client knows of a cluster: nodes, topics, partitions, leaders. Values only.

Owns: :class:`TopicPartition`, :class:`Node`, :class:`PartitionInfo`, :class:`Cluster`,
:class:`ClusterResourceListener`. Never: how this is learned or kept fresh
(``producer/metadata.py``). A :class:`Cluster` is immutable and picklable: the driver's preflight
ships one to the tasks inside the writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable


class TopicPartition(NamedTuple):
    """A partition of a topic. Prints as ``topic-partition``, as Kafka does."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker as metadata names it; bootstrap addresses have negative ids."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """One partition: ``leader`` is a node id, or -1; ``leader_epoch`` -1 when not reliable."""

    tp: TopicPartition
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cluster:
    """An immutable view of the cluster (Java's ``Cluster``).

    ``topics`` maps a topic to its partitions, indexed by partition number without gaps (a broker
    that leaves one out gives a leaderless entry). ``topic_ids`` holds the 16 bytes of known ids.
    """

    cluster_id: str | None = None
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, tuple[PartitionInfo, ...]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    controller: int = -1

    @classmethod
    def bootstrap(cls, addresses: Iterable[tuple[str, int]]) -> Cluster:
        """A cluster of which only the bootstrap addresses are known; ids -1, -2, ..."""
        return cls(nodes={-i: Node(-i, h, p) for i, (h, p) in enumerate(addresses, start=1)})

    def partition_count(self, topic: str) -> int | None:
        """How many partitions ``topic`` has, or None while it is unknown."""
        partitions = self.topics.get(topic)
        return None if partitions is None else len(partitions)

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        partitions = self.topics.get(tp.topic)
        if partitions is None or not 0 <= tp.partition < len(partitions):
            return None
        return partitions[tp.partition]

    def leader_for(self, tp: TopicPartition) -> Node | None:
        """The leading broker, or None when the partition or its leader is unknown."""
        info = self.partition(tp)
        return None if info is None else self.nodes.get(info.leader)


@runtime_checkable
class ClusterResourceListener(Protocol):
    """Who wants to know which cluster this is (Java's ClusterResourceListener)."""

    def on_update(self, cluster_id: str) -> None:
        """The cluster's id became known, or is another one now. On the network thread."""
        ...
