"""What every request of the control plane shares: its version, its topics' names, its answer.

Owns: the checks around the encoders and decoders of ``protocol/messages/``. Never: what a request
or an answer says (the modules of messages).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from spark_kafka_sink.errors import ErrorCode, InvalidTopicError, UnsupportedVersionError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.frames import is_flexible
from spark_kafka_sink.protocol.request import Request
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, decoding

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


def topic_name(name: str) -> str:
    """``name`` if it can be encoded. The broker decides whether it is legal."""
    try:
        size = len(name.encode())
        what = f"is {size} bytes long" if size > 0x7FFF else None
    except UnicodeEncodeError:
        what = "is no text: it holds a surrogate"
    if what is not None:
        raise InvalidTopicError(
            f"a topic's name {what}",
            hint="letters, digits, '.', '_' and '-', at most 249 of them",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    return name


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topics with their partitions, each once. Raises as :func:`topic_name`."""
    topics: dict[str, list[int]] = {}
    for tp in dict.fromkeys(partitions):
        topics.setdefault(topic_name(tp.topic), []).append(tp.partition)
    return topics


def check_version(request: Request[object], version: int) -> None:
    """Raise UnsupportedVersionError when ``version`` is none of the request's."""
    ours = request.versions
    if not ours.min <= version <= ours.max:
        raise UnsupportedVersionError(
            f"{request.api_key.name} v{version} is not spoken here; "
            f"versions {ours.min} to {ours.max} are",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )


def read_body(
    request: Request[object],
    version: int,
    body: memoryview,
    parse: Callable[[WireReader, int], T],
) -> T:
    """What ``parse`` makes of the whole answer ``body``. Raises RemoteProtocolError for what is
    malformed, UnsupportedVersionError as :func:`check_version`.
    """
    check_version(request, version)
    return decoding(
        request.api_key,
        version,
        body,
        lambda reader: parse(reader, version),
        flexible=is_flexible(request.api_key, version),
    )


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
