"""The Produce request and its response, encoded and decoded without copying batches.

This module writes the bytes around complete record batches (v3 to v12), and never changes the bytes
of a batch. Decoding the response needs a limited amount of memory.

The encoded request is a list of buffers for ``socket.sendmsg``: a small buffer with the fields
before a batch, the buffers of this batch, the next small buffer, and so on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from spark_kafka_sink.base.errors import ErrorCode, IllegalStateError, UnsupportedVersionError
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.request import ApiKey, Buffer, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import (
    MalformedError,
    WireReader,
    checked_node,
    error_of,
)

# The change of each version.
_LOG_START_OFFSET: Final = 5
_RECORD_ERRORS: Final = 8  # KIP-467
_FIRST_FLEXIBLE: Final = 9
_CURRENT_LEADER: Final = 10  # KIP-951
_LATEST: Final = 12  # the first of transaction protocol 2

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_TWO_INT32 = struct.Struct(">ii")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
# Index, error code, base offset, log append time; from version 5 on the log start offset, too.
_PARTITION_V3 = struct.Struct(">ihqq")
_PARTITION_V5 = struct.Struct(">ihqqq")
_LEADER = struct.Struct(">ii")
# No record errors, no message, no tagged fields: the end of nearly every partition.
_PLAIN_END_FLEXIBLE = b"\x01\x00\x00"
_PLAIN_END_CLASSIC = b"\x00\x00\x00\x00\xff\xff"


class PartitionProduceData(NamedTuple):
    """The record batch to send to a partition. ``buffers`` are the bytes of the batch, and ``size``
    is the total size of these buffers.
    """

    tp: TopicPartition
    buffers: Buffers
    size: int


#: Creates one from its fields in order; a named tuple's constructor is a Python function.
new_produce_data: Callable[[tuple[TopicPartition, Buffers, int]], PartitionProduceData] = partial(
    tuple.__new__, PartitionProduceData
)


@dataclass(frozen=True, slots=True)
class RecordError:
    """A record that the broker has refused. ``batch_index`` is its index in the batch, from 0."""

    batch_index: int
    message: str | None


class PartitionProduceResponse(NamedTuple):
    """The broker's response for one partition.

    * ``base_offset``: the offset of the first record of the batch.
    * ``log_append_time_ms``: -1 if the records keep the timestamps of the producer.
    * ``leader``: the partition's new leader (node id and epoch, KIP-951). None if the broker
      returns none.

    A ``base_offset`` or ``log_start_offset`` of -1 means that the broker returns no value.
    """

    tp: TopicPartition
    error: ErrorCode
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    leader: tuple[int, int] | None = None


#: Makes an object from its fields in order, as above: an object is made for each batch.
_new_response: Callable[
    [
        tuple[
            TopicPartition,
            ErrorCode,
            int,
            int,
            int,
            Sequence[RecordError],
            str | None,
            tuple[int, int] | None,
        ]
    ],
    PartitionProduceResponse,
] = partial(tuple.__new__, PartitionProduceResponse)


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    """The response to a Produce request. It has an item for each partition of the request.

    ``node_endpoints`` are the addresses of new leaders (KIP-951), at most one for each partition.
    """

    partitions: tuple[PartitionProduceResponse, ...]
    throttle_time_ms: int = 0
    node_endpoints: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """A Produce request, with at most one batch for each partition.

    * ``acks``: -1, 0 or 1.
    * ``max_version``: at most 12. For a transaction of version 1, at most 11.

    These versions identify a topic by its name. If a topic is deleted and created again, a request
    for the old topic reaches the new topic. If batches are lost with the old topic, the producer
    can detect the loss from the offsets of later batches (``partition_sequences.py``).
    """

    acks: int
    timeout_ms: int
    data: tuple[PartitionProduceData, ...]
    transactional_id: str | None = None
    # Version 13 identifies a topic by its id. It is not needed: every 4.x broker accepts version
    # 12.
    max_version: int = _LATEST
    min_version: int = 3

    api_key = ApiKey.PRODUCE

    @property
    def versions(self) -> VersionRange:
        return VersionRange(self.min_version, self.max_version)

    def encode(self, version: int) -> Buffers:
        """Encodes the request as a list of buffers. The buffers of the batches are not copied.

        Topics are in the order in which they first occur in ``data``, and a topic's partitions in
        the order of ``data``. Raises IllegalStateError if a partition occurs twice, or if a
        ``size`` is wrong.
        """
        _check_version(version)
        topics: dict[str, list[PartitionProduceData]] = {}
        batches: list[Buffer] = []
        said = 0
        for item in self.data:
            topic = item.tp.topic
            if topic in topics:
                topics[topic].append(item)
            else:
                topics[topic] = [item]
            batches += item.buffers
            said += item.size
        size = sum(map(len, batches))
        # With a wrong size or two batches of a partition, the broker would close the connection, or
        # misread all bytes after the mistake.
        if said != size:
            raise IllegalStateError(f"batches of {said} bytes hold {size} bytes")
        for topic, items in topics.items():
            if len({item.tp.partition for item in items}) != len(items):
                raise IllegalStateError(f"two batches for one partition of {topic} in one request")
        return (_encode_flexible if version >= _FIRST_FLEXIBLE else _encode_classic)(self, topics)

    def read(self, reader: WireReader, version: int) -> ProduceResponse:
        """Reads the response. It must have each partition of this request exactly once.

        The memory for the response is limited by the size of this request and by the number of
        received bytes.
        """
        _check_version(version)
        return _ResponseDecoder(version, self.data).parse(reader)


def _check_version(version: int) -> None:
    if not 3 <= version <= _LATEST:
        raise UnsupportedVersionError(
            f"PRODUCE v{version} is not spoken here; versions 3 to {_LATEST} are",
        )


def _encode_classic(
    request: ProduceRequest, topics: dict[str, list[PartitionProduceData]]
) -> list[Buffer]:
    """Encodes versions 3 to 8. In these versions, the length of a string is an int16. A count or a
    size is an int32.
    """
    out: list[Buffer] = []
    head = _classic_string(request.transactional_id)
    head += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms) + _INT32.pack(len(topics))
    pack = _TWO_INT32.pack
    for topic, items in topics.items():
        head += _classic_string(topic) + _INT32.pack(len(items))
        for item in items:
            out.append(head + pack(item.tp.partition, item.size))
            out += item.buffers
            head = b""
    if head:
        out.append(head)  # no partition: the head only
    return out


def _encode_flexible(
    request: ProduceRequest, topics: dict[str, list[PartitionProduceData]]
) -> list[Buffer]:
    """Encodes versions 9 to 12. These versions have tagged fields. A length, a count or a size is
    compact: a varint of the number plus one.
    """
    out: list[Buffer] = []
    head = _compact_string(request.transactional_id)
    head += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
    head += _unsigned_varint(len(topics) + 1)
    pack = _INT32.pack
    for topic, items in topics.items():
        head += _compact_string(topic) + _unsigned_varint(len(items) + 1)
        for item in items:
            out.append(head + pack(item.tp.partition) + _unsigned_varint(item.size + 1))
            out += item.buffers
            head = b"\x00"  # the partition's tagged fields: none
        head += b"\x00"  # the topic's
    out.append(head + b"\x00")  # the request's
    return out


def _unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x200000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _classic_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return _INT16.pack(len(raw)) + raw


def _compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    raw = text.encode()
    return _unsigned_varint(len(raw) + 1) + raw


class _ResponseDecoder:
    """Reads a response, and checks that the response has each partition of the request exactly
    once.

    * ``_requested``: the partitions of the request that were not read yet. Partitions that are left
      at the end are missing in the response.
    * ``_surplus``: the partitions that were not requested. They are dropped.
    """

    __slots__ = (
        "_data", "_layout", "_plain_end", "_requested", "_smallest_partition", "_surplus",
        "_version",
    )  # fmt: skip

    def __init__(self, version: int, data: Sequence[PartitionProduceData]) -> None:
        self._version = version
        self._layout = _PARTITION_V3 if version < _LOG_START_OFFSET else _PARTITION_V5
        if version >= _FIRST_FLEXIBLE:
            self._plain_end = _PLAIN_END_FLEXIBLE
        else:
            self._plain_end = _PLAIN_END_CLASSIC if version >= _RECORD_ERRORS else b""
        # A plain end is also the shortest.
        self._smallest_partition = self._layout.size + len(self._plain_end)
        requested: dict[str, dict[int, TopicPartition]] = {}
        for item in data:
            tp = item.tp
            if tp.topic not in requested:
                requested[tp.topic] = {}
            requested[tp.topic][tp.partition] = tp
        self._requested = requested
        self._data = data
        self._surplus: set[TopicPartition] = set()

    def parse(self, reader: WireReader) -> ProduceResponse:
        requested = self._requested
        partitions: list[PartitionProduceResponse] = []
        # A topic has at least its name's length and its count of partitions.
        for _ in range(reader.count(3 if reader.flexible else 6)):
            name = reader.string()
            topic = requested.get(name, {})
            count = reader.count(self._smallest_partition)
            partitions += [self._partition(reader, name, topic) for _ in range(count)]
            reader.skip_tagged_fields()
        if any(requested.values()):
            raise MalformedError("a partition is missing")
        if self._surplus:
            partitions = [one for one in partitions if one.tp not in self._surplus]
        throttle_time_ms = max(0, reader.int32())
        endpoints: tuple[Node, ...] = ()
        for tag in reader.tagged_fields():
            if tag == 0 and self._version >= _CURRENT_LEADER:
                endpoints = _node_endpoints(reader, len(partitions))
        return ProduceResponse(tuple(partitions), throttle_time_ms, endpoints)

    def _partition(
        self, reader: WireReader, name: str, topic: dict[int, TopicPartition]
    ) -> PartitionProduceResponse:
        layout, start = self._layout, reader.position
        index, code, base_offset, log_append_time_ms, *rest = layout.unpack_from(reader.data, start)
        reader.position = start + layout.size
        tp = topic.pop(index, None)
        if tp is None:
            tp = self._not_requested(TopicPartition(name, index))
        log_start_offset = rest[0] if rest else -1
        if base_offset < -1 or log_append_time_ms < -1 or log_start_offset < -1:
            raise MalformedError("an offset or a timestamp is negative")
        error = ErrorCode.NONE if code == 0 else error_of(code)
        end = start + self._smallest_partition
        if reader.data[reader.position : end] == self._plain_end:
            reader.position = end
            return _new_response(
                (tp, error, base_offset, log_append_time_ms, log_start_offset, (), None, None)
            )
        leader: tuple[int, int] | None = None
        record_errors = reader.structs(6, _record_error, _record_error, self._version).checked(
            lambda error: error
        )
        message = reader.nullable_string()
        for tag in reader.tagged_fields():
            if tag == 0 and self._version >= _CURRENT_LEADER:
                leader_id, epoch = reader.unpack(_LEADER)
                reader.skip_tagged_fields()
                # Java uses these only when both are known.
                leader = (leader_id, epoch) if leader_id >= 0 and epoch >= 0 else None
        return PartitionProduceResponse(
            tp,
            error,
            base_offset,
            log_append_time_ms,
            log_start_offset,
            record_errors,
            message,
            leader,
        )

    def _not_requested(self, tp: TopicPartition) -> TopicPartition:
        if any(item.tp == tp for item in self._data):
            raise MalformedError("it answers for a partition twice")
        self._surplus.add(tp)
        return tp


def _record_error(reader: WireReader, _version: int) -> RecordError:
    error = RecordError(reader.int32(), reader.nullable_string())
    reader.skip_tagged_fields()
    if error.batch_index < 0:
        raise MalformedError("a record's index is negative")
    return error


def _node_endpoints(reader: WireReader, most: int) -> tuple[Node, ...]:
    nodes: dict[int, Node] = {}
    count = reader.count(11)
    if count > most:
        raise MalformedError("it names more leaders than partitions")
    for _ in range(count):
        node_id = reader.int32()
        node = checked_node(node_id, reader.string(), reader.int32(), reader.nullable_string())
        reader.skip_tagged_fields()
        if nodes.setdefault(node_id, node) != node:
            raise MalformedError(f"broker {node_id} comes twice")
    return tuple(nodes.values())
