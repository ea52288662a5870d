"""The requests to the transaction coordinator, and the handling of their responses.

Owns: the queue of a producer's transactional requests in the order of their
:class:`TxnRequestKind`, the one in flight, the coordinator's node, and the effect of each response
on the identity and the transaction (Java's ``TxnRequestHandler`` and
``TransactionManager.nextRequest``). Never: a connection or a backoff time
(``txn_request_sender.py``), nor the reaction to an error code (``txn_requests.py``).

**After an abort, no batch of the transaction may still be appended.** With version 2 the raised
epoch ensures this. With version 1, when the outcome of a batch or a request is unknown,
InitProducerId is sent instead of EndTxn: without an epoch it aborts the open transaction *and*
fences the epoch that wrote it, so that a batch still in flight is rejected.

Everything runs on the sender thread, except :meth:`TxnRequestQueue.enqueue` and
:meth:`TxnRequestQueue.fail_all`, which application threads also call; all of it under the
identity's lock, which public methods take unless stated otherwise.
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
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.request import Request

_MOST_NAMED = 10

#: After an error in one of these states there may be a transaction to abort.
_CAN_ABORT = ONGOING | {State.INITIALIZING}


class TxnRequestQueue:
    """One request at a time, by priority of its kind, then in order of arrival."""

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
        #: A request was sent and may still be in flight. An InitProducerId that the coordinator
        #: handles after the retry that got a response fences the retry's identity and aborts its
        #: transaction. An AddPartitionsToTxn (version 1) that it handles after the commit opens
        #: another transaction under the same epoch; when that times out, it seems that the first
        #: one did.
        self.identity_in_doubt = False

    @property
    def coordinator(self) -> Node | None:
        return self._coordinator

    @property
    def waiting(self) -> bool:
        """True while a request is pending or in flight."""
        return (
            bool(self._pending)
            or self._in_flight is not None
            or bool(self._identity.transaction.new_partitions)
        )

    @property
    def fencing(self) -> bool:
        """A transaction is being aborted by a request for a new identity (version 1)."""
        with self._identity.lock:
            sent = self._in_flight
            return (sent is not None and sent.fences) or any(r.fences for r in self._pending)

    # -- the queue (under the lock, which the caller holds) ---------------------------------------

    def enqueue(self, request: TxnRequest) -> None:
        bisect.insort(self._pending, request, key=lambda r: r.kind)

    def fail_all(self, error: KafkaError) -> None:
        """Fail all requests, pending and in flight."""
        for request in self._pending:
            request.result.fail(error)
        self._pending.clear()
        if self._in_flight is not None:
            self._in_flight.result.fail(error)

    def fail_end(self, error: KafkaError) -> None:
        """Fail a pending EndTxn: the transaction is ended otherwise."""
        for request in [r for r in self._pending if r.kind is TxnRequestKind.END_TXN]:
            self._pending.remove(request)
            request.result.fail(error)

    def _waits(self, kind: TxnRequestKind) -> bool:
        return any(request.kind is kind for request in self._pending)

    # -- requests ---------------------------------------------------------------------------------

    def next_request(self, now: int, *, has_incomplete: bool) -> tuple[TxnRequest | None, int]:
        """The request to send now, which then counts as in flight; else the wait in ms.

        The wait is NEVER when a response or a call must come first. EndTxn waits for the completion
        of every batch (``has_incomplete``).
        """
        identity = self._identity
        # 0 after an empty transaction was completed without a request: a close that waited for
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
                # The abort needs the coordinator, too.
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
        """False: it was queued after another request when the abort began, and was never sent."""
        transaction = self._identity.transaction
        if transaction.new_partitions or transaction.pending_partitions:
            return True
        add.result.done()
        return False

    def _must_be_sent(self, end: TxnRequest) -> bool:
        """Decide how the transaction is completed, now that all of its batches are complete."""
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
        # No broker knows of the transaction, and nothing was written under this identity.
        identity.complete_transaction(None)
        end.result.done()
        return False

    def build(self, request: TxnRequest) -> Request[object]:
        """The protocol request for ``request``, from the state at the time of sending."""
        identity = self._identity
        name = identity.transactional_id
        assert name is not None
        with identity.lock:
            if request.kind is TxnRequestKind.FIND_COORDINATOR:
                return FindCoordinatorRequest((name,))
            if request.kind is TxnRequestKind.INIT_PRODUCER_ID:
                # A used identity is sent, so that a producer whose id was taken over is fenced.
                # There is none when this request fences: our own epoch would be rejected as old.
                return InitProducerIdRequest(
                    name,
                    self._transaction_timeout_ms,
                    *identity.used_identity,
                    enable_2pc=self._two_phase_commit,
                )
            if request.kind is TxnRequestKind.ADD_PARTITIONS_TO_TXN:
                partitions = identity.transaction.partitions_to_add()
                return AddPartitionsToTxnRequest(name, *identity.producer, partitions)
            version = identity.transaction.version
            return EndTxnRequest(name, *identity.producer, request.committed, version)

    def lookup_coordinator(self) -> None:
        """The coordinator is unknown, unreachable, or no longer the coordinator."""
        with self._identity.lock:
            self._lookup_coordinator()

    def _lookup_coordinator(self) -> None:
        self._coordinator = None
        if not self._waits(TxnRequestKind.FIND_COORDINATOR):
            self.enqueue(
                TxnRequest(TxnRequestKind.FIND_COORDINATOR, TransactionalResult("FindCoordinator"))
            )

    def lost(self, request: TxnRequest, at_ms: int) -> None:
        """``request`` was sent and has no response: it is resent at ``at_ms``."""
        asks_for_identity = request.kind is TxnRequestKind.INIT_PRODUCER_ID and not request.fences
        if asks_for_identity or request.kind is TxnRequestKind.ADD_PARTITIONS_TO_TXN:
            self.identity_in_doubt = True
        self.retry(request, at_ms)

    def retry(self, request: TxnRequest, at_ms: int) -> None:
        """``request`` has no response, or could not be sent: it is retried at ``at_ms``."""
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
        """No attempt of ``request`` can succeed: a fatal error."""
        with self._identity.lock:
            self._in_flight = None
            request.result.fail(error)
            self._fatal(error)

    # -- responses --------------------------------------------------------------------------------

    def handle_response(self, request: TxnRequest, body: object, where: str) -> Reaction:
        """Handle a response. After RETRY, RETRY_SOON and FIND_COORDINATOR the caller requeues the
        request with :meth:`retry`; other reactions are complete on return.
        """
        with self._identity.lock:
            self._in_flight = None
            if self._identity.state is State.FATAL_ERROR:
                return Reaction.DONE  # its waiter already has the error
            code, message = self._apply_response(request, body)
            reaction = reaction_to(request.kind, code)
            if code is ErrorCode.CONCURRENT_TRANSACTIONS and self._identity.transaction.partitions:
                # Not the first partitions: so the cause is not the previous transaction, which is
                # completed within milliseconds.
                reaction = Reaction.RETRY
            if reaction is Reaction.DONE:
                request.result.done()
            elif reaction is Reaction.FIND_COORDINATOR:
                self._lookup_coordinator()
            elif reaction not in (Reaction.RETRY, Reaction.RETRY_SOON):
                self._refused(request, reaction, code, where, message)
            return reaction

    def _apply_response(self, request: TxnRequest, body: object) -> tuple[ErrorCode, str | None]:
        """Apply a success. Returns the decisive code, and the broker's message for it."""
        if isinstance(body, FindCoordinatorResponse):
            (found,) = body.coordinators.values()
            if found.error is ErrorCode.NONE:
                self._coordinator = found.node
            return found.error, found.message
        if isinstance(body, AddPartitionsToTxnResponse):
            return self._apply_partitions(body)
        if isinstance(body, InitProducerIdResponse):
            if body.error is ErrorCode.NONE:
                self._sequences.reset()
                self._identity.set_producer_id_and_epoch(
                    ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
                )
            return body.error, None
        assert isinstance(body, EndTxnResponse), f"{request.kind.api_name}: {body!r}"
        if body.error is ErrorCode.NONE:
            self._sequences.reset()
            successor = ProducerIdAndEpoch(body.producer_id, body.producer_epoch)
            self._identity.complete_transaction(successor)
        return body.error, None

    def _apply_partitions(self, body: AddPartitionsToTxnResponse) -> tuple[ErrorCode, str | None]:
        transaction, kind = self._identity.transaction, TxnRequestKind.ADD_PARTITIONS_TO_TXN
        failed = {tp: code for tp, code in body.errors.items() if code is not ErrorCode.NONE}
        if not failed:
            transaction.partitions_answered(body.errors, added=True)
            return ErrorCode.NONE, None
        # The most severe. OPERATION_NOT_ATTEMPTED is a consequence of another partition's error.
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
        self,
        request: TxnRequest,
        reaction: Reaction,
        code: ErrorCode,
        where: str,
        message: str | None,
    ) -> None:
        identity = self._identity
        if reaction is Reaction.FENCED:
            code, message = ErrorCode.PRODUCER_FENCED, None
        error = code.error(where, message)
        request.result.fail(error)
        if reaction is Reaction.UNAUTHORIZED:
            if identity.state is State.INITIALIZING and not request.fences:
                identity.transition(State.UNINITIALIZED)
                return
            reaction = Reaction.ABORTABLE
        if reaction is Reaction.ABORTABLE_WITH_NEW_EPOCH and identity.can_raise_epoch:
            reaction = Reaction.ABORTABLE
        # A failed abort can't be aborted again.
        aborts = request.fences or (
            request.kind is TxnRequestKind.END_TXN and not request.committed
        )
        if reaction is Reaction.ABORTABLE and not aborts and identity.state in _CAN_ABORT:
            identity.transition_to_abortable_error(error)
        else:
            self._fatal(error)

    def _fatal(self, error: KafkaError) -> None:
        self._identity.transition_to_fatal_error(error)
        self.fail_all(error)
