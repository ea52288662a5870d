"""What a broker says of its cluster: the answer to Metadata, and how it is read.

Owns: :class:`TopicMetadata`, :class:`MetadataResponse` and their reader, which checks an answer
for sense, so that nobody behind this room meets a port 0, a broker that comes twice, or partition
two billion. Never: what becomes of it (``producer/metadata.py``), nor what an error code means.

On a record's way: first, before anybody knows where the record goes.

It is the largest answer there is, and names what a liar likes to make large: brokers, topics,
partitions, replicas. So it is read straight into the columns that a :class:`Cluster` keeps
(:class:`Nodes`, :class:`PartitionInfos`), and a topic that was not asked for is no answer.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Nodes, NodesBuilder, PartitionInfos
from spark_kafka_sink.protocol.wire import (
    MalformedError,
    WireReader,
    checked_node,
    error_code,
)

#: More brokers than any cluster has, and few enough to be looked through in every poll.
MOST_BROKERS: Final = 5_000

_PARTITION = struct.Struct(">hii")  # error code, partition, leader
_PARTITION_V7 = struct.Struct(">hiii")  # leader epoch
#: What stands in place of authorized operations that were not asked for.
_NOT_TOLD: Final = -(2**31)
_NO_ID = bytes(16)
_NOTHING = array("i")
_RELIABLE_EPOCHS = 9  # Java: MetadataResponse.hasReliableLeaderEpochs


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """``topic_id`` is 16 bytes, or None when the broker has none or does not tell (< v10).

    ``authorized_operations`` has a bit for each operation of Kafka's ``AclOperation`` that we may
    do; None when it was not asked for, or the broker does not tell (< v8).

    No partition came twice. A number that the broker left out has no leader; they are so few that
    the partitions take no more memory than the answer's own size allows.
    """

    error: ErrorCode
    name: str
    topic_id: bytes | None
    internal: bool
    partitions: PartitionInfos
    authorized_operations: int | None = None


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """Brokers, and topics that were asked for, none twice. A leader need not be a broker.

    ``controller`` -1: none known. ``error`` is the whole answer's (v13: REBOOTSTRAP_REQUIRED).
    """

    brokers: Nodes
    cluster_id: str | None
    controller: int
    topics: tuple[TopicMetadata, ...]
    throttle_ms: int = 0
    error: ErrorCode = ErrorCode.NONE


def read_metadata(reader: WireReader, version: int, asked: Iterable[str]) -> MetadataResponse:
    """Metadata v4 to v13, the answer to a question for the topics ``asked``.

    Takes about 400 bytes for each of these topics that is answered, and at most four times the
    answer's own size for the rest; of a real answer, less than its size.
    """
    return _MetadataDecoder(reader, version, asked).parse()


class _MetadataDecoder:
    """Reads one answer.

    ``_asked`` holds the topics still unanswered. ``_gaps`` counts partitions that are not there
    though a higher one is: they take room, so their number, too, is bounded by the bytes received.
    """

    __slots__ = ("_asked", "_gaps", "_most_gaps", "_reader", "_smallest_partition", "_version")

    def __init__(self, reader: WireReader, version: int, asked: Iterable[str]) -> None:
        self._reader = reader
        self._version = version
        self._asked = {name: name for name in asked}
        self._gaps = 0
        self._most_gaps = 64 + reader.remaining // 32
        layout = _PARTITION if version < 7 else _PARTITION_V7
        arrays = 2 if version < 5 else 3
        self._smallest_partition = layout.size + (arrays + 1 if reader.flexible else 4 * arrays)

    def parse(self) -> MetadataResponse:
        reader, version = self._reader, self._version
        throttle_ms = max(0, reader.int32())
        brokers = self._brokers()
        cluster_id = reader.nullable_string()
        controller = reader.int32()
        topics = tuple([self._topic() for _ in range(self._topic_count())])
        if 8 <= version <= 10:
            reader.int32()  # what we may do to the cluster: not asked
        error = error_code(reader.int16()) if version >= 13 else ErrorCode.NONE
        reader.skip_tagged_fields()
        return MetadataResponse(
            brokers, cluster_id, max(-1, controller), topics, throttle_ms, error
        )

    def _brokers(self) -> Nodes:
        reader = self._reader
        count = reader.count(11)
        if count > MOST_BROKERS:
            raise MalformedError(f"it names {count} brokers")
        builder = NodesBuilder()
        for _ in range(count):
            node_id = reader.int32()
            node = checked_node(node_id, reader.string(), reader.int32(), reader.nullable_string())
            reader.skip_tagged_fields()
            builder.add(node)
        try:
            return builder.build()
        except ValueError as error:
            raise MalformedError(str(error)) from None

    def _topic_count(self) -> int:
        count = self._reader.count(8)
        if count > len(self._asked):
            raise MalformedError("it names more topics than were asked for")
        return count

    def _topic(self) -> TopicMetadata:
        reader, version = self._reader, self._version
        error = error_code(reader.int16())
        # Null only for topics that were asked for by id.
        name = self._asked.pop(reader.string(), None)
        if name is None:
            raise MalformedError("a topic comes twice, or was not asked for")
        topic_id = reader.raw(16) if version >= 10 else _NO_ID
        internal = reader.boolean()
        partitions = self._partitions(name)
        operations = reader.int32() if version >= 8 else _NOT_TOLD
        reader.skip_tagged_fields()
        return TopicMetadata(
            error,
            name,
            None if topic_id == _NO_ID else topic_id,
            internal,
            partitions,
            None if operations == _NOT_TOLD else operations,
        )

    def _partitions(self, topic: str) -> PartitionInfos:
        count = self._reader.count(self._smallest_partition)
        if count == 0:
            return PartitionInfos(topic, _NOTHING, _NOTHING)
        rows, ids = array("i"), array("i")
        # Brokers answer in the order of numbers; noted from the first that stands elsewhere.
        numbers: array[int] | None = None
        for index in range(count):
            number = self._partition(rows, ids)
            if numbers is not None:
                numbers.append(number)
            elif number != index:
                numbers = array("i", range(index))
                numbers.append(number)
        if ids and min(ids) < 0:
            raise MalformedError("a replica has a negative id")
        if numbers is not None:
            rows, ids = self._in_order(rows, ids, numbers)
        return PartitionInfos(topic, rows, ids)

    def _partition(self, rows: array[int], ids: array[int]) -> int:
        """Read one partition into the columns; its number."""
        reader, version = self._reader, self._version
        if version < 7:
            code, number, leader = reader.unpack(_PARTITION)
            epoch = -1
        else:
            code, number, leader, epoch = reader.unpack(_PARTITION_V7)
        if number < 0 or leader < -1 or epoch < -1:
            raise MalformedError("a partition, its leader or its leader epoch is negative")
        if version < _RELIABLE_EPOCHS:
            epoch = -1
        reader.int32s_into(ids)
        replicas_end = len(ids)
        reader.skip_int32s()  # in sync: nobody asks
        if version >= 5:
            reader.int32s_into(ids)  # offline
        reader.skip_tagged_fields()
        rows.extend((leader, epoch, code, replicas_end, len(ids)))
        return number

    def _in_order(
        self, rows: array[int], ids: array[int], numbers: array[int]
    ) -> tuple[array[int], array[int]]:
        """The columns as they are when partitions stand in the order of their numbers."""
        count = max(numbers) + 1
        self._gaps += count - len(numbers)
        if self._gaps > self._most_gaps:
            raise MalformedError("partitions are numbered far beyond their count")
        places = array("i", [-1]) * count
        for index, number in enumerate(numbers):
            if places[number] >= 0:
                raise MalformedError("a partition comes twice")
            places[number] = index
        ordered_rows, ordered_ids = array("i"), array("i")
        for place in places:
            if place < 0:
                end = len(ordered_ids)
                ordered_rows.extend((-1, -1, 0, end, end))
                continue
            at = 5 * place
            leader, epoch, code, replicas_end, end = rows[at : at + 5]
            start = rows[at - 1] if place else 0
            before = len(ordered_ids)
            ordered_ids += ids[start:end]
            ordered_rows.extend(
                (leader, epoch, code, before + replicas_end - start, before + end - start)
            )
        return ordered_rows, ordered_ids
