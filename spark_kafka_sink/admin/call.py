"""One call to a broker: the request, its target, and the decision whether its response is final.

Owns: :class:`Call`, its targets, the one table from a response's error code to the next step, and
the distribution of items over requests. Never: a connection (``request_loop.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from spark_kafka_sink.base.errors import AuthorizationError, ErrorClass, ErrorCode, KafkaError
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.request import Request
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")

#: Raised by every call: a retry does not help, and they don't concern the subject of the call.
_RAISED: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class RetryDecision(Enum):
    """The next step of a call after an error code in its response."""

    FINAL = "the response is final"
    RETRY = "retry at the same broker, after a backoff"
    REDISCOVER = "find the coordinator or the leader, then retry, after a backoff"


def retry_decision(code: ErrorCode) -> RetryDecision:
    """The next step of a call whose response has the error ``code``.

    REDISCOVER for COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR and the errors of stale metadata.
    RETRY for other retriable codes (CONCURRENT_TRANSACTIONS, ...) and UNKNOWN_SERVER_ERROR.
    """
    error_class = code.info.error_class
    if error_class in (ErrorClass.FIND_COORDINATOR, ErrorClass.REFRESH_METADATA):
        return RetryDecision.REDISCOVER
    if error_class is ErrorClass.RETRIABLE or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return RetryDecision.RETRY
    return RetryDecision.FINAL


@dataclass(frozen=True, slots=True)
class CoordinatorKey:
    """A target: the coordinator of this transactional id or consumer group (Java's
    ``CoordinatorKey``).
    """

    key: str
    type: CoordinatorType = CoordinatorType.TRANSACTION


@dataclass(frozen=True, slots=True)
class Leader:
    """A target: the broker that leads this partition."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """A target: the least loaded broker."""


Target = CoordinatorKey | Leader | AnyBroker | Node


@dataclass(slots=True, eq=False)
class Call(Generic[ResponseT]):
    """One request to a broker, with its target and its response. ``done`` is true when the response
    is final.

    * ``request``: the request. It is None for a call that only finds the coordinator ``to``.
    * ``what``: the name of the call in errors.
    * ``error_in``: a function that returns the error code of a response. If ``error_in`` or
      :meth:`retry_code` raises an exception, all calls of the loop end.
    * ``right``, ``success_only``: arguments of :func:`retry_code`.
    * ``once``: true if the call ends when its connection is lost, although it is not done. The
      caller then chooses the next target.
    * ``last_status``: the reason why the call is not done yet. If the reason is an error code, it
      is in ``last_code``.
    * ``sent``, ``answered``: the numbers of requests and responses.
    """

    request: Request[ResponseT] | None
    to: Target
    what: str
    error_in: Callable[[ResponseT], ErrorCode] = lambda _: ErrorCode.NONE
    right: str = ""
    success_only: bool = True
    once: bool = False
    response: ResponseT | None = None
    done: bool = False
    attempts: int = 0
    sent: int = 0
    answered: int = 0
    last_status: str = "no answer"
    last_code: ErrorCode | None = None

    def retry_code(self, response: ResponseT) -> ErrorCode | None:
        """The error code of ``response`` if the call must be retried. None if the response is
        final.
        """
        code = self.error_in(response)
        return retry_code(code, self.what, self.right, success_only=self.success_only)


def retry_code(
    code: ErrorCode, where: str, right: str = "", *, success_only: bool = True
) -> ErrorCode | None:
    """The error ``code`` if the call must be retried. None if the response is final.

    Raises the exception of :func:`refusal` for errors that no retry can resolve. If
    ``success_only`` is true, also raises it for every other final error.
    """
    if code not in _RAISED:
        if retry_decision(code) is not RetryDecision.FINAL:
            return code
        if code is ErrorCode.NONE or not success_only:
            return None
    raise refusal(code, where, right)


def refusal(code: ErrorCode, where: str, right: str) -> KafkaError:
    """Creates the exception for the error ``code``. An authorization error names the missing
    ``right``, unless ``right`` is empty.
    """
    if not right or code.info.error_type is not AuthorizationError:
        return code.error(where)
    return AuthorizationError(
        f"{where}: {code.text}",
        hint=f"the principal needs {right}",
        code=code,
    )


def by_size(items: Iterable[T], size_of: Callable[[T], int], most_bytes: int) -> Iterator[list[T]]:
    """Distributes ``items`` over lists of at most ``most_bytes`` bytes, one list for each request.
    A larger item is alone in its list.
    """
    found: list[T] = []
    size = 0
    for item in items:
        more = size_of(item)
        if found and size + more > most_bytes:
            yield found
            found, size = [], 0
        found.append(item)
        size += more
    if found:
        yield found
