"""A record for ``send``, and the metadata of a record after it was written.

:class:`ProducerRecord` (with :class:`Headers`) is the argument of ``send``.
:class:`RecordMetadata` is the result. Java's classes have the same names.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import ClassVar, NamedTuple, Self, final

from spark_kafka_sink.base.errors import DataError, IllegalStateError, safe_text
from spark_kafka_sink.protocol.cluster import TopicPartition

#: Java's RecordMetadata.UNKNOWN_PARTITION.
UNKNOWN_PARTITION = -1

Header = tuple[str, bytes | None]


class Headers:
    """The headers of a record, in their order (Java's RecordHeaders). Several headers may have the
    same key. A header is a tuple of its key (str) and its value (bytes or None). Any other type
    raises DataError.

    Interceptors and serializers may change the headers. Before ``send`` adds the record to a batch,
    ``send`` makes the headers read-only. A later change raises IllegalStateError.
    """

    __slots__ = ("_items", "_read_only")

    def __init__(self, items: Iterable[Header] = ()) -> None:
        self._items: list[Header] = [*items]
        self._read_only = False
        for item in self._items:
            _check_header(item)

    def __iter__(self) -> Iterator[Header]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Headers) and self._items == other._items

    __hash__ = None  # type: ignore[assignment]  # they change

    def __repr__(self) -> str:
        return f"Headers({[key for key, _ in self._items]})"

    @property
    def read_only(self) -> bool:
        return self._read_only

    def add(self, key: str, value: bytes | None) -> None:
        self._check_writable()
        _check_header((key, value))
        self._items.append((key, value))

    def remove(self, key: str) -> None:
        """Removes every header with this key."""
        self._check_writable()
        self._items = [item for item in self._items if item[0] != key]

    def last(self, key: str) -> bytes | None:
        """The value of the last header with ``key``. None if there is no such header, or if its
        value is null.
        """
        return next((value for name, value in reversed(self._items) if name == key), None)

    def set_read_only(self) -> None:
        self._read_only = True

    def _check_writable(self) -> None:
        if self._read_only:
            raise IllegalStateError(
                "the headers of a record can't be changed any more: it has been sent"
            )


#: Empty read-only headers. Interceptors get them for rows of ``send_columns``.
NO_HEADERS = Headers()
NO_HEADERS.set_read_only()


def _check_header(item: object) -> None:
    if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)):
        raise DataError(
            "a header is not a pair of a str and bytes (or None)",
            hint='headers are given as [("key", b"value"), ...]; a key can\'t be null',
        )
    if not (item[1] is None or isinstance(item[1], bytes)):
        raise DataError(
            f"the value of header {safe_text(item[0], 60)} is {type(item[1]).__name__}, not bytes"
            " or None"
        )
    if not _is_text(item[0]):
        raise DataError(f"the key of header {safe_text(item[0], 60)} is no text: {_SURROGATE}")


#: A str can hold text that UTF-8 can't: a file's name that is not UTF-8, a half of a character.
_SURROGATE = "it holds a surrogate"
_LARGEST_TIMESTAMP = 2**63 - 1


def _is_text(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_topic(topic: object) -> None:
    if not topic:
        raise DataError("Topic cannot be null.")
    if not isinstance(topic, str):
        raise DataError(f"the topic of a record is {type(topic).__name__}, not str")


def _whole_number(value: object, what: str, java_name: str) -> int:
    """Returns ``value`` as an int. ``value`` may also be an integer of numpy. Raises DataError for
    other types and for negative numbers. The error has Java's text, with ``java_name``.
    """
    if type(value) is not int:
        try:
            value = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise DataError(
                f"Invalid {what}: a whole number is wanted, not {type(value).__name__}",
                hint=f"int({what}) makes one",
            ) from None
    if value < 0:
        raise DataError(
            f"Invalid {what}: {value}. {java_name} should always be non-negative or null."
        )
    return value


class _Fields:
    """The fields of a :class:`ProducerRecord`, in a class that is not frozen. It only makes the
    creation of a record faster.

    ``ProducerRecord.__new__`` fills an object of this class, and then changes its class to
    ``ProducerRecord``. In a frozen class, each assignment to an attribute needs a slow call. These
    calls would be a third of the time that it takes to create a record.
    """

    __slots__ = ("headers", "key", "partition", "timestamp", "topic", "value")

    topic: str
    value: object
    key: object
    partition: int | None
    timestamp: int | None
    headers: Headers | None


@final
@dataclass(frozen=True, slots=True, init=False)
class ProducerRecord:
    """A record to send (Java's ProducerRecord).

    * ``key``, ``value``: the producer's serializers convert them to bytes. None becomes null.
    * ``partition``: if it is None, the partitioner chooses the partition.
    * ``timestamp``: in milliseconds since the epoch. If it is None, the time of ``send`` is used.
    * ``headers``: :class:`Headers`, or pairs such as ``[("trace", b"17")]``.

    Raises DataError for arguments that Java's constructor rejects.
    """

    topic: str
    value: object = field(default=None, repr=False)
    key: object = field(default=None, repr=False)
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers | Iterable[Header] = field(default=(), repr=False)
    #: The headers. None if no headers were given, and nobody has read ``headers`` yet.
    made_headers: ClassVar[Headers | None]

    def __new__(
        cls,
        topic: str,
        value: object = None,
        key: object = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers | Iterable[Header] | None = None,
    ) -> Self:
        # Written by hand, because it runs for each record.
        if type(topic) is not str or not topic:
            _check_topic(topic)
        if timestamp is not None:
            timestamp = _whole_number(timestamp, "timestamp", "Timestamp")
            if timestamp > _LARGEST_TIMESTAMP:
                raise DataError(
                    f"Invalid timestamp: {timestamp} does not fit into 64 bits of milliseconds"
                )
        if partition is not None:
            partition = _whole_number(partition, "partition", "Partition number")
        record = _Fields()
        record.topic = topic
        record.value = value
        record.key = key
        record.partition = partition
        record.timestamp = timestamp
        if headers is None:
            record.headers = None  # most have none: see _headers_of
        else:
            record.headers = Headers(headers)
        record.__class__ = cls  # type: ignore[assignment]  # of the same slots
        return record  # type: ignore[return-value]  # it is one now

    def __init_subclass__(cls) -> None:
        raise TypeError("ProducerRecord can't be subclassed: its class is set once it is made")

    def __reduce__(self) -> tuple[type[ProducerRecord], tuple[object, ...]]:
        return type(self), tuple(getattr(self, each.name) for each in fields(self))


ProducerRecord.made_headers = vars(ProducerRecord)["headers"]
set_headers: Callable[[ProducerRecord, Headers], None] = vars(ProducerRecord)["headers"].__set__


def _headers_of(record: ProducerRecord) -> Headers:
    headers = record.made_headers
    if headers is None:
        headers = Headers()
        set_headers(record, headers)
    return headers


# Created when first read: a Headers for each record would add a third to its cost.
ProducerRecord.headers = property(_headers_of)  # type: ignore[assignment,misc]


class RecordMetadata(NamedTuple):
    """The topic, partition and offset at which a record was written, with its timestamp and the
    sizes of its key and value (Java's RecordMetadata).

    * ``offset``: -1 if it is unknown: with acks=0, for a duplicate, and after an error.
    * ``timestamp``: the timestamp of the record. For a topic with LogAppendTime, it is the broker's
      time. After an error, it is -1.
    * ``serialized_key_size``, ``serialized_value_size``: in bytes. -1 if the key or value is null.

    For rows that ``send_columns`` has appended, interceptors get one RecordMetadata for each batch.
    ``record_count`` is then the number of these rows. ``offset`` and ``timestamp`` are those of the
    batch's first record, and the timestamp is also set after an error.
    """

    # A tuple is created fast, and each callback needs a new object.
    topic: str
    partition: int
    offset: int = -1
    timestamp: int = -1
    serialized_key_size: int = -1
    serialized_value_size: int = -1
    record_count: int = 1

    @classmethod
    def empty(cls, tp: TopicPartition) -> RecordMetadata:
        """The metadata for the callback of a failed record. It has the topic. If the partition is
        known, it also has the partition.
        """
        return cls(tp.topic, tp.partition)

    @property
    def has_offset(self) -> bool:
        return self.offset >= 0

    @property
    def has_timestamp(self) -> bool:
        return self.timestamp >= 0


#: Makes an object from its fields in order, without the Python function of the constructor.
new_record_metadata: Callable[[tuple[str, int, int, int, int, int, int]], RecordMetadata] = partial(
    tuple.__new__, RecordMetadata
)


def tp_of(record: ProducerRecord) -> TopicPartition:
    """The topic and partition of ``record``. If the record has no partition, the partition is
    UNKNOWN_PARTITION.
    """
    partition = UNKNOWN_PARTITION if record.partition is None else record.partition
    return TopicPartition(record.topic, partition)
