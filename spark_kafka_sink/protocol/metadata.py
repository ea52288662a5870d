"""The Metadata request, and its response with checks.

The response is decoded from Kafka's message (``protocol/messages/metadata.py``) and checked: no
caller gets a port 0, two brokers with one id, or a partition number of two billion.
``network/client/metadata.py`` uses the metadata and handles the error codes.

A hostile broker could make each part of a response very large. So each part is decoded directly
into the columns that a :class:`Cluster` keeps (:class:`Nodes`, :class:`PartitionInfos`). A topic
that was not requested is dropped, because some services return all topics if the request names
none.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Node, Nodes, NodesBuilder, PartitionInfos
from spark_kafka_sink.protocol.messages import metadata
from spark_kafka_sink.protocol.request import ApiKey, Buffers
from spark_kafka_sink.protocol.wire import (
    ZERO_UUID,
    MalformedError,
    WireReader,
    checked_node,
)

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages.metadata import (
        MetadataResponseBroker,
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

#: More brokers than any cluster has, and few enough to iterate over in every poll.
MOST_BROKERS: Final = 5_000

#: The value of authorized operations that were not requested.
_NOT_TOLD: Final = -(2**31)
_RELIABLE_EPOCHS: Final = 9  # Java: MetadataResponse.hasReliableLeaderEpochs


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """The metadata of one topic.

    * ``topic_id``: 16 bytes. None if the broker has no topic ids, or returns none (below v10).
    * ``partitions``: the partitions, without duplicates. A partition that the broker has left out
      has an entry without a leader. A response with too many such entries for its size is an error.
    * ``authorized_operations``: a bit for each operation (Kafka's ``AclOperation``) that the
      principal may perform on the topic. None if the operations were not requested, or if the
      broker does not return them (below v8).
    * ``in_sync``: the number of in-sync replicas, by partition number.
    """

    error: ErrorCode
    name: str
    topic_id: bytes | None
    internal: bool
    partitions: PartitionInfos
    authorized_operations: int | None = None
    in_sync: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """A checked Metadata response: the brokers, and the requested topics. Neither of the two has
    duplicates. A partition can have a leader that is not one of the brokers.

    * ``controller``: -1 if the controller is unknown.
    * ``error``: the error code of the whole response (v13: REBOOTSTRAP_REQUIRED).
    """

    brokers: Nodes
    cluster_id: str | None
    controller: int
    topics: tuple[TopicMetadata, ...]
    throttle_time_ms: int = 0
    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """The request for all brokers, and for the metadata of ``topics``. If ``topics`` is empty, only
    the brokers are requested.

    A request for all topics is not possible, because it would not limit the memory for the
    response. With ``include_topic_authorized_operations``, brokers of version 2.3 or newer also
    return the operations that the principal may perform on each topic (v8, KIP-430).
    """

    topics: tuple[str, ...]
    allow_auto_topic_creation: bool = True
    include_topic_authorized_operations: bool = False

    api_key = ApiKey.METADATA
    versions = metadata.VERSIONS

    def encode(self, version: int) -> Buffers:
        """Encodes the body of the request. Implements :meth:`Request.encode`."""
        return metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=name) for name in self.topics],
            allow_auto_topic_creation=self.allow_auto_topic_creation,
            include_topic_authorized_operations=self.include_topic_authorized_operations,
        ).encode(version)

    def read(self, reader: WireReader, version: int) -> MetadataResponse:
        """Reads the body of the response. Implements :meth:`Request.read`."""
        return read_metadata(reader, version, self.topics)


def read_metadata(reader: WireReader, version: int, requested: Iterable[str]) -> MetadataResponse:
    """Reads a Metadata response, v4 to v13. ``requested`` are the topics of the request.

    The memory for the result is limited, even if the broker is hostile. The limit is the sum of two
    numbers: about 400 bytes for each requested topic in the response, and four times the size of
    the response.
    """
    # If each topic has a hundred partitions, the result is usually about as large as the response.
    # If each topic has one partition, the result is about eight times as large: the 400 bytes for
    # each topic are the largest part.
    answer = metadata.MetadataResponse.read(reader, version)
    names = {name: name for name in requested}
    topics = _Topics(version, most_gaps=64 + len(reader.data) // 32)
    found: dict[str, TopicMetadata] = {}
    for topic in answer.topics:
        # Null only for topics that were requested by id.
        name = None if topic.name is None else names.get(topic.name)
        if name is None:
            continue
        if name in found:
            raise MalformedError("a topic comes twice")
        found[name] = topics.checked(name, topic)
    return MetadataResponse(
        _nodes(answer.brokers),
        answer.cluster_id,
        max(-1, answer.controller_id),
        tuple(found.values()),
        max(0, answer.throttle_time_ms),
        answer.error_code,
    )


def _nodes(brokers: Sequence[MetadataResponseBroker]) -> Nodes:
    if len(brokers) > MOST_BROKERS:
        raise MalformedError(f"it names {len(brokers)} brokers")
    builder = NodesBuilder()
    before: Node | None = None
    for broker in brokers:
        node = checked_node(broker.node_id, broker.host, broker.port, broker.rack)
        if node != before:
            builder.add(node)
        before = node
    try:
        return builder.build()
    except ValueError as error:
        raise MalformedError(str(error)) from None


class _Topics:
    """Collects the topics of one response in columns.

    ``_gaps`` counts the partitions that the broker has left out below a topic's largest partition
    number. Each of them gets an entry, which needs memory. If there are more than ``most_gaps``,
    MalformedError is raised.
    """

    __slots__ = ("_gaps", "_most_gaps", "_version")

    def __init__(self, version: int, most_gaps: int) -> None:
        self._version = version
        self._gaps = 0
        self._most_gaps = most_gaps

    def checked(self, name: str, topic: MetadataResponseTopic) -> TopicMetadata:
        operations = topic.topic_authorized_operations
        partitions, in_sync = self._partitions(name, topic.partitions)
        return TopicMetadata(
            topic.error_code,
            name,
            None if topic.topic_id == ZERO_UUID else topic.topic_id,
            topic.is_internal,
            partitions,
            None if operations == _NOT_TOLD else operations,
            in_sync,
        )

    def _partitions(
        self, topic: str, partitions: Iterable[MetadataResponsePartition]
    ) -> tuple[PartitionInfos, array[int]]:
        rows, ids, in_sync = array("i"), array("i"), array("i")
        # Brokers return partitions in ascending order; noted from the first that is not.
        numbers: array[int] | None = None
        reliable = self._version >= _RELIABLE_EPOCHS
        for index, one in enumerate(partitions):
            number, leader, epoch = one.partition_index, one.leader_id, one.leader_epoch
            if number < 0 or leader < -1 or epoch < -1:
                raise MalformedError("a partition, its leader or its leader epoch is negative")
            in_sync.append(len(one.isr_nodes))
            ids.extend(one.replica_nodes)
            replicas_end = len(ids)
            ids.extend(one.offline_replicas)
            rows.extend((leader, epoch if reliable else -1, one.error_code, replicas_end, len(ids)))
            if numbers is not None:
                numbers.append(number)
            elif number != index:
                numbers = array("i", range(index))
                numbers.append(number)
        if ids and min(ids) < 0:
            raise MalformedError("a replica has a negative id")
        if numbers is not None:
            rows, ids, in_sync = self._in_order(rows, ids, in_sync, numbers)
        return PartitionInfos(topic, rows, ids), in_sync

    def _in_order(
        self, rows: array[int], ids: array[int], in_sync: array[int], numbers: array[int]
    ) -> tuple[array[int], array[int], array[int]]:
        """Sorts the columns of a topic by partition number, and adds entries for the partitions
        that are missing.
        """
        count = max(numbers) + 1
        self._gaps += count - len(numbers)
        if self._gaps > self._most_gaps:
            raise MalformedError("partitions are numbered far beyond their count")
        places = array("i", [-1]) * count
        for index, number in enumerate(numbers):
            if places[number] >= 0:
                raise MalformedError("a partition comes twice")
            places[number] = index
        ordered_rows, ordered_ids, ordered_in_sync = array("i"), array("i"), array("i")
        for place in places:
            if place < 0:
                end = len(ordered_ids)
                ordered_rows.extend((-1, -1, 0, end, end))
                ordered_in_sync.append(0)
                continue
            ordered_in_sync.append(in_sync[place])
            at = 5 * place
            leader, epoch, code, replicas_end, end = rows[at : at + 5]
            start = rows[at - 1] if place else 0
            before = len(ordered_ids)
            ordered_ids += ids[start:end]
            ordered_rows.extend(
                (leader, epoch, code, before + replicas_end - start, before + end - start)
            )
        return ordered_rows, ordered_ids, ordered_in_sync
