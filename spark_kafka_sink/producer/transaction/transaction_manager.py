"""The producer id, epoch, sequence numbers and transaction of a producer (Java's
``TransactionManager``).

The manager begins, commits, aborts and prepares transactions. ``BatchDrainer`` asks the manager
whether a batch can be sent, and ``Sender`` asks it for the action after a response. The manager
uses ``transaction_states.py`` (the producer id and the states), ``partition_sequences.py`` (the
sequence numbers) and ``txn_request_queue.py`` (the requests).

The transaction version is a feature of the cluster (``transaction.version``). It is 1, or 2 since
KIP-890. A transaction keeps the version that the cluster has when the transaction begins.

Threads: application threads call the methods that implement public methods of ``KafkaProducer``.
The sender thread calls the other methods. State is changed under the lock of ``ProducerIdentity``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from spark_kafka_sink.base.errors import (
    ErrorCode,
    IllegalStateError,
    InvalidTxnStateError,
    KafkaError,
    RetriableError,
    TransactionAbortableError,
)
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import IncompleteBatches
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.producer.transaction.partition_sequences import (
    MAX_IN_FLIGHT,
    UNCLEAR_ANSWERS,
    Action,
    Answer,
    PartitionSequences,
    TxnPartitionMap,
    Verdict,
)
from spark_kafka_sink.producer.transaction.transaction_states import (
    ONGOING,
    ProducerIdentity,
    State,
)
from spark_kafka_sink.producer.transaction.txn_request_queue import TxnRequestQueue
from spark_kafka_sink.producer.transaction.txn_requests import (
    TransactionalResult,
    TxnRequest,
    TxnRequestKind,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.records.record_batch import NO_SEQUENCE

#: Produce 12 implicitly adds the partition to the transaction; transaction version 1 must use less.
_PRODUCE_VERSION_OF_V2 = 12

_FATAL_OF_A_BATCH = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
#: New batches may be sent in these states of a transactional producer.
_SENDING = frozenset({State.IN_TRANSACTION, State.COMMITTING_TRANSACTION})
_COMPLETING = frozenset({State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION})


class TransactionManager:
    """The producer id, the sequence numbers and the transaction of one producer.

    ``incomplete`` are the incomplete batches of the accumulator. ``wakeup`` wakes the sender.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        incomplete: IncompleteBatches,
        wakeup: Callable[[], None],
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        max_in_flight: int = MAX_IN_FLIGHT,
    ) -> None:
        self._transactional_id = transactional_id
        self._incomplete = incomplete
        self._wakeup = wakeup
        self._identity = ProducerIdentity(transactional_id, lifecycle)
        self._sequences = TxnPartitionMap(max_in_flight)
        #: The queue of requests. The sender sends them.
        self.requests = TxnRequestQueue(
            self._identity, self._sequences, incomplete, transaction_timeout_ms
        )
        self._pending_call: TransactionalResult | None = None

    # -- identity ---------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        return self._identity.state

    @property
    def transactional_id(self) -> str | None:
        return self._transactional_id

    @property
    def is_transactional(self) -> bool:
        return self._transactional_id is not None

    @property
    def is_completing(self) -> bool:
        """True while the transaction is being committed or aborted. All its batches must now be
        sent, or fail.
        """
        return self._identity.state in _COMPLETING

    @property
    def must_abort(self) -> bool:
        """True if the transaction has failed or is being aborted. Batches that were not sent yet
        must then fail with :attr:`last_error`.
        """
        return self._identity.state in (State.ABORTING_TRANSACTION, State.ABORTABLE_ERROR)

    @property
    def has_ongoing_transaction(self) -> bool:
        """True if this producer has a transaction that it must still commit or abort. False for a
        prepared transaction, which only the driver can end.
        """
        return self._identity.state in ONGOING

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions of the current transaction."""
        return frozenset(self._identity.transaction.partitions)

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        return self._identity.producer

    @property
    def has_producer_id(self) -> bool:
        return self._identity.producer.producer_id >= 0

    @property
    def produce_versions(self) -> tuple[int, int]:
        """The lowest and the highest version of the Produce API for batches of the current
        transaction. The lowest is 0 if there is no lower bound.

        With version 12, the leader adds the partition to the transaction. This is required for
        transaction version 2, and not allowed for transaction version 1.
        """
        if self._transactional_id is None:
            return 0, _PRODUCE_VERSION_OF_V2
        if self._identity.transaction.version == 1:
            return 0, _PRODUCE_VERSION_OF_V2 - 1
        return _PRODUCE_VERSION_OF_V2, _PRODUCE_VERSION_OF_V2

    @property
    def last_error(self) -> KafkaError | None:
        """The error of the failed transaction or of the failed producer. None if there is no
        error.
        """
        return self._identity.last_error

    @property
    def reusable(self) -> bool:
        """True if another task can use this producer: the producer has a producer id, no open
        transaction and no error, and every batch has its outcome.
        """
        return self._identity.state is State.READY and self._sequences.in_flight == 0

    # -- the application's calls ------------------------------------------------------------------

    def describe_last_transaction(self) -> TransactionalResult:
        """Requests the state of the last transaction of the transactional id. The caller waits for
        the returned result. The state is then in ``requests.last_state``.
        """

        def begin(result: TransactionalResult) -> None:
            self._identity.raise_error()
            self._identity.require(State.UNINITIALIZED, "describe its last transaction")
            self.requests.enqueue(TxnRequest(TxnRequestKind.DESCRIBE_TRANSACTIONS, result))

        return self._call("DescribeTransactions", begin)

    def initialize_transactions(self) -> TransactionalResult:
        """Requests a producer id and epoch for the transactional id. The coordinator then aborts an
        open transaction of an earlier producer with this id. The caller waits for the returned
        result.
        """

        def begin(result: TransactionalResult) -> None:
            self._identity.raise_error()
            self._identity.transition(State.INITIALIZING)
            self.requests.enqueue(TxnRequest(TxnRequestKind.INIT_PRODUCER_ID, result))

        return self._call("init_transactions", begin)

    def begin_transaction(self) -> None:
        """Begins a transaction without waiting for a broker.

        If the producer has no producer id and epoch for this transaction, this method queues
        InitProducerId to request them. Batches are sent only after the response.
        """
        with self._identity.lock:
            self._check_call("begin_transaction")
            self._identity.raise_error()
            self._identity.begin_transaction()
            # With transaction version 1, each producer id and epoch is used for one transaction.
            # With version 2, EndTxn has returned the next epoch.
            if not self.has_producer_id:
                result = TransactionalResult("begin_transaction")
                self.requests.enqueue(TxnRequest(TxnRequestKind.INIT_PRODUCER_ID, result))
        self._wakeup()

    def begin_commit(self) -> TransactionalResult:
        """Begins a commit. The sender sends all batches, waits for their acknowledgements, and then
        sends EndTxn. The caller waits for the returned result.
        """

        def begin(result: TransactionalResult) -> None:
            self._identity.raise_error()
            self._identity.transition(State.COMMITTING_TRANSACTION)
            self.requests.enqueue(TxnRequest(TxnRequestKind.END_TXN, result, committed=True))

        return self._call("commit_transaction", begin)

    def begin_abort(self) -> TransactionalResult:
        """Begins an abort. The sender fails the batches that were not sent yet, waits for the
        responses to the others, and then sends EndTxn. The caller waits for the returned result.
        """

        def begin(result: TransactionalResult) -> None:
            if self._identity.state is not State.ABORTABLE_ERROR:
                self._identity.raise_error()
            self._begin_abort(result)

        return self._call("abort_transaction", begin)

    def abort_on_close(self) -> None:
        """Begins an abort because the producer is closed. The sender calls this method.

        This method may be called while another call, such as a commit, waits for its result. In
        this situation :meth:`begin_abort` would raise an error.
        """
        with self._identity.lock:
            self._begin_abort(TransactionalResult("close"))

    def _begin_abort(self, result: TransactionalResult) -> None:
        error = self._identity.last_error
        if error is not None:
            # A commit waits for its batches, and a batch fails. Before the sender fails the commit
            # for that, a close begins the abort, which clears the error: the commit would be sent.
            self.requests.fail_end(error)
        self._identity.transition(State.ABORTING_TRANSACTION)
        self._identity.transaction.new_partitions.clear()
        self.requests.enqueue(TxnRequest(TxnRequestKind.END_TXN, result, committed=False))

    def prepare(self) -> PreparedTransaction:
        """Hands the open transaction over to the caller. This producer can then neither commit nor
        abort the transaction.

        The returned value has the ids and the epoch that are needed to end the transaction
        (``EndTxnRequest``). Closing the producer leaves the transaction open. If nobody ends the
        transaction, brokers abort it after transaction.timeout.ms.

        The caller must first wait until all records are acknowledged. If the transaction has
        failed, this method raises its error. It raises IllegalStateError in these cases:

        * There is no transaction.
        * Nothing was written in the transaction.
        * A record is not acknowledged.
        """
        identity = self._identity
        with identity.lock:
            self._check_call("prepare")
            identity.raise_error()
            identity.require(State.IN_TRANSACTION, "prepare a transaction")
            transaction = identity.transaction
            if (
                self._incomplete
                or self._sequences.in_flight
                or transaction.new_partitions
                or transaction.pending_partitions
            ):
                raise IllegalStateError(
                    f"{identity.name}: a transaction can't be prepared while records of it are not "
                    "acknowledged; flush() first"
                )
            if not transaction.started:
                raise IllegalStateError(
                    f"{identity.name}: nothing was written, so there is no transaction to prepare"
                )
            identity.transition(State.PREPARED)
            assert self._transactional_id is not None
            return PreparedTransaction(
                self._transactional_id, *identity.producer, transaction.version
            )

    def forget_prepared(self) -> None:
        """Makes the producer usable again, after the driver has committed or aborted the prepared
        transaction.

        The caller must next call :meth:`initialize_transactions`. That call would abort the
        prepared transaction if it were still open. So the caller must be certain that the
        transaction has ended.
        """
        with self._identity.lock:
            self._identity.require(State.PREPARED, "forget a prepared transaction")
            self._identity.forget_prepared()

    def ensure_in_transaction(self) -> None:
        """Raises an error if records can't be sent now: if a transactional producer is not in a
        transaction, or if an idempotent producer has failed. Called before each append.
        """
        self.maybe_fail_with_error()
        if self.is_transactional:
            self._identity.require(State.IN_TRANSACTION, "send")

    def maybe_add_partition(self, tp: TopicPartition) -> None:
        """Adds the topic partition ``tp`` to the transaction. Does nothing if the transaction
        already has it. A batch of ``tp`` is sent only after ``tp`` was added.

        Raises the error of the producer if the producer has failed. A producer without transactions
        does nothing else. A transactional producer also raises:

        * IllegalStateError, if no transaction was begun.
        * IllegalStateError, if an earlier call, such as a commit, timed out. The application must
          repeat that call first, to receive its result.
        * The error of the transaction, if the transaction has failed.
        """
        self.maybe_add_partitions((tp,))

    def maybe_add_partitions(self, tps: Iterable[TopicPartition]) -> None:
        """Adds the partitions ``tps`` to the transaction, like :meth:`maybe_add_partition`."""
        identity = self._identity
        if not self.is_transactional:
            self.maybe_fail_with_error()
            return
        if identity.state is State.IN_TRANSACTION:
            known = identity.transaction.partitions
            tps = [tp for tp in tps if tp not in known]
            if not tps:
                return
        with identity.lock:
            self._check_call("send")
            identity.raise_error()
            identity.require(State.IN_TRANSACTION, "add a partition to a transaction")
            identity.transaction.add(tps)
        # The sender may have skipped these batches, and must check again.
        self._wakeup()

    def maybe_fail_with_error(self) -> None:
        """Raises the error of the transaction or of the producer, if there is an error."""
        if self._identity.in_error:
            with self._identity.lock:
                self._identity.raise_error()

    def transition_to_abortable_error(self, error: KafkaError) -> None:
        """Marks the transaction as failed with ``error``, after a record of the transaction could
        not be sent. The transaction can then only be aborted.

        The call has no effect in these cases:

        * The transaction or the producer has already failed. The first error stays.
        * The transaction is being aborted.
        * EndTxn was already sent for a commit.
        """
        identity = self._identity
        with identity.lock:
            # After EndTxn, a record that fails now was waiting in ``send`` on another thread. It is
            # not in the transaction, so it does not change the outcome of the commit.
            if identity.state is State.COMMITTING_TRANSACTION and identity.transaction.end_sent:
                return
            identity.transition_to_abortable_error(error)
        self._wakeup()

    def _call(
        self, operation: str, begin: Callable[[TransactionalResult], None]
    ) -> TransactionalResult:
        """Begins ``operation`` by calling ``begin(result)``. Returns ``result``, for which the
        caller waits.

        If the previous call of ``operation`` has timed out or was interrupted, nothing begins, and
        the result of that call is returned.
        """
        with self._identity.lock:
            pending = self._check_call(operation)
            if pending is not None:
                return pending
            result = TransactionalResult(operation)
            begin(result)
            self._pending_call = result
        self._wakeup()
        return result

    def _check_call(self, operation: str) -> TransactionalResult | None:
        """Checks whether ``operation`` can begin. A previous call may still be open: a call is open
        until the application has received its result, even if the wait for the result has timed
        out.

        * No call is open: returns None. ``operation`` can begin.
        * A call of ``operation`` is open: returns the result of this call.
        * A call of another operation is open: raises IllegalStateError.
        * The producer has no transactional.id: raises IllegalStateError.
        """
        if not self.is_transactional:
            raise IllegalStateError(
                f"{operation} needs a transactional producer",
                hint="set transactional.id",
            )
        pending = self._pending_call
        if pending is None or pending.is_acked:
            self._pending_call = None
            return None
        if pending.operation == operation:
            return pending
        raise IllegalStateError(
            f"{self._identity.name}: {operation} can't begin, because the call of "
            f"{pending.operation} before it timed out",
            hint=f"call {pending.operation} again, until it returns or raises another error",
        )

    # -- failure and close (called by the sender) -------------------------------------------------

    def transition_to_fatal_error(self, error: KafkaError) -> None:
        """Marks the producer as failed with ``error``. Nothing more is sent. If the producer has
        already failed, the first error stays.
        """
        with self._identity.lock:
            self._identity.transition_to_fatal_error(error)
            self._fail_calls(error)

    def close(self, error: KafkaError) -> None:
        """Fails all requests for the producer id and the transaction, and the calls that wait for
        them, with ``error``. Called when the sender ends.
        """
        with self._identity.lock:
            self._fail_calls(error)

    def _fail_calls(self, error: KafkaError) -> None:
        self.requests.fail_all(error)
        if self._pending_call is not None:
            self._pending_call.fail(error)

    # -- drain (called by the accumulator) --------------------------------------------------------

    def may_drain(self, batch: ProducerBatch) -> bool:
        """Returns True if ``batch``, the first batch of its queue, can be sent now (Java's
        shouldStopDrainBatchesForPartition).

        A batch that is sent again already has its sequence number. It can be sent if no earlier
        batch of the partition is in flight or must be sent again. A new batch follows DESIGN.md,
        rule R3 (``PartitionSequences.can_send_new``).

        The result changes from False to True only after a response or a call, never because time
        passes.
        """
        # Without the lock: each field is replaced atomically, and each change wakes the sender.
        tp, identity = batch.tp, self._identity
        sequences = self._sequences.of[tp]
        if batch.base_sequence != NO_SEQUENCE:
            # Retries are sent one by one, so that they can't overtake each other.
            return sequences.first_sequence in (NO_SEQUENCE, batch.base_sequence)
        # A new batch needs a producer id.
        if self._transactional_id is None:
            if identity.state is not State.READY:
                return False
        else:
            # The partition must be in the transaction, which is open or is being committed.
            transaction = identity.transaction
            if (
                identity.state not in _SENDING
                or transaction.end_sent
                or tp not in transaction.partitions
                or not identity.producer.is_valid
            ):
                return False
        return sequences.can_send_new()

    def first_in_flight_sequence(self, tp: TopicPartition) -> int:
        """The lowest sequence number of the partition's batches that are in flight or wait to be
        sent again. NO_SEQUENCE if there is no such batch.
        """
        return self._sequences.of[tp].first_sequence

    def batches_sent(self, batches: Sequence[ProducerBatch]) -> None:
        """Notes that ``batches`` are sent now. A new batch gets its sequence number and its
        header. A batch that is sent again keeps both.
        """
        identity, sequences = self._identity, self._sequences
        newest = identity.producer
        transactional = self._transactional_id is not None
        for batch in batches:
            of_partition = sequences.of[batch.tp]
            if batch.base_sequence != NO_SEQUENCE:
                of_partition.sent(batch)
                continue
            if of_partition.producer is not newest:
                of_partition = sequences.begin(batch.tp, newest)
            producer_id, epoch = of_partition.producer
            identity.transaction.started = True
            sequences.in_flight += 1
            sequence = of_partition.assign_sequence(batch, batch.record_count)
            batch.set_producer_state(producer_id, epoch, sequence, transactional=transactional)

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Adds a queued batch that was split from another batch. It already has a sequence
        number.
        """
        self._sequences.add(batch)

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Removes ``batch``, which was split. The caller then adds the new batches, which have the
        sequence numbers of ``batch``.
        """
        self._sequences.remove(batch)

    # -- responses (reported by the sender) -------------------------------------------------------

    def handle_produce_response(
        self, batch: ProducerBatch, answer: Answer, base_offset: int, now: int
    ) -> Verdict[ProducerBatch]:
        """Returns the action for ``batch`` after a response, according to the rules in
        ``partition_sequences.py``.
        """
        sequences = self._sequences.of[batch.tp]
        if answer is Answer.OLD_EPOCH and self._has_raised_epoch(sequences):
            self._sequences.leave_old_epoch(batch.tp)
        verdict = sequences.answer(batch, answer, base_offset, now)
        if verdict.action is Action.COMPLETE:
            self._sequences.in_flight -= 1
            if verdict.proven:
                self._sequences.in_flight -= len(verdict.proven)
        return verdict

    def _has_raised_epoch(self, sequences: PartitionSequences[ProducerBatch]) -> bool:
        """Called after a broker has rejected the producer epoch of a batch. Returns True if the
        partition of the batch can change to the newest epoch. All these conditions must be true:

        * The producer has no transactional.id.
        * The producer has raised its epoch, and this partition still has the old epoch.
        * No unresolved batch of the partition has rows of ``send_columns``.
        """
        return (
            self._transactional_id is None
            and sequences.producer is not self._identity.producer
            # Rows of ``send_columns`` never get a new sequence number.
            and all(batch.has_futures_only for batch in sequences.unresolved)
        )

    def handle_failed_batch(
        self, batch: ProducerBatch, error: KafkaError, *, unclear: bool
    ) -> tuple[ProducerBatch, ...]:
        """Marks the transaction as failed after ``batch`` has failed with ``error``. Only for a
        producer with transactions. Returns the other batches that also fail.

        ``unclear`` is True if the batch was sent and may be in the log. In two cases, the whole
        producer is marked as failed:

        * ``error`` concerns the whole producer (:func:`is_fatal`).
        * The batch may be in the log, and the coordinator can't raise the epoch (before Kafka 2.5).
        """
        others: tuple[ProducerBatch, ...] = ()
        if batch.has_sequence:
            others = self._sequences.fail(batch, unclear=unclear)
        identity = self._identity
        with identity.lock:
            if is_fatal(error):
                identity.transition_to_fatal_error(error)
            elif unclear and batch.has_sequence and not identity.can_raise_epoch:
                identity.transition_to_fatal_error(
                    KafkaError(
                        f"{error.message}; it is not safe to continue: the coordinator is too "
                        "old to raise this producer's epoch",
                        hint="transactions require brokers of Kafka 2.5 or newer",
                    )
                )
            elif identity.state in ONGOING:
                identity.transition_to_abortable_error(_as_abortable(error))
            # Otherwise it was appended outside of a transaction, and only it fails.
        return others

    def unresolved(self, tp: TopicPartition) -> list[ProducerBatch]:
        """The batches of ``tp`` that have a sequence number and no outcome yet, in order."""
        return self._sequences.of[tp].unresolved

    def handle_lost_sequence(self, batch: ProducerBatch) -> tuple[ProducerBatch, ...]:
        """Begins the change of a partition to the next producer epoch, after ``batch`` has failed.
        Returns the other batches that also fail.

        Called only for an idempotent producer without transactions, and only if ``send`` has
        appended all records of ``batch``.
        """
        if not batch.has_sequence:
            return ()  # it was never sent, or what was sent is not in the log: there is no gap
        identity = self._identity
        if self._sequences.of[batch.tp].producer is identity.producer:
            # Otherwise the next epoch is there already: another partition has moved on to it.
            with identity.lock:
                identity.raise_epoch()
        # The sequence numbers of this batch may be missing in the log. So brokers may reject all
        # later batches with the old epoch.
        return self._sequences.move_on(batch)

    @property
    def moving(self) -> bool:
        """True if a partition is changing to the next epoch."""
        return bool(self._sequences.moving)

    def take_moved(self) -> list[ProducerBatch]:
        """Returns the batches that must be sent again with the next epoch, and removes their
        sequence numbers from the manager.

        These are the unresolved batches of all partitions that can change to the next epoch now.
        The batches of a partition are in order.
        """
        # These batches get their sequence numbers when they are drained, like new batches. Java's
        # class changes the sequence numbers of queued batches.
        return self._sequences.take_moved()

    def handle_late_response(self, batch: ProducerBatch, answer: Answer) -> None:
        """Handles the response to a batch that has already failed. The response may show whether
        the batch is in the log.
        """
        if self._transactional_id is None:
            self._sequences.answered_late(batch, answer)
        elif answer is Answer.ACKNOWLEDGED or (
            answer not in UNCLEAR_ANSWERS and not batch.in_retry
        ):
            self._sequences.resolve(batch)

    def expire_acks(self, now: int) -> None:
        """Finds the partitions whose last acknowledgement is older than ACK_EXPIRY_MS, and assumes
        that their leaders have forgotten this producer (see
        :meth:`PartitionSequences.expire_acks`).
        """
        self._sequences.expire_acks(now)


def is_fatal(error: KafkaError) -> bool:
    """Returns True if the whole producer fails when a batch fails with ``error``. After other
    errors of a batch, the producer or its transaction may continue.
    """
    return getattr(error, "code", None) in _FATAL_OF_A_BATCH


def _as_abortable(error: KafkaError) -> KafkaError:
    """Converts a retriable error, after the last retry, to a TransactionAbortableError (KIP-1050).
    Returns any other error unchanged.
    """
    if not isinstance(error, RetriableError | InvalidTxnStateError):
        return error
    abortable = TransactionAbortableError(
        f"Transaction Request was aborted after exhausting retries. {error.message}",
        hint=error.hint,
        kind=error.kind,
    )
    abortable.__cause__ = error
    return abortable
