"""One question to a broker: the request, where it goes, and what its answer is worth. Values only.

Owns: :class:`Call`, its targets, and the one table from an answer's error code to what follows.
Never: a connection (``request_loop.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from spark_kafka_sink.errors import AuthorizationError, ErrorClass, ErrorCode, KafkaError
from spark_kafka_sink.protocol.cluster import Node, TopicPartition
from spark_kafka_sink.protocol.control_messages import CoordinatorType
from spark_kafka_sink.protocol.request import Request

ResponseT = TypeVar("ResponseT")

#: Raised whoever asks: no asking again mends them, and they are no news of what is asked about.
_RAISED: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class RetryDecision(Enum):
    """What an error code in an answer is worth."""

    FINAL = "it is an answer"
    RETRY = "ask the same broker again, after a backoff"
    REDISCOVER = "find the coordinator, or the leader, then ask again, after a backoff"


def retry_decision(code: ErrorCode) -> RetryDecision:
    """COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR and what stale metadata causes: elsewhere. Other
    retriable codes (CONCURRENT_TRANSACTIONS, ...) and UNKNOWN_SERVER_ERROR: again.
    """
    error_class = code.info.error_class
    if error_class in (ErrorClass.FIND_COORDINATOR, ErrorClass.REFRESH_METADATA):
        return RetryDecision.REDISCOVER
    if error_class is ErrorClass.RETRIABLE or code is ErrorCode.UNKNOWN_SERVER_ERROR:
        return RetryDecision.RETRY
    return RetryDecision.FINAL


@dataclass(frozen=True, slots=True)
class Coordinator:
    """The coordinator of this transactional id, or consumer group."""

    key: str
    type: CoordinatorType = CoordinatorType.TRANSACTION


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of this partition."""

    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class AnyBroker:
    """The least loaded one."""


Target = Coordinator | Leader | AnyBroker | Node


@dataclass(slots=True, eq=False)
class Call(Generic[ResponseT]):
    """One request until it is :attr:`done`, with its :attr:`response`.

    ``take`` gets each answer and gives the code for which it is to be asked for again (see
    :func:`retry_decision`), or None when it is clear; what it raises ends all calls. ``request``
    None only finds out where ``to`` is. With ``once`` the call ends at the first lost connection,
    not done: whoever made it knows better where to go then. ``told`` says why it isn't done,
    ``sent`` how often it left, and ``answered`` how often that was answered.
    """

    request: Request[ResponseT] | None
    to: Target
    take: Callable[[ResponseT], ErrorCode | None] = lambda _: None
    once: bool = False
    response: ResponseT | None = None
    done: bool = False
    over: bool = False
    attempts: int = 0
    sent: int = 0
    answered: int = 0
    told: str = "no answer"


def judged(
    code: ErrorCode, where: str, right: str = "", *, success_only: bool = True
) -> ErrorCode | None:
    """For :attr:`Call.take`: ``code`` when it is to be asked for again, None when it is clear.

    Raises :func:`refusal` of what no asking mends; with ``success_only`` of every other clear code,
    too.
    """
    if code not in _RAISED:
        if retry_decision(code) is not RetryDecision.FINAL:
            return code
        if code is ErrorCode.NONE or not success_only:
            return None
    raise refusal(code, where, right)


def refusal(code: ErrorCode, where: str, right: str) -> KafkaError:
    """What to raise for ``code``; who lacks the ``right`` (if that is given) is told which."""
    if not right or code.info.error_type is not AuthorizationError:
        return code.error(where)
    return AuthorizationError(
        f"{where}: {code.name} ({code.value}): {code.info.meaning}",
        hint=f"the principal needs {right}",
        code=code,
    )
