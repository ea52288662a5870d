"""The kinds of requests for a producer's id and its transaction, and the reaction to each error
code.

* :class:`TxnRequest`: a queued request.
* :class:`TransactionalResult`: the result for which a caller waits.
* :data:`REACTIONS`: the reactions by kind of request and error code (Java's ``TxnRequestHandler``
  and its subclasses).

``txn_request_queue.py`` sends the requests and performs the reactions.
"""

from __future__ import annotations

import random as _random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from types import MappingProxyType

from spark_kafka_sink.base.backoff import ExponentialBackoff, concurrent_backoff
from spark_kafka_sink.base.clock import Clock, Waiters
from spark_kafka_sink.base.errors import ErrorClass, ErrorCode, KafkaError, KafkaTimeoutError


class TxnRequestKind(IntEnum):
    """The kinds of requests. Requests with a lower number are sent first."""

    FIND_COORDINATOR = 0
    DESCRIBE_TRANSACTIONS = 1
    INIT_PRODUCER_ID = 2
    ADD_PARTITIONS_TO_TXN = 3
    END_TXN = 4

    @property
    def api_name(self) -> str:
        return _API_NAMES[self]


_API_NAMES = {
    TxnRequestKind.FIND_COORDINATOR: "FindCoordinator",
    TxnRequestKind.DESCRIBE_TRANSACTIONS: "DescribeTransactions",
    TxnRequestKind.INIT_PRODUCER_ID: "InitProducerId",
    TxnRequestKind.ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn",
    TxnRequestKind.END_TXN: "EndTxn",
}


class Reaction(Enum):
    """The reaction to an error code in a response. Later members are more severe."""

    DONE = "the request is complete"
    RETRY = "retry after retry.backoff.ms"
    RETRY_SOON = "retry in milliseconds"
    FIND_COORDINATOR = "find the coordinator, then retry"
    UNAUTHORIZED = "back to UNINITIALIZED: init_transactions may be called again"
    ABORTABLE = "the transaction can only be aborted"
    ABORTABLE_WITH_NEW_EPOCH = "the same, where the epoch can be raised; else fatal"
    FENCED = "another producer took the transactional id: fatal"
    FATAL = "fatal"

    @property
    def severity(self) -> int:
        return _SEVERITY[self]


_SEVERITY = {reaction: position for position, reaction in enumerate(Reaction)}

_E, _R = ErrorCode, Reaction

#: The reactions that depend on the kind of request. For other error codes, :data:`_OTHERWISE` has
#: the reaction. But if the error is retriable, its class in ``errors.CODES`` decides.
REACTIONS = MappingProxyType(
    {
        (TxnRequestKind.FIND_COORDINATOR, _E.GROUP_AUTHORIZATION_FAILED): _R.ABORTABLE,
        (TxnRequestKind.FIND_COORDINATOR, _E.TRANSACTION_ABORTABLE): _R.ABORTABLE,
        # FindCoordinator itself needs no coordinator: it is retried unchanged.
        (TxnRequestKind.FIND_COORDINATOR, _E.COORDINATOR_NOT_AVAILABLE): _R.RETRY,
        (TxnRequestKind.FIND_COORDINATOR, _E.NOT_COORDINATOR): _R.RETRY,
        (
            TxnRequestKind.INIT_PRODUCER_ID,
            _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ): _R.UNAUTHORIZED,
        (TxnRequestKind.INIT_PRODUCER_ID, _E.CLUSTER_AUTHORIZATION_FAILED): _R.UNAUTHORIZED,
        (TxnRequestKind.INIT_PRODUCER_ID, _E.TRANSACTION_ABORTABLE): _R.ABORTABLE,
        (TxnRequestKind.INIT_PRODUCER_ID, _E.CONCURRENT_TRANSACTIONS): _R.RETRY_SOON,
        (TxnRequestKind.ADD_PARTITIONS_TO_TXN, _E.CONCURRENT_TRANSACTIONS): _R.RETRY_SOON,
        (TxnRequestKind.ADD_PARTITIONS_TO_TXN, _E.TRANSACTION_ABORTABLE): _R.ABORTABLE,
        (TxnRequestKind.ADD_PARTITIONS_TO_TXN, _E.UNKNOWN_PRODUCER_ID): _R.ABORTABLE_WITH_NEW_EPOCH,
        (TxnRequestKind.ADD_PARTITIONS_TO_TXN, _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED): _R.FATAL,
        (TxnRequestKind.ADD_PARTITIONS_TO_TXN, _E.INVALID_TXN_STATE): _R.FATAL,
        (TxnRequestKind.ADD_PARTITIONS_TO_TXN, _E.INVALID_PRODUCER_ID_MAPPING): _R.FATAL,
        (TxnRequestKind.END_TXN, _E.TRANSACTION_ABORTABLE): _R.ABORTABLE,
        (TxnRequestKind.END_TXN, _E.UNKNOWN_PRODUCER_ID): _R.ABORTABLE_WITH_NEW_EPOCH,
        (TxnRequestKind.END_TXN, _E.CONCURRENT_TRANSACTIONS): _R.RETRY_SOON,
        **{
            # Coordinators of Kafka before 2.7 return INVALID_PRODUCER_EPOCH for PRODUCER_FENCED.
            (kind, code): _R.FENCED
            for kind in (
                TxnRequestKind.INIT_PRODUCER_ID,
                TxnRequestKind.ADD_PARTITIONS_TO_TXN,
                TxnRequestKind.END_TXN,
            )
            for code in (_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED)
        },
    }
)

#: The reaction to all other error codes. An error of single partitions affects only this
#: transaction.
_OTHERWISE = {
    TxnRequestKind.FIND_COORDINATOR: _R.FATAL,
    TxnRequestKind.DESCRIBE_TRANSACTIONS: _R.FATAL,
    TxnRequestKind.INIT_PRODUCER_ID: _R.FATAL,
    TxnRequestKind.ADD_PARTITIONS_TO_TXN: _R.ABORTABLE,
    TxnRequestKind.END_TXN: _R.FATAL,
}


def reaction_to(kind: TxnRequestKind, code: ErrorCode) -> Reaction:
    """Returns the reaction to the error code ``code`` in a response to a request of this kind."""
    if code is ErrorCode.NONE:
        return Reaction.DONE
    special = REACTIONS.get((kind, code))
    if special is not None:
        return special
    if code.info.error_class is ErrorClass.FIND_COORDINATOR:
        return Reaction.FIND_COORDINATOR
    return Reaction.RETRY if code.retriable else _OTHERWISE[kind]


class TransactionalResult:
    """The result of an operation such as commit_transaction, for which the calling thread waits
    (Java's TransactionalRequestResult).

    The first call of :meth:`done` or :meth:`fail` sets the result, and later calls change nothing.
    ``_lock`` guards the result and the waiting threads. Thread-safe.
    """

    __slots__ = ("_acked", "_completed", "_error", "_lock", "_waiters", "operation")

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self._lock = threading.Lock()
        self._waiters = Waiters()
        self._completed = False
        self._error: KafkaError | None = None
        self._acked = False

    def done(self) -> None:
        self._complete(None)

    def fail(self, error: KafkaError) -> None:
        self._complete(error)

    def _complete(self, error: KafkaError | None) -> None:
        with self._lock:
            if not self._completed:
                self._completed = True
                self._error = error
            self._waiters.wake_all()

    @property
    def is_acked(self) -> bool:
        """True after a call of :meth:`await_` has passed the result to its caller. False before
        that, even if the operation is complete.
        """
        return self._acked

    @property
    def error(self) -> KafkaError | None:
        """The error of the operation. None if the operation has succeeded or is not complete."""
        return self._error

    def await_(self, clock: Clock, deadline_ms: int) -> None:
        """Waits until the operation is complete. If the operation has failed, raises the error of
        the operation.

        Raises KafkaTimeoutError at ``deadline_ms`` (monotonic ms). The operation then continues,
        and the next call of the same operation waits for the same result.
        """
        with self._lock:
            latch = self._waiters.enlist()
            if self._completed:
                latch.open()
        clock.wait(latch, deadline_ms)
        if not self._completed:
            raise KafkaTimeoutError(
                f"{self.operation} did not complete in time",
                hint="it continues: call it again to wait for its outcome, or close the producer",
            )
        self._acked = True
        if self._error is not None:
            raise self._error


@dataclass(slots=True, eq=False)
class TxnRequest:
    """A request that is queued or in flight. The content of the request is created when the request
    is sent (``TxnRequestQueue.build``).

    * ``committed``: for EndTxn, True to commit, False to abort.
    * ``fences``: for InitProducerId, True if it is sent in place of EndTxn, to abort a transaction.
    * ``concurrent``: the number of CONCURRENT_TRANSACTIONS responses.
    """

    kind: TxnRequestKind
    result: TransactionalResult
    committed: bool = False
    fences: bool = False
    attempts: int = 0
    concurrent: int = 0
    retry_at_ms: int = 0


class TxnBackoff:
    """The backoff in ms of the requests for the producer id and the transaction. The backoff grows
    exponentially with the attempts, and has a random part (jitter).
    """

    def __init__(
        self, retry_ms: int, retry_max_ms: int, random: Callable[[], float] = _random.random
    ) -> None:
        self._plain = ExponentialBackoff(retry_ms, retry_max_ms, random=random)
        self._soon = concurrent_backoff(retry_ms, retry_max_ms, random)

    def plain(self, request: TxnRequest) -> int:
        """Returns the backoff in ms after an error or a disconnect, and adds 1 to the attempts of
        ``request``.
        """
        wait = self._plain.backoff(request.attempts)
        request.attempts += 1
        return wait

    def soon(self, request: TxnRequest) -> int:
        """Returns the backoff in ms after CONCURRENT_TRANSACTIONS, and adds 1 to ``concurrent`` of
        ``request``. The first backoff is shorter than the first backoff of :meth:`plain`.
        """
        wait = self._soon.backoff(request.concurrent)
        request.concurrent += 1
        return wait
