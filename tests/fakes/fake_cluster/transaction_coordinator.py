"""The transaction coordinator: both protocols, as tables of what each call does in each state.

Kafka's TransactionCoordinator and TransactionMetadata. Which protocol ends a transaction is said
by the request's version (EndTxn v5 is protocol 2), not by the cluster.

What changes a transaction is written to the coordinator's own log first. While that is under way
(``Transaction.pending``, Kafka's pendingTransition), and from a decision to its last marker, every
call that would change it is told CONCURRENT_TRANSACTIONS; who asks what it is hears the old state.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition

MAX_EPOCH = 32767
MAX_TIMEOUT_MS = 900_000


class State(Enum):
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


_PREPARED = {State.PREPARE_COMMIT: True, State.PREPARE_ABORT: False}
_COMPLETE = {State.COMPLETE_COMMIT: True, State.COMPLETE_ABORT: False}
_IDLE = {State.EMPTY, *_COMPLETE}


@dataclass(eq=False)
class Transaction:
    """One transactional id. Epoch -1 until InitProducerId gave one."""

    transactional_id: str
    producer_id: int
    timeout_ms: int
    epoch: int = -1
    last_epoch: int = -1
    previous_producer_id: int = -1
    next_producer_id: int = -1
    state: State = State.EMPTY
    partitions: set[TopicPartition] = field(default_factory=set)
    start_ms: int = -1
    version: int = 0
    #: A change is being written.
    pending: bool = False
    #: When InitProducerId gave its identity.
    since_ms: int = -1

    @property
    def busy(self) -> bool:
        return self.pending or self.state in _PREPARED

    @property
    def exhausted(self) -> bool:
        return self.epoch >= MAX_EPOCH - 1


Ended = tuple[ErrorCode, int, int]
#: Has a change happen once it is written; how long that takes is the cluster's say.
Append = Callable[[Callable[[], None]], bool]


def _at_once(change: Callable[[], None]) -> bool:
    change()
    return False


class TransactionCoordinator:
    """All transactional ids of the cluster; which node may answer for one is the cluster's say.

    ``write_markers(transaction, commit)`` is called when a transaction is decided; who has
    written them calls :meth:`complete`. ``append(change)`` writes a change to the coordinator's log
    and then has it happen; True when that is later. ``version`` is the cluster's.
    """

    def __init__(
        self,
        write_markers: Callable[[Transaction, bool, int], None],
        append: Append = _at_once,
        *,
        version: int = 2,
    ) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.epoch = 0
        self.version = version
        self._write_markers = write_markers
        self._append = append
        self._next_producer_id = 1000

    def new_producer_id(self) -> int:
        self._next_producer_id += 1
        return self._next_producer_id

    def find(self, transactional_id: str) -> Transaction | None:
        found = self.transactions.get(transactional_id)
        return None if found is None or found.state is State.DEAD else found

    def expire(self, transactional_id: str) -> None:
        """transactional.id.expiration.ms passed."""
        self.transactions.pop(transactional_id).state = State.DEAD

    def _change(self, found: Transaction, change: Callable[[], None]) -> None:
        """``change`` happens when it is written; until then no other call may change it."""

        def written() -> None:
            found.pending = False
            change()

        found.pending = self._append(written)

    # -- InitProducerId --

    def initialize(
        self,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None,
        now: int,
    ) -> Ended:
        """Error, producer id, epoch. ``expected`` is the caller's own, to go on with (KIP-360)."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, -1, -1
        if not 0 < timeout_ms <= MAX_TIMEOUT_MS:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT, -1, -1
        found = self.find(transactional_id)
        if found is None:
            found = Transaction(transactional_id, self.new_producer_id(), timeout_ms)
            self.transactions[transactional_id] = found
        if found.busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        if expected is not None and not self._may_go_on(found, expected):
            return ErrorCode.PRODUCER_FENCED, -1, -1
        if found.state is State.ONGOING:
            self._fence(found, now)
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        following = self._next_epoch(found, expected)
        if following is None:
            return ErrorCode.PRODUCER_FENCED, -1, -1

        def change() -> None:
            previous = found.producer_id
            found.producer_id, found.epoch, found.last_epoch = following
            if found.producer_id != previous:
                found.previous_producer_id = previous
            found.state = State.EMPTY
            found.timeout_ms = timeout_ms
            found.partitions = set()
            found.start_ms = -1
            found.since_ms = now

        self._change(found, change)
        return ErrorCode.NONE, following[0], following[1]

    @staticmethod
    def _may_go_on(found: Transaction, expected: tuple[int, int]) -> bool:
        producer_id, epoch = expected
        if found.epoch == -1 or producer_id == found.producer_id:
            return True
        return producer_id == found.previous_producer_id and epoch >= MAX_EPOCH - 1

    def _next_epoch(
        self, found: Transaction, expected: tuple[int, int] | None
    ) -> tuple[int, int, int] | None:
        """Producer id, epoch and the epoch before; None for somebody who was fenced."""
        if found.exhausted and (expected is None or expected[1] == found.epoch):
            return self.new_producer_id(), 0, -1 if expected is None else found.epoch
        if expected is None:
            return found.producer_id, found.epoch + 1, -1
        if found.epoch in (-1, expected[1]):
            return found.producer_id, found.epoch + 1, found.epoch
        if expected[1] != found.last_epoch:
            return None
        # The same call again, whose answer was lost.
        return found.producer_id, found.epoch, found.last_epoch

    # -- partitions --

    def add_partitions(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        now: int,
        *,
        version: int,
    ) -> ErrorCode:
        """AddPartitionsToTxn, or what a leader does for a Produce of protocol 2 (``version``; there
        the change is taken at once, though it is written to the coordinator's log, too).
        """
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        found = self.find(transactional_id)
        if found is not None and found.busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if found is None or found.producer_id != producer[0]:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if found.epoch != producer[1]:
            return ErrorCode.PRODUCER_FENCED

        def change() -> None:
            if found.state in _IDLE:
                found.start_ms = now
                found.partitions = set()
            found.state = State.ONGOING
            found.partitions |= set(partitions)
            found.version = version

        if version >= 2 or (found.state is State.ONGOING and found.partitions >= set(partitions)):
            change()
        else:
            self._change(found, change)
        return ErrorCode.NONE

    def verify(
        self, transactional_id: str, producer: tuple[int, int], partition: TopicPartition
    ) -> ErrorCode:
        """Is the partition part of the transaction? What leaders ask in protocol 1."""
        found = self.find(transactional_id)
        if found is None or found.producer_id != producer[0]:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if found.epoch != producer[1]:
            return ErrorCode.PRODUCER_FENCED
        if found.state in _PREPARED:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if partition not in found.partitions:
            return ErrorCode.TRANSACTION_ABORTABLE
        return ErrorCode.NONE

    # -- EndTxn --

    def end(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        commit: bool,
        version: int,
        now: int,
    ) -> Ended:
        """Error and, in protocol 2 (``version`` 2), the producer id and epoch to go on with."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST, -1, -1
        found = self.find(transactional_id)
        if found is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1
        if version >= 2:
            return self._end_v2(found, producer, commit=commit, now=now)
        if found.producer_id != producer[0]:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1
        if found.epoch != producer[1]:
            return ErrorCode.PRODUCER_FENCED, -1, -1
        if found.busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        error = _END_V1[found.state].get(commit, ErrorCode.INVALID_TXN_STATE)
        if error is None:
            self._decide(found, commit=commit, now=now, version=0)
            error = ErrorCode.NONE
        return error, -1, -1

    def _end_v2(
        self, found: Transaction, producer: tuple[int, int], *, commit: bool, now: int
    ) -> Ended:
        if found.busy:
            return ErrorCode.CONCURRENT_TRANSACTIONS, -1, -1
        producer_id, epoch = producer
        overflowed = (
            found.previous_producer_id == producer_id
            and epoch == MAX_EPOCH - 1
            and found.epoch == 0
        )
        again = overflowed or found.epoch == epoch + 1
        same = found.epoch == epoch
        if found.producer_id != producer_id and not overflowed:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1
        if not (same or (again and found.state in _COMPLETE)):
            return ErrorCode.PRODUCER_FENCED, -1, -1
        if found.state in _COMPLETE and again:
            if _COMPLETE[found.state] != commit:
                return ErrorCode.INVALID_TXN_STATE, -1, -1
            return ErrorCode.NONE, found.producer_id, found.epoch
        if found.state in _IDLE:
            if commit:
                return ErrorCode.INVALID_TXN_STATE, -1, -1
            found.start_ms = now  # an abort without any partition bumps the epoch all the same
            found.partitions = set()
        producer_id, epoch = self._decide(found, commit=commit, now=now, version=2)
        return ErrorCode.NONE, producer_id, epoch

    def _decide(
        self, found: Transaction, *, commit: bool, now: int, version: int
    ) -> tuple[int, int]:
        """The identity to go on with in protocol 2."""
        fresh = self.new_producer_id() if version >= 2 and found.exhausted else -1
        following = (found.producer_id, found.epoch + 1) if fresh < 0 else (fresh, 0)

        def change() -> None:
            found.version = version
            found.next_producer_id = fresh
            if version >= 2:
                found.last_epoch, found.epoch = found.epoch, found.epoch + 1
            found.state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
            self._write_markers(found, commit, now)

        self._change(found, change)
        return following

    def complete(self, found: Transaction) -> None:
        """The markers are written."""
        commit = _PREPARED[found.state]
        found.state = State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT
        found.partitions = set()
        if found.next_producer_id >= 0:
            found.previous_producer_id = found.producer_id
            found.producer_id, found.epoch = found.next_producer_id, 0
            found.next_producer_id = -1

    # -- time --

    def _fence(self, found: Transaction, now: int) -> None:
        """The epoch goes up so that its owner can't go on, and the transaction is aborted.

        (In a cluster of version 2 it goes up as the abort is written, else before that.)
        """

        def raise_epoch() -> None:
            found.epoch = min(found.epoch + 1, MAX_EPOCH)
            found.last_epoch = -1

        def change() -> None:
            if self.version >= 2:
                raise_epoch()
            found.state = State.PREPARE_ABORT
            self._write_markers(found, False, now)

        if self.version < 2:
            raise_epoch()
        self._change(found, change)

    def abort_timed_out(
        self, now: int, *, known: Callable[[str], bool] = lambda transactional_id: True
    ) -> None:
        """``known``: its coordinator is there."""
        for found in list(self.transactions.values()):
            late = found.state is State.ONGOING and now > found.start_ms + found.timeout_ms
            if late and not found.pending and known(found.transactional_id):
                self._fence(found, now)


#: Protocol 1: state and whether it is a commit, to the answer; None: decide it now.
_END_V1: dict[State, dict[bool, ErrorCode | None]] = {
    State.ONGOING: {True: None, False: None},
    State.COMPLETE_COMMIT: {True: ErrorCode.NONE},
    State.COMPLETE_ABORT: {False: ErrorCode.NONE},
    State.EMPTY: {},
    State.DEAD: {},
}
