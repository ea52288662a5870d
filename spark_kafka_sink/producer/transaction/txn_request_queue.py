"""The conversation with the transaction coordinator: what waits, what is asked, what it answers.

Owns: the queue of a producer's transactional requests in the order of their
:class:`TxnRequestKind`, the one in flight, which node coordinates, and the effect of each answer on
the identity and the transaction (Java's ``TxnRequestHandler`` and
``TransactionManager.nextRequest``). Never: a connection or a backoff time
(``txn_request_sender.py``), nor what an error code means (``txn_requests.py``).

**An abort must be sure that nothing of its transaction comes later.** With version 2 the raised
epoch sees to it. With version 1, when a batch or a request is without a clear answer, the
coordinator is asked for a new identity instead of EndTxn: InitProducerId without an own epoch
aborts the open transaction *and* fences the epoch that wrote it, so that a batch that is still
somewhere on its way is refused.

Everything runs on the sender's thread, but :meth:`TxnRequestQueue.enqueue` and
:meth:`TxnRequestQueue.fail_all`, which also application threads call; all of it under the
identity's lock, which public methods take unless they say otherwise.
"""

from __future__ import annotations

import bisect

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import ErrorCode, KafkaError
from spark_kafka_sink.producer.transaction.producer_identity import ProducerIdentity
from spark_kafka_sink.producer.transaction.transaction_states import (
    ONGOING,
    ProducerIdAndEpoch,
    State,
)
from spark_kafka_sink.producer.transaction.transactional_result import TransactionalResult
from spark_kafka_sink.producer.transaction.txn_partition_map import TxnPartitionMap
from spark_kafka_sink.producer.transaction.txn_requests import (
    Reaction,
    TxnRequest,
    TxnRequestKind,
    reaction_to,
)
from spark_kafka_sink.protocol.cluster import Node
from spark_kafka_sink.protocol.control_messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
)
from spark_kafka_sink.protocol.request import Request
from spark_kafka_sink.protocol.responses import (
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    FindCoordinatorResponse,
    InitProducerIdResponse,
)

_MOST_NAMED = 10

#: An error here leaves something to abort.
_CAN_ABORT = ONGOING | {State.INITIALIZING}


class TxnRequestQueue:
    """One request at a time, the most urgent kind first, in the order of their coming else."""

    def __init__(
        self,
        identity: ProducerIdentity,
        sequences: TxnPartitionMap,
        transaction_timeout_ms: int,
        two_phase_commit: bool = False,
    ) -> None:
        self._identity = identity
        self._sequences = sequences
        self._transaction_timeout_ms = transaction_timeout_ms
        self._two_phase_commit = two_phase_commit
        self._pending: list[TxnRequest] = []
        self._in_flight: TxnRequest | None = None
        self._coordinator: Node | None = None
        #: A request left, and nobody knows whether it is still on its way. An InitProducerId that
        #: the coordinator takes later than the one that was answered fences that one's identity
        #: and aborts its transaction. An AddPartitionsToTxn (version 1) that it takes when the
        #: transaction is committed opens another one under the same epoch; when that times out,
        #: it looks as if the first one had.
        self.identity_in_doubt = False

    @property
    def coordinator(self) -> Node | None:
        return self._coordinator

    @property
    def waiting(self) -> bool:
        """Something is to be asked, or is asked."""
        return (
            bool(self._pending)
            or self._in_flight is not None
            or bool(self._identity.transaction.new_partitions)
        )

    @property
    def fencing(self) -> bool:
        """A transaction is being aborted by a request for a new identity (version 1)."""
        with self._identity.lock:
            asked = self._in_flight
            return (asked is not None and asked.fences) or any(r.fences for r in self._pending)

    # -- the queue (under the lock, which the caller holds) ---------------------------------------

    def enqueue(self, request: TxnRequest) -> None:
        bisect.insort(self._pending, request, key=lambda r: r.kind)

    def fail_all(self, error: KafkaError) -> None:
        """None of them will be asked, or answered."""
        for request in self._pending:
            request.result.fail(error)
        self._pending.clear()
        if self._in_flight is not None:
            self._in_flight.result.fail(error)

    def _waits(self, kind: TxnRequestKind) -> bool:
        return any(request.kind is kind for request in self._pending)

    # -- what is asked ----------------------------------------------------------------------------

    def next_request(self, now: int, *, has_incomplete: bool) -> tuple[TxnRequest | None, int]:
        """The request to send now, which then counts as in flight; else how long to wait (ms).

        That is NEVER when something else must happen first: an answer, a call. EndTxn waits for
        the end of every batch (``has_incomplete``).
        """
        identity = self._identity
        # A transaction that ended without a broker's help, being empty: a close that waited for
        # that must not sleep in the poll that follows.
        wait = NEVER
        with identity.lock:
            if identity.transaction.new_partitions and not self._waits(
                TxnRequestKind.ADD_PARTITIONS_TO_TXN
            ):
                result = TransactionalResult("AddPartitionsToTxn")
                self.enqueue(TxnRequest(TxnRequestKind.ADD_PARTITIONS_TO_TXN, result))
            while self._pending:
                request = self._pending[0]
                if request.kind is TxnRequestKind.END_TXN and has_incomplete:
                    break
                error = identity.last_error
                # Where the coordinator is will be wanted by the abort, too.
                if error is not None and request.kind is not TxnRequestKind.FIND_COORDINATOR:
                    self._pending.pop(0).result.fail(error)
                    continue
                if request.retry_at_ms > now:
                    return None, request.retry_at_ms - now
                self._pending.pop(0)
                if request.kind is TxnRequestKind.ADD_PARTITIONS_TO_TXN and not self._adds_any(
                    request
                ):
                    continue
                if request.kind is TxnRequestKind.END_TXN and not self._must_be_sent(request):
                    wait = 0
                    continue
                self._in_flight = request
                return request, 0
            return None, wait

    def _adds_any(self, add: TxnRequest) -> bool:
        """False: it waited behind another request when an abort came, and never left."""
        transaction = self._identity.transaction
        if transaction.new_partitions or transaction.pending_partitions:
            return True
        add.result.done()
        return False

    def _must_be_sent(self, end: TxnRequest) -> bool:
        """Decide how the transaction ends, now that no batch of it is without its end."""
        identity, transaction = self._identity, self._identity.transaction
        unclear = transaction.add_unclear or self._sequences.has_unresolved
        if not end.committed and transaction.version < 2 and unclear:
            identity.transition(State.INITIALIZING)
            transaction.end_sent = True
            self.enqueue(TxnRequest(TxnRequestKind.INIT_PRODUCER_ID, end.result, fences=True))
            return False
        if transaction.started:
            transaction.end_sent = True
            return True
        # No broker knows of it, and nothing was written under this identity.
        identity.complete_transaction(None)
        end.result.done()
        return False

    def build(self, request: TxnRequest) -> Request[object]:
        """What ``request`` says, as things stand when it leaves."""
        identity = self._identity
        name = identity.transactional_id
        assert name is not None
        with identity.lock:
            if request.kind is TxnRequestKind.FIND_COORDINATOR:
                return FindCoordinatorRequest((name,))
            if request.kind is TxnRequestKind.INIT_PRODUCER_ID:
                # A spent identity is told, so that who lost the id to another producer learns of
                # it. There is none when this is to fence: our own, told, would be called old.
                return InitProducerIdRequest(
                    name,
                    self._transaction_timeout_ms,
                    *identity.used_identity,
                    enable_2pc=self._two_phase_commit,
                )
            if request.kind is TxnRequestKind.ADD_PARTITIONS_TO_TXN:
                partitions = identity.transaction.partitions_to_ask_for()
                return AddPartitionsToTxnRequest(name, *identity.producer, partitions)
            version = identity.transaction.version
            return EndTxnRequest(name, *identity.producer, request.committed, version)

    def lookup_coordinator(self) -> None:
        """The coordinator is not known, not reached, or not the coordinator any more."""
        with self._identity.lock:
            self._lookup_coordinator()

    def _lookup_coordinator(self) -> None:
        self._coordinator = None
        if not self._waits(TxnRequestKind.FIND_COORDINATOR):
            self.enqueue(
                TxnRequest(TxnRequestKind.FIND_COORDINATOR, TransactionalResult("FindCoordinator"))
            )

    def lost(self, request: TxnRequest, at_ms: int) -> None:
        """``request`` left and brought no answer: it goes again at that time."""
        asks_for_identity = request.kind is TxnRequestKind.INIT_PRODUCER_ID and not request.fences
        if asks_for_identity or request.kind is TxnRequestKind.ADD_PARTITIONS_TO_TXN:
            self.identity_in_doubt = True
        self.retry(request, at_ms)

    def retry(self, request: TxnRequest, at_ms: int) -> None:
        """``request`` brought no answer, or could not leave: it goes again at that time."""
        identity = self._identity
        with identity.lock:
            self._in_flight = None
            error = identity.last_error
            if identity.state is State.FATAL_ERROR and error is not None:
                request.result.fail(error)
                return
            request.retry_at_ms = at_ms
            self.enqueue(request)

    def request_failed(self, request: TxnRequest, error: KafkaError) -> None:
        """No attempt of ``request`` will bring an answer: that is fatal."""
        with self._identity.lock:
            self._in_flight = None
            request.result.fail(error)
            self._fatal(error)

    # -- what is answered -------------------------------------------------------------------------

    def handle_response(self, request: TxnRequest, body: object, where: str) -> Reaction:
        """Take an answer. After RETRY, RETRY_SOON and FIND_COORDINATOR the caller gives the
        request back with :meth:`retry`; everything else has happened here.
        """
        with self._identity.lock:
            self._in_flight = None
            if self._identity.state is State.FATAL_ERROR:
                return Reaction.DONE  # whoever waited for it has the error
            code, told = self._take(request, body)
            reaction = reaction_to(request.kind, code)
            if code is ErrorCode.CONCURRENT_TRANSACTIONS and self._identity.transaction.partitions:
                # Not the first partitions: then it is not the transaction before that is still
                # being ended for some milliseconds.
                reaction = Reaction.RETRY
            if reaction is Reaction.DONE:
                request.result.done()
            elif reaction is Reaction.FIND_COORDINATOR:
                self._lookup_coordinator()
            elif reaction not in (Reaction.RETRY, Reaction.RETRY_SOON):
                self._refused(request, reaction, code, where, told)
            return reaction

    def _take(self, request: TxnRequest, body: object) -> tuple[ErrorCode, str | None]:
        """The code that decides, and the broker's words for it; a success has its effect."""
        if isinstance(body, FindCoordinatorResponse):
            (found,) = body.coordinators.values()
            if found.error is ErrorCode.NONE:
                self._coordinator = found.node
            return found.error, found.message
        if isinstance(body, AddPartitionsToTxnResponse):
            return self._take_partitions(body)
        if isinstance(body, InitProducerIdResponse):
            if body.error is ErrorCode.NONE:
                self._sequences.reset()
                self._identity.take(ProducerIdAndEpoch(body.producer_id, body.producer_epoch))
            return body.error, None
        assert isinstance(body, EndTxnResponse), f"{request.kind.api_name}: {body!r}"
        if body.error is ErrorCode.NONE:
            self._sequences.reset()
            successor = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
            self._identity.complete_transaction(successor)
        return body.error, None

    def _take_partitions(self, body: AddPartitionsToTxnResponse) -> tuple[ErrorCode, str | None]:
        transaction, kind = self._identity.transaction, TxnRequestKind.ADD_PARTITIONS_TO_TXN
        failed = {tp: code for tp, code in body.errors.items() if code is not ErrorCode.NONE}
        if not failed:
            transaction.partitions_answered(body.errors, added=True)
            return ErrorCode.NONE, None
        # The gravest. OPERATION_NOT_ATTEMPTED is a consequence of another partition's error.
        code = max(
            failed.values(),
            key=lambda c: (
                reaction_to(kind, c).severity,
                c is not ErrorCode.OPERATION_NOT_ATTEMPTED,
            ),
        )
        if reaction_to(kind, code).severity > Reaction.FIND_COORDINATOR.severity:
            transaction.partitions_answered(body.errors, added=False)
        named = ", ".join(f"{tp} {c.name}" for tp, c in sorted(failed.items())[:_MOST_NAMED])
        return code, f"{code.info.meaning} ({named})"

    def _refused(
        self, request: TxnRequest, reaction: Reaction, code: ErrorCode, where: str, told: str | None
    ) -> None:
        identity = self._identity
        if reaction is Reaction.FENCED:
            code, told = ErrorCode.PRODUCER_FENCED, None
        error = code.error(where, told)
        request.result.fail(error)
        if reaction is Reaction.UNAUTHORIZED:
            if identity.state is State.INITIALIZING and not request.fences:
                identity.transition(State.UNINITIALIZED)
                return
            reaction = Reaction.ABORTABLE
        if reaction is Reaction.ABORTABLE_WITH_NEW_EPOCH and identity.can_raise_epoch:
            reaction = Reaction.ABORTABLE
        # What aborts can't be aborted.
        aborts = request.fences or (
            request.kind is TxnRequestKind.END_TXN and not request.committed
        )
        if reaction is Reaction.ABORTABLE and not aborts and identity.state in _CAN_ABORT:
            identity.fail_transaction(error)
        else:
            self._fatal(error)

    def _fatal(self, error: KafkaError) -> None:
        self._identity.fail_for_good(error)
        self.fail_all(error)
