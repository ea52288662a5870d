"""The producer's identity (producer id and epoch), and the state of its transaction.

Owns: :class:`State`, the producer id and epoch, the error of a transaction, one
:class:`Transaction`, and every change of these that :data:`TRANSITIONS` allows.
``transaction_manager.py`` changes them for the application and for batches,
``txn_request_queue.py`` by the coordinator's responses. Never: a request, a sequence, a wait.

The states of a transactional producer, with the call or response of each transition::

    UNINITIALIZED -init_transactions-> INITIALIZING -InitProducerId-> READY
    READY -begin-> IN_TRANSACTION -commit-> COMMITTING_TRANSACTION -EndTxn-> READY
                   IN_TRANSACTION -abort--> ABORTING_TRANSACTION ---EndTxn-> READY
                   IN_TRANSACTION -prepare-> PREPARED   (only the driver commits or aborts it)
    a failure in between -> ABORTABLE_ERROR -abort-> ABORTING_TRANSACTION, or FATAL_ERROR

An idempotent producer has only UNINITIALIZED, INITIALIZING, READY and FATAL_ERROR.

**Each (producer id, epoch) belongs to one transaction** (rule R4). With transaction version 2
(KIP-890) each EndTxn response has the next epoch. With version 1 the response has no epoch. The
identity then counts as *used*, and the next ``begin_transaction`` requests another identity. So a
late duplicate of a batch can never belong to a later transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from spark_kafka_sink.base.errors import IllegalStateError, KafkaError, ProducerFencedError
from spark_kafka_sink.producer.lifecycle import Lifecycle
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.producer_ids import NO_PRODUCER_ID, ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import ApiKey

#: From this InitProducerId version on, a producer can send its epoch to have it raised
#: (KIP-360).
_INIT_WITH_OWN_EPOCH = 3


#: The last epoch of an idempotent producer: an epoch has 16 bits.
LAST_EPOCH = 2**15 - 1


class State(Enum):
    """The state of the identity and of its transaction."""

    UNINITIALIZED = "no producer id"
    INITIALIZING = "InitProducerId is in flight or to be retried"
    READY = "has a producer id"
    IN_TRANSACTION = "in a transaction"
    PREPARED = "its transaction is prepared, and only the driver completes it"
    COMMITTING_TRANSACTION = "committing its transaction"
    ABORTING_TRANSACTION = "aborting its transaction"
    ABORTABLE_ERROR = "its transaction has failed and must be aborted"
    FATAL_ERROR = "failed permanently"


_S = State

#: The allowed transitions; any state may change to FATAL_ERROR.
TRANSITIONS: dict[State, frozenset[State]] = {
    _S.UNINITIALIZED: frozenset({_S.INITIALIZING, _S.FATAL_ERROR}),
    # Back to UNINITIALIZED: not authorised, which an administrator can fix.
    _S.INITIALIZING: frozenset({_S.READY, _S.UNINITIALIZED, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    # To UNINITIALIZED: the epochs of an idempotent producer's id are used up.
    _S.READY: frozenset({_S.IN_TRANSACTION, _S.UNINITIALIZED, _S.FATAL_ERROR}),
    _S.IN_TRANSACTION: frozenset(
        {
            _S.PREPARED,
            _S.COMMITTING_TRANSACTION,
            _S.ABORTING_TRANSACTION,
            _S.ABORTABLE_ERROR,
            _S.FATAL_ERROR,
        }
    ),
    # Only when the driver has committed or aborted it; see ``TransactionManager.forget_prepared``.
    _S.PREPARED: frozenset({_S.UNINITIALIZED, _S.FATAL_ERROR}),
    _S.COMMITTING_TRANSACTION: frozenset({_S.READY, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    # To INITIALIZING: aborted by requesting a new identity, which fences the old one.
    # To UNINITIALIZED: there was no identity yet.
    _S.ABORTING_TRANSACTION: frozenset(
        {_S.READY, _S.INITIALIZING, _S.UNINITIALIZED, _S.FATAL_ERROR}
    ),
    _S.ABORTABLE_ERROR: frozenset({_S.ABORTING_TRANSACTION, _S.ABORTABLE_ERROR, _S.FATAL_ERROR}),
    _S.FATAL_ERROR: frozenset({_S.FATAL_ERROR}),
}

#: A transaction of this producer is, or may be, open.
ONGOING = frozenset(
    {
        _S.IN_TRANSACTION,
        _S.COMMITTING_TRANSACTION,
        _S.ABORTING_TRANSACTION,
        _S.ABORTABLE_ERROR,
    }
)


_IN_ERROR = frozenset({_S.ABORTABLE_ERROR, _S.FATAL_ERROR})


@dataclass(slots=True)
class Transaction:
    """The producer's view of one transaction.

    * ``new_partitions``: partitions that must still be added (version 1).
    * ``pending_partitions``: partitions that are being added.
    * ``partitions``: partitions that were added.
    * ``started``: true if a broker has the transaction, which must then be committed or aborted.
    * ``add_unclear``: true if a request AddPartitionsToTxn got no response.
    * ``end_sent``: true if the transaction is being ended. No batch may be sent any more.
    """

    version: int = 1
    new_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    pending_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)
    started: bool = False
    add_unclear: bool = False
    end_sent: bool = False

    def add(self, tps: Iterable[TopicPartition]) -> None:
        """Adds the partitions ``tps`` of appended records, or queues them for AddPartitionsToTxn
        (version 1).
        """
        if self.version >= 2:
            self.partitions.update(tps)  # the leader notifies the coordinator at the first Produce
            return
        for tp in tps:
            if tp not in self.partitions and tp not in self.pending_partitions:
                self.new_partitions[tp] = None

    def partitions_to_add(self) -> tuple[TopicPartition, ...]:
        """The partitions for AddPartitionsToTxn: new partitions, and partitions whose request got
        no response.
        """
        self.pending_partitions |= self.new_partitions
        self.new_partitions.clear()
        self.add_unclear = True
        return tuple(self.pending_partitions)

    def partitions_answered(self, tps: Iterable[TopicPartition], *, added: bool) -> None:
        """Handles a definite response to AddPartitionsToTxn: all of ``tps`` were added, or none."""
        self.add_unclear = False
        for tp in tps:
            self.pending_partitions.pop(tp, None)
        if added:
            self.partitions.update(tps)
            self.started = True


class ProducerIdentity:
    """The producer id and epoch, the state, and the transaction of one producer.

    Every method except ``note_api_versions`` and the properties runs under ``lock``, which the
    caller takes. Single fields may be read without the lock, because each is set or replaced
    atomically.
    """

    def __init__(self, transactional_id: str | None, lifecycle: Lifecycle) -> None:
        self.transactional_id = transactional_id
        self._lifecycle = lifecycle
        self.lock = threading.Lock()
        self.state = State.UNINITIALIZED
        self.producer = NO_PRODUCER_ID
        #: The identity of the last transaction (version 1): not usable again.
        self.used_identity = NO_PRODUCER_ID
        self._abortable_error: KafkaError | None = None
        self.transaction = Transaction()
        #: The version of the next transaction.
        self.latest_version = 1
        self._features_epoch = -1
        self._may_raise_epoch = True

    @property
    def name(self) -> str:
        if self.transactional_id is None:
            return f"producer {self.producer.producer_id}"
        return f"transactional id '{self.transactional_id}'"

    @property
    def last_error(self) -> KafkaError | None:
        """The error of the current state. None if the state is not an error. In FATAL_ERROR it is
        the producer's error.
        """
        if self.state is State.FATAL_ERROR:
            return self._lifecycle.fatal
        return self._abortable_error

    @property
    def in_error(self) -> bool:
        return self.state in _IN_ERROR

    @property
    def can_raise_epoch(self) -> bool:
        """True if the coordinator can raise this producer's epoch after a lost batch."""
        return self.transaction.version >= 2 or self._may_raise_epoch

    def note_api_versions(
        self, brokers: Iterable[NodeApiVersions], coordinator: NodeApiVersions | None
    ) -> None:
        """Updates the cluster's features from connected brokers. If brokers report different
        features, the features with the highest epoch are used.
        """
        for versions in brokers:
            if versions.finalized_features_epoch > self._features_epoch:
                self._features_epoch = versions.finalized_features_epoch
                self.latest_version = 2 if versions.transaction_version >= 2 else 1
        if coordinator is not None:
            found = coordinator.api_versions.get(ApiKey.INIT_PRODUCER_ID)
            self._may_raise_epoch = found is not None and found.max >= _INIT_WITH_OWN_EPOCH

    # -- changes of state -------------------------------------------------------------------------

    def transition(self, target: State) -> None:
        """Changes the state to ``target``. Raises IllegalStateError if the table does not allow the
        change.
        """
        if target not in TRANSITIONS[self.state]:
            raise IllegalStateError(
                f"{self.name}: can't go from '{self.state.value}' to '{target.value}'"
            )
        if target is not State.ABORTABLE_ERROR:
            self._abortable_error = None
        self.state = target

    def transition_to_fatal_error(self, error: KafkaError) -> None:
        """Fails the producer with ``error``, which stops its sender. The first error is kept."""
        self._lifecycle.stop(error)
        if self.state is not State.FATAL_ERROR:
            self.transition(State.FATAL_ERROR)

    def transition_to_abortable_error(self, error: KafkaError) -> None:
        """Fails the transaction, which can then only be aborted. The first error is kept.

        The call has no effect while the transaction is being aborted, and after a fatal error. (A
        ``send`` that was waiting may make this call after a fatal error.)
        """
        if self.state in (State.ABORTING_TRANSACTION, *_IN_ERROR):
            return
        self.transition(State.ABORTABLE_ERROR)
        self._abortable_error = error

    def begin_transaction(self) -> None:
        self.transition(State.IN_TRANSACTION)
        self.transaction = Transaction(self.latest_version)

    def set_producer_id_and_epoch(self, producer: ProducerIdAndEpoch) -> None:
        """Sets the identity that a broker returned.

        There are three cases: the identity is the producer's first, an abort has requested it, or a
        transaction was begun (and perhaps completed) after the request was sent.
        """
        if self.state not in ONGOING and self.state is not State.READY:
            self.transition(State.READY)
            self.transaction = Transaction(self.transaction.version)
        self.producer, self.used_identity = producer, NO_PRODUCER_ID

    def complete_transaction(self, successor: ProducerIdAndEpoch | None) -> None:
        """Ends a transaction that was committed or aborted.

        ``successor`` is the identity for the next transaction. NO_PRODUCER_ID means that a new
        identity must be requested. None means that no broker has the transaction, so the current
        identity stays.
        """
        if successor is not None:
            self.used_identity = NO_PRODUCER_ID if successor.is_valid else self.producer
            self.producer = successor
        known = self.producer.is_valid or self.used_identity.is_valid
        self.transition(State.READY if known else State.UNINITIALIZED)
        self.transaction = Transaction(self.transaction.version)

    def reset_producer_id(self) -> None:
        """Drops the identity. A new identity must then be requested."""
        self.transition(State.UNINITIALIZED)
        self.producer = NO_PRODUCER_ID

    def raise_epoch(self) -> None:
        """Raises the epoch of an idempotent producer without a request, like Java's producer
        (``bumpIdempotentProducerEpoch``, KIP-360). After the largest epoch, a new id is requested.
        """
        producer_id, epoch = self.producer
        if epoch < LAST_EPOCH:
            self.producer = ProducerIdAndEpoch(producer_id, epoch + 1)
        elif self.state is State.READY:
            self.reset_producer_id()

    def forget_prepared(self) -> None:
        self.reset_producer_id()
        self.transaction = Transaction(self.transaction.version)

    # -- refusals ---------------------------------------------------------------------------------

    def raise_error(self) -> None:
        """Raises the error of the transaction or of the producer, as a new exception for each
        caller.
        """
        error = self.last_error
        if not self.in_error or error is None:
            return
        what = f"{self.name}: {error.message}"
        if isinstance(error, ProducerFencedError):
            raise ProducerFencedError(what, hint=error.hint, code=error.code) from error
        if self.state is State.ABORTABLE_ERROR:
            remedy = "this transaction can only be aborted; then a new one can begin"
        else:
            remedy = "the producer can only be closed"
        # The hint of the cause first: only that helps a task of the sink, which aborts by itself.
        hint = f"{error.hint}; {remedy}" if error.hint else remedy
        raise KafkaError(what, hint=hint, kind=error.kind) from error

    def require(self, state: State, what: str) -> None:
        """Raises IllegalStateError if the state is not ``state``."""
        if self.state is not state:
            raise IllegalStateError(f"{self.name}: can't {what} in state '{self.state.value}'")
