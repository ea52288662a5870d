"""One request to a broker, with the target and the response of the request.

* :class:`Call`: a request, and its target: a broker, a coordinator, the leader of a partition, or
  any broker.
* :func:`retry_code`: decides by the error code of a response whether the request is sent again.
* :func:`by_size`: distributes many items over several requests.

``request_loop.py`` sends the calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final, Generic, TypeVar

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import AuthorizationError, ErrorClass, ErrorCode, KafkaError
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.request import Request
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType

T = TypeVar("T")
ResponseT = TypeVar("ResponseT")

#: Error codes for which every call raises an exception: a retry does not help, and the codes say
#: nothing about the subject of the call.
_RAISED: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class RetryDecision(Enum):
    """The next step of :class:`RequestLoop` after a response."""

    FINAL = "the response is final"
    RETRY = "retry at the same broker, after a backoff"
    REDISCOVER = "find the coordinator or the leader, then retry, after a backoff"


def retry_decision(code: ErrorCode) -> RetryDecision:
    """Decides whether and how a request is sent again after a response with the error code
    ``code``. The result is:

    * REDISCOVER for COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, and errors that are caused by old
      metadata.
    * RETRY for other retriable codes, such as CONCURRENT_TRANSACTIONS, and for
      UNKNOWN_SERVER_ERROR.
    * FINAL for NONE and all other codes.
    """
    error_class = code.info.error_class
    if error_class in (ErrorClass.FIND_COORDINATOR, ErrorClass.REFRESH_METADATA):
        return RetryDecision.REDISCOVER
    if error_class is ErrorClass.RETRIABLE or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return RetryDecision.RETRY
    return RetryDecision.FINAL


@dataclass(frozen=True, slots=True)
class CoordinatorKey:
    """The target of a call: the coordinator of the transactional id or consumer group ``key``
    (Java's ``CoordinatorKey``).
    """

    key: str
    type: CoordinatorType = CoordinatorType.TRANSACTION


@dataclass(frozen=True, slots=True)
class Leader:
    """The target of a call: the leader of the partition ``tp``."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """The target of a call: the least loaded broker."""


Target = CoordinatorKey | Leader | AnyBroker | Node


class Resend(Enum):
    """The cases in which one run of :class:`RequestLoop` sends a request again."""

    #: After a lost connection, and after an error code that :meth:`Call.retry_code` returns.
    ALWAYS = auto()
    #: Only after an error code that :meth:`Call.retry_code` returns. It shows that the broker has
    #: usually not done what the request asks for.
    AFTER_CODE = auto()
    #: In no case.
    NEVER = auto()


@dataclass(slots=True, eq=False)
class Call(Generic[ResponseT]):
    """One request to a broker, with its response. :meth:`RequestLoop.run` sends the request. It
    raises the exceptions of ``error_in``, ``then`` and :meth:`retry_code`.

    The fields up to ``then`` describe the request, and the caller sets them. The fields from
    ``response`` on are the results of the run.
    """

    #: The request. None if the call only looks up the coordinator that ``to`` names.
    request: Request[ResponseT] | None
    #: The broker, or the way to find the broker.
    to: Target
    #: The name of the call in error messages.
    what: str
    #: A function that returns the error code of a response.
    error_in: Callable[[ResponseT], ErrorCode] = lambda _: ErrorCode.NONE
    #: ``right`` and ``success_only`` are arguments of :func:`retry_code`.
    right: str = ""
    success_only: bool = True
    #: The failures after which the request is sent again. After any other lost connection or
    #: retriable error, the call ends without a response, and ``done`` stays False.
    resend: Resend = Resend.ALWAYS
    #: A time of the clock in ms. If the request is not sent by this time, for example because a
    #: connection opens slowly, the call ends without a response.
    send_by_ms: int = NEVER
    #: A function that returns further calls when this call is ``done``. The same run sends the
    #: further calls.
    then: Callable[[], Iterable[Call[Any]]] | None = None
    #: The final response. None before the final response.
    response: ResponseT | None = None
    #: True after a final response. A call without a request is done when its coordinator is found.
    done: bool = False
    #: The number of scheduled retries. It determines the next backoff.
    attempts: int = 0
    #: ``sent`` and ``answered`` are the numbers of sent requests and of received responses.
    sent: int = 0
    answered: int = 0
    #: The time at which the request was last sent, on the clock of this process in ms.
    sent_ms: int = 0
    #: The time at which the last response arrived. If this process was suspended after ``sent_ms``,
    #: the time is unknown, and ``answered_ms`` is equal to ``sent_ms``. Only a watched run notices
    #: a suspension (:meth:`RequestLoop.run`).
    answered_ms: int = 0
    #: The reason why the call is not ``done``, as a text for error messages.
    last_status: str = "no answer"
    #: The error code, if the reason is an error code.
    last_code: ErrorCode | None = None

    def retry_code(self, response: ResponseT) -> ErrorCode | None:
        """Returns the error code of ``response`` if the request must be sent again. Returns None if
        the response is final. Raises the errors of the function :func:`retry_code`.
        """
        code = self.error_in(response)
        return retry_code(code, self.what, self.right, success_only=self.success_only)


def retry_code(
    code: ErrorCode, where: str, right: str = "", *, success_only: bool = True
) -> ErrorCode | None:
    """Returns ``code`` if the request must be sent again, and None if the response is final.

    * A retriable error (:func:`retry_decision`): returns ``code``.
    * TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED or UNSUPPORTED_VERSION:
      raises the exception of :func:`refusal`.
    * Any other error: returns None if ``success_only`` is False. Raises the exception of
      :func:`refusal` if ``success_only`` is True.
    * NONE: returns None.
    """
    if code not in _RAISED:
        if retry_decision(code) is not RetryDecision.FINAL:
            return code
        if code is ErrorCode.NONE or not success_only:
            return None
    raise refusal(code, where, right)


def refusal(code: ErrorCode, where: str, right: str) -> KafkaError:
    """Creates the exception for the error code ``code``. For an authorization error, the
    exception's hint names ``right`` as the missing right.
    """
    if not right or code.info.error_type is not AuthorizationError:
        return code.error(where)
    return AuthorizationError(
        f"{where}: {code.text}",
        hint=f"the principal needs {right}",
        code=code,
    )


def by_size(items: Iterable[T], size_of: Callable[[T], int], most_bytes: int) -> Iterator[list[T]]:
    """Distributes ``items`` over several lists, one for each request, without changing the order.

    ``size_of`` returns the size of an item in bytes. The items of a list have at most
    ``most_bytes`` bytes together. A larger item is alone in its list.
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
