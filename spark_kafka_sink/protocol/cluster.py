"""The metadata of a Kafka cluster as plain values: nodes, topics, partitions, leaders.

A :class:`Cluster` is immutable and picklable: the driver requests the metadata once, and sends the
cluster to the tasks. ``network/client/metadata.py`` requests and refreshes the metadata.

A hostile broker can claim to have millions of nodes and partitions. In its response, a node takes
only 12 bytes, and a partition 18 bytes. As Python objects they would take 230 and 300 bytes. So
nodes and partitions are kept as columns (:class:`Nodes`, :class:`PartitionInfos`). A :class:`Node`
or :class:`PartitionInfo` is created when a caller reads it.
"""

from __future__ import annotations

import base64
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol, overload, runtime_checkable


class TopicPartition(NamedTuple):
    """A partition of a topic, such as ``("orders", 3)``. Its text is ``orders-3``, as in Kafka."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class Node:
    """A broker. A node with a negative id is a bootstrap address: the client does not know yet
    which broker has this address.
    """

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.id})"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The metadata of a partition.

    * ``leader``: a node id. -1 if there is no leader.
    * ``leader_epoch``: -1 if the leader epoch is unknown or not reliable.
    * ``replicas``: the node ids of all replicas.
    * ``offline``: the node ids of the offline replicas.
    """

    tp: TopicPartition
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


class _ByNumber(dict[int, TopicPartition]):
    """The TopicPartition for each partition number of a topic. Each TopicPartition is created when
    it is first read.
    """

    __slots__ = ("_topic",)

    def __init__(self, topic: str) -> None:
        self._topic = topic

    def __missing__(self, number: int) -> TopicPartition:
        tp = self[number] = TopicPartition(self._topic, number)
        return tp


@lru_cache(64)
def partitions_of(topic: str) -> Mapping[int, TopicPartition]:
    """The TopicPartition for each partition number of ``topic``.

    The result is cached, because a write to a thousand partitions needs these objects again and
    again.
    """
    return _ByNumber(topic)


class PartitionInfos(Sequence[PartitionInfo]):
    """The partitions of one topic, by number, without gaps. Immutable. A partition takes 20 bytes,
    and 4 bytes for each node id of its replicas.

    * ``ids``: the node ids of all replicas. First come the replicas of partition 0, then its
      offline replicas, then the replicas of partition 1, and so on.
    * ``rows``: five integers for each partition: the leader, the leader epoch, the error code, the
      end of its replicas in ``ids``, and the end of its offline replicas in ``ids``.

    Comparisons ignore the error code, because it describes a response and not the partition.
    """

    __slots__ = ("_available", "_ids", "_rows", "partition_count", "topic", "tps")

    def __init__(self, topic: str, rows: array[int], ids: array[int]) -> None:
        self.topic = topic
        #: Its length, which is read for each record.
        self.partition_count = len(rows) // 5
        self._rows = rows
        self._ids = ids
        self._available: Sequence[int] | None = None
        #: The TopicPartition of a number, which must exist.
        self.tps = partitions_of(topic)

    @classmethod
    def of(
        cls, topic: str, infos: Iterable[PartitionInfo], errors: Mapping[int, int] | None = None
    ) -> PartitionInfos:
        """Converts ``infos`` to columns. ``errors`` has error codes by partition number. Raises
        ValueError if ``infos`` is not in the order of partition numbers: 0, 1, 2 and so on.
        """
        rows, ids = array("i"), array("i")
        for number, info in enumerate(infos):
            if info.tp != (topic, number):
                raise ValueError(f"{info.tp} is where {topic}-{number} belongs")
            ids.extend(info.replicas)
            replicas_end = len(ids)
            ids.extend(info.offline)
            code = errors.get(number, 0) if errors else 0
            rows.extend((info.leader, info.leader_epoch, code, replicas_end, len(ids)))
        return cls(topic, rows, ids)

    def __len__(self) -> int:
        return self.partition_count

    @overload
    def __getitem__(self, index: int) -> PartitionInfo: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[PartitionInfo, ...]: ...
    def __getitem__(self, index: int | slice) -> PartitionInfo | tuple[PartitionInfo, ...]:
        numbers = range(len(self))[index]  # IndexError, and negative ones counted from the end
        if isinstance(numbers, range):
            return tuple([self._info(number) for number in numbers])
        return self._info(numbers)

    def _info(self, number: int) -> PartitionInfo:
        at = 5 * number
        leader, epoch, _, replicas_end, offline_end = self._rows[at : at + 5]
        start = self._rows[at - 1] if number else 0
        ids = self._ids
        return PartitionInfo(
            TopicPartition(self.topic, number),
            leader,
            epoch,
            tuple(ids[start:replicas_end]),
            tuple(ids[replicas_end:offline_end]),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionInfos):
            return NotImplemented
        if self.topic != other.topic or self._ids != other._ids:
            return False
        mine, theirs = self._rows, other._rows
        return mine == theirs or all(mine[k::5] == theirs[k::5] for k in (0, 1, 3, 4))

    __hash__ = None  # type: ignore[assignment]  # as a list

    def __reduce__(self) -> tuple[type[PartitionInfos], tuple[str, array[int], array[int]]]:
        return PartitionInfos, (self.topic, self._rows, self._ids)

    def __repr__(self) -> str:
        return f"PartitionInfos({self.topic!r}, {list(self)!r})"

    def leader(self, number: int) -> int:
        """The node id of the partition's leader, or -1 if the partition has no leader. Raises
        IndexError if the topic has no such partition.
        """
        return self._rows[5 * number]

    def leaders(self) -> set[int]:
        """The node ids of all leaders. Contains -1 if a partition has no leader."""
        return set(self._rows[0::5])

    def leader_epochs(self) -> array[int]:
        """The leader epoch of each partition, by number. An unknown leader epoch is -1."""
        return self._rows[1::5]

    @property
    def available(self) -> Sequence[int]:
        """The numbers of the partitions that have a leader, ascending (Java's
        availablePartitionsForTopic).
        """
        found = self._available
        if found is None:
            leaders = self._rows[0::5]
            # All of them, nearly always: 10 000 numbers are 350 KB, a range is nothing.
            found = range(self.partition_count)
            if min(leaders, default=0) < 0:
                found = tuple([n for n in found if leaders[n] >= 0])
            self._available = found
        return found

    def errors(self) -> Iterator[tuple[int, int]]:
        """Yields (partition number, error code) for each partition with an error in the Metadata
        response.
        """
        codes = self._rows[2::5]
        return ((n, code) for n, code in enumerate(codes) if code) if any(codes) else iter(())

    def with_leader(self, number: int, leader: int, epoch: int) -> PartitionInfos:
        """A copy in which partition ``number`` has the leader ``leader``."""
        rows = self._rows[:]
        rows[5 * number] = leader
        rows[5 * number + 1] = epoch
        return PartitionInfos(self.topic, rows, self._ids)


# Port, bytes of the host, bytes of the rack; after them host and rack.
_NODE = struct.Struct(">HHH")
_NO_RACK = 0xFFFF
#: Cached nodes, at most.
_MOST_MADE = 128


class Nodes(Mapping[int, Node]):
    """The brokers by id, ordered by id. Immutable. :class:`NodesBuilder` creates the object."""

    __slots__ = ("_data", "_ids", "_made", "_places")

    def __init__(self, ids: array[int], places: array[int], data: bytes) -> None:
        self._ids = ids
        self._places = places
        self._data = data
        # No lock: two threads that make the same node make equal ones.
        self._made: dict[int, Node] = {}

    @classmethod
    def of(cls, nodes: Iterable[Node]) -> Nodes:
        """Converts nodes to columns. If two nodes have the same id, the last one is used."""
        builder = NodesBuilder()
        for node in {node.id: node for node in nodes}.values():
            builder.add(node)
        return builder.build()

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __getitem__(self, node_id: int) -> Node:
        node = self._made.get(node_id)
        if node is None:
            index = bisect_left(self._ids, node_id)
            if index == len(self._ids) or self._ids[index] != node_id:
                raise KeyError(node_id)
            node = self.at(index)
            if len(self._made) < _MOST_MADE:
                self._made[node_id] = node
        return node

    def __contains__(self, node_id: object) -> bool:
        if not isinstance(node_id, int):
            return False
        index = bisect_left(self._ids, node_id)
        return index < len(self._ids) and self._ids[index] == node_id

    def at(self, index: int) -> Node:
        """The node at ``index`` in the order of node ids."""
        node_id, place = self._ids[index], self._places[index]
        port, host_size, rack_size = _NODE.unpack_from(self._data, place)
        start = place + _NODE.size
        end = start + host_size
        rack = None if rack_size == _NO_RACK else self._data[end : end + rack_size].decode()
        return Node(node_id, self._data[start:end].decode(), port, rack)

    def in_order(self) -> Sequence[Node]:
        """The nodes as a sequence, ordered by id. Each node object is created when it is read."""
        return _NodesInOrder(self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Nodes):
            if not isinstance(other, Mapping):
                return NotImplemented
            return len(self) == len(other) and all(other.get(n) == self[n] for n in self._ids)
        if self._ids != other._ids:
            return False
        return (self._places == other._places and self._data == other._data) or all(
            self.at(index) == other.at(index) for index in range(len(self))
        )

    __hash__ = None  # type: ignore[assignment]  # as a dict

    def __reduce__(self) -> tuple[type[Nodes], tuple[array[int], array[int], bytes]]:
        return Nodes, (self._ids, self._places, self._data)

    def __repr__(self) -> str:
        return f"Nodes({list(self.values())!r})"


class _NodesInOrder(Sequence[Node]):
    __slots__ = ("_nodes",)

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, index: int) -> Node: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Node, ...]: ...
    def __getitem__(self, index: int | slice) -> Node | tuple[Node, ...]:
        numbers = range(len(self._nodes))[index]
        if isinstance(numbers, range):
            return tuple([self._nodes.at(number) for number in numbers])
        return self._nodes.at(numbers)


class NodesBuilder:
    """Collects nodes in any order, and builds :class:`Nodes`."""

    __slots__ = ("_data", "_ids", "_places")

    def __init__(self) -> None:
        self._ids = array("i")
        self._places = array("I")
        self._data = bytearray()

    def add(self, node: Node) -> None:
        host = node.host.encode()
        rack = b"" if node.rack is None else node.rack.encode()
        rack_size = _NO_RACK if node.rack is None else len(rack)
        self._ids.append(node.id)
        self._places.append(len(self._data))
        self._data += _NODE.pack(node.port, len(host), rack_size)
        self._data += host
        self._data += rack

    def build(self) -> Nodes:
        """Returns the collected nodes. Raises ValueError if two nodes have the same id."""
        ids, places = self._ids, self._places
        if any(ids[i] >= ids[i + 1] for i in range(len(ids) - 1)):
            # Only the ids: a list of pairs would need three times the memory while it is sorted.
            ids = array("i", sorted(ids))
            twice = next((ids[i] for i in range(len(ids) - 1) if ids[i] == ids[i + 1]), None)
            if twice is not None:
                raise ValueError(f"broker {twice} comes twice")
            places = array("I", places)
            for node_id, place in zip(self._ids, self._places, strict=True):
                places[bisect_left(ids, node_id)] = place
        return Nodes(ids, places, bytes(self._data))


@dataclass(frozen=True, slots=True)
class Cluster:
    """The metadata of a cluster at one time. Immutable (Java's ``Cluster``).

    * ``topics``: the partitions of each topic, by number. Gaps in a broker's response are filled
      with partitions that have no leader.
    * ``topic_ids``: the id of each topic, 16 bytes, if the id is known.
    * ``controller``: the node id of the controller. -1 if it is unknown.
    """

    cluster_id: str | None = None
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, PartitionInfos] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    controller: int = -1

    @classmethod
    def bootstrap(cls, addresses: Iterable[tuple[str, int]]) -> Cluster:
        """Creates a cluster that has only the bootstrap addresses, as nodes -1, -2 and so on."""
        return cls(nodes={-i: Node(-i, h, p) for i, (h, p) in enumerate(addresses, start=1)})

    def node_list(self) -> Sequence[Node]:
        """The nodes as a sequence. Reading an item can create a new node object."""
        nodes = self.nodes
        return nodes.in_order() if isinstance(nodes, Nodes) else tuple(nodes.values())

    def topic_id(self, topic: str) -> str | None:
        """Returns the topic's id as text, in the form of Kafka's tools (Java's ``Uuid``), or None
        if the id is unknown.
        """
        known = self.topic_ids.get(topic)
        return None if known is None else base64.urlsafe_b64encode(known).rstrip(b"=").decode()

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        partitions = self.topics.get(tp.topic)
        if partitions is None or not 0 <= tp.partition < len(partitions):
            return None
        return partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> int:
        """Returns the node id of the leader of ``tp``, or -1 if the partition or its leader is
        unknown.
        """
        partitions = self.topics.get(tp.topic)
        if partitions is None or not 0 <= tp.partition < len(partitions):
            return -1
        return partitions.leader(tp.partition)

    def leader_for(self, tp: TopicPartition) -> Node | None:
        """The broker that leads ``tp``, or None if the partition or its leader is unknown."""
        leader = self.leader(tp)
        return None if leader < 0 else self.nodes.get(leader)


@runtime_checkable
class ClusterResourceListener(Protocol):
    """A listener that is called with the id of the Kafka cluster (Java's
    ClusterResourceListener).
    """

    def on_update(self, cluster_id: str) -> None:
        """Handles the cluster's id. The network thread calls this method when the id becomes known,
        and each time the id changes. If the id is already known when the listener is added, the
        thread that adds the listener calls this method.
        """
        ...
