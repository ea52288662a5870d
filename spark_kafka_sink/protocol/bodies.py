"""What all control requests have in common: the version, topics' names, the response.

Owns: the checks around the encoders and decoders of ``protocol/messages/``. Never: the meaning of
a request or response (the modules of messages).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Generic, Protocol, TypeVar

from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange, check_version
from spark_kafka_sink.protocol.wire import MalformedError, WireReader
from spark_kafka_sink.protocol.wire_writer import topic_name

ResponseT_co = TypeVar("ResponseT_co", covariant=True)
K = TypeVar("K")
V = TypeVar("V")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topics with their partitions, each once. Raises as :func:`topic_name`."""
    topics: dict[str, list[int]] = {}
    for tp in dict.fromkeys(partitions):
        topics.setdefault(topic_name(tp.topic), []).append(tp.partition)
    return topics


class Message(Protocol):
    """A request of ``protocol/messages/``."""

    def encode(self, version: int) -> Buffers: ...


class ControlRequest(ABC, Generic[ResponseT_co]):
    """A :class:`Request` that is one of ``protocol/messages/``."""

    __slots__ = ()

    api_key: ClassVar[ApiKey]

    @property
    @abstractmethod
    def versions(self) -> VersionRange:
        """As :attr:`Request.versions`."""

    @abstractmethod
    def message(self, version: int) -> Message:
        """The message to encode."""

    @abstractmethod
    def read(self, reader: WireReader, version: int) -> ResponseT_co:
        """The response that makes sense for this request; MalformedError for any other."""

    def encode(self, version: int) -> Buffers:
        """As :meth:`Request.encode`."""
        check_version(self, version)
        return self.message(version).encode(version)


def once_each(
    answers: Iterable[tuple[K, V]], requested: Iterable[K], what: str = "a partition"
) -> dict[K, V]:
    """Each of ``requested`` with its response. Raises MalformedError, naming ``what``, for a
    duplicate, a missing or an unrequested one.
    """
    unanswered = {key: key for key in requested}
    found: dict[K, V] = {}
    for answered, value in answers:
        key = unanswered.pop(answered, None)
        if key is None:
            raise MalformedError(f"{what} comes twice, or was not requested")
        found[key] = value
    if unanswered:
        raise MalformedError(f"{what} is missing")
    return found
