"""The interface between a request and the network client, which sends the request.

A :class:`Request` has no version. ``NetworkClient`` chooses the newest version that the broker
supports and that is in :attr:`Request.versions`. It passes this version to ``encode``. When the
response arrives, it passes the same version to ``answers.decode``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from spark_kafka_sink.base.errors import UnsupportedVersionError

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.wire import WireReader

#: Buffers for ``socket.sendmsg``, which are not copied.
Buffer = bytes | memoryview
Buffers = Sequence[Buffer]


class ApiKey(IntEnum):
    """The APIs whose requests this client sends. The value of a member is Kafka's number of the
    API.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DESCRIBE_QUORUM = 55
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66


class VersionRange(NamedTuple):
    """The lowest and the highest version of an API, both included."""

    min: int
    max: int


ResponseT_co = TypeVar("ResponseT_co", covariant=True)


class Request(Protocol[ResponseT_co]):
    """A request of one API. The network client chooses the version when it sends the request."""

    @property
    def api_key(self) -> ApiKey: ...

    @property
    def versions(self) -> VersionRange:
        """The versions in which this request may be sent."""
        ...

    def encode(self, version: int) -> Buffers:
        """Encodes the body of the request in ``version``, without header and length.

        Raises UnsupportedVersionError if the request uses a field that this version does not have.
        """
        ...

    def read(self, reader: WireReader, version: int) -> ResponseT_co:
        """Reads the body of the response. ``answers.decode`` calls this method.

        If the bytes are malformed, raises one of the exceptions of ``reader``. ``answers.decode``
        raises RemoteProtocolError in its place.
        """
        ...


def check_version(request: Request[object], version: int) -> None:
    """Raises UnsupportedVersionError if ``request`` may not be sent in ``version``."""
    ours = request.versions
    if not ours.min <= version <= ours.max:
        raise UnsupportedVersionError(
            f"{request.api_key.name} v{version} is not spoken here; "
            f"versions {ours.min} to {ours.max} are",
        )
