"""The identity of a producer (its producer id and epoch), and the state of its transaction.

:class:`ProducerIdentity` has this identity and state. :data:`TRANSITIONS` lists the allowed changes
of the state.
``transaction_manager.py`` makes the changes that the application and the batches cause.
``txn_request_queue.py`` makes the changes after responses of the coordinator.

The following lines show the states of a transactional producer. Each arrow has the call or the
response that changes the state::

    UNINITIALIZED -init_transactions-> INITIALIZING -InitProducerId-> READY
    READY -begin-> IN_TRANSACTION -commit-> COMMITTING_TRANSACTION -EndTxn-> READY
                   IN_TRANSACTION -abort--> ABORTING_TRANSACTION ---EndTxn-> READY
                   IN_TRANSACTION -prepare-> PREPARED   (now only the driver ends the transaction)
    a failure of the transaction -> ABORTABLE_ERROR -abort-> ABORTING_TRANSACTION
    a failure of the producer -> FATAL_ERROR

An idempotent producer without transactions has only the states UNINITIALIZED, INITIALIZING, READY
and FATAL_ERROR.

Each (producer id, epoch) is used for one transaction only (DESIGN.md, rule R4). So a batch that
arrives late can never become a part of a later transaction.
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

#: The first version of InitProducerId in which a producer can send its epoch. The coordinator then
#: raises this epoch (KIP-360).
_INIT_WITH_OWN_EPOCH = 3


#: The last epoch of an idempotent producer: an epoch has 16 bits.
LAST_EPOCH = 2**15 - 1


class State(Enum):
    """The state of a producer's identity and of its transaction."""

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

#: The states in which a transaction of this producer may be open.
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
    """The state of one transaction in the producer.

    * ``version``: the transaction version, 1 or 2 (KIP-890).
    * ``new_partitions``: partitions for which AddPartitionsToTxn must still be sent (version 1).
    * ``pending_partitions``: partitions for which AddPartitionsToTxn was sent, and no definite
      response has arrived. The next AddPartitionsToTxn has them again.
    * ``partitions``: partitions that are in the transaction.
    * ``started``: True after the coordinator has added a partition, or after a batch was sent. The
      transaction must then be ended by EndTxn or InitProducerId.
    * ``add_unclear``: True from an AddPartitionsToTxn until a definite response. Meanwhile it is
      unknown whether the coordinator has added the ``pending_partitions``, and the request may
      still arrive. So an abort sends InitProducerId, which fences the producer.
    * ``end_sent``: True if the request that ends the transaction was sent. No batch of the
      transaction can be sent any more.
    """

    version: int = 1
    new_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    pending_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)
    started: bool = False
    add_unclear: bool = False
    end_sent: bool = False

    def add(self, tps: Iterable[TopicPartition]) -> None:
        """Adds the partitions ``tps``, to which records were appended, to the transaction.

        With version 2, the partitions are in the transaction at once. With version 1, they are in
        the transaction only after a successful AddPartitionsToTxn. So they are first put into
        ``new_partitions``, except for partitions that were already sent or added.
        """
        if self.version >= 2:
            self.partitions.update(tps)  # the leader notifies the coordinator at the first Produce
            return
        for tp in tps:
            if tp not in self.partitions and tp not in self.pending_partitions:
                self.new_partitions[tp] = None

    def partitions_to_add(self) -> tuple[TopicPartition, ...]:
        """Returns the partitions for the AddPartitionsToTxn request that the caller sends now: the
        new partitions, and the partitions of earlier requests without a definite response.
        """
        self.pending_partitions |= self.new_partitions
        self.new_partitions.clear()
        self.add_unclear = True
        return tuple(self.pending_partitions)

    def partitions_answered(self, tps: Iterable[TopicPartition], *, added: bool) -> None:
        """Handles a definite response to AddPartitionsToTxn. ``added`` is True if all of ``tps``
        were added, and False if no partition was added.
        """
        self.add_unclear = False
        for tp in tps:
            self.pending_partitions.pop(tp, None)
        if added:
            self.partitions.update(tps)
            self.started = True


class ProducerIdentity:
    """The producer id and epoch, the state and the transaction of one producer.

    The caller must hold ``lock``, except for ``note_api_versions`` and the properties. Other
    threads may read single fields without the lock, because each field is replaced atomically.
    """

    def __init__(self, transactional_id: str | None, lifecycle: Lifecycle) -> None:
        self.transactional_id = transactional_id
        self._lifecycle = lifecycle
        self.lock = threading.Lock()
        self.state = State.UNINITIALIZED
        self.producer = NO_PRODUCER_ID
        #: The producer id and epoch of the last transaction, with transaction version 1. They can't
        #: be used again.
        self.used_identity = NO_PRODUCER_ID
        self._abortable_error: KafkaError | None = None
        self.transaction = Transaction()
        #: The transaction version of the next transaction.
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
        """The error of the failed producer (state FATAL_ERROR) or of the failed transaction
        (ABORTABLE_ERROR). None in other states.
        """
        if self.state is State.FATAL_ERROR:
            return self._lifecycle.fatal
        return self._abortable_error

    @property
    def in_error(self) -> bool:
        return self.state in _IN_ERROR

    @property
    def can_raise_epoch(self) -> bool:
        """True if the coordinator supports raising the epoch of a producer (KIP-360). The epoch
        must be raised when the outcome of a batch is unknown.
        """
        return self.transaction.version >= 2 or self._may_raise_epoch

    def note_api_versions(
        self, brokers: Iterable[NodeApiVersions], coordinator: NodeApiVersions | None
    ) -> None:
        """Stores the transaction version of the cluster, from the ApiVersions responses of the
        connected brokers. If the responses differ, the response with the highest
        ``finalized_features_epoch`` is used.

        ``coordinator`` is the ApiVersions response of the transaction coordinator, or None. It
        shows whether the coordinator can raise the epoch of a producer.
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
        """Changes the state to ``target``. Raises IllegalStateError if :data:`TRANSITIONS` does not
        allow the change.
        """
        if target not in TRANSITIONS[self.state]:
            raise IllegalStateError(
                f"{self.name}: can't go from '{self.state.value}' to '{target.value}'"
            )
        if target is not State.ABORTABLE_ERROR:
            self._abortable_error = None
        self.state = target

    def transition_to_fatal_error(self, error: KafkaError) -> None:
        """Marks the producer as failed with ``error``, and stops its sender. If the producer has
        already failed, the first error stays.
        """
        self._lifecycle.stop(error)
        if self.state is not State.FATAL_ERROR:
            self.transition(State.FATAL_ERROR)

    def transition_to_abortable_error(self, error: KafkaError) -> None:
        """Marks the transaction as failed with ``error``. The transaction can then only be aborted.

        The call has no effect if the transaction or the producer has already failed, or while the
        transaction is being aborted.
        """
        # For example, another thread waits in ``send`` when the producer fails. This ``send`` then
        # fails later than the producer.
        if self.state in (State.ABORTING_TRANSACTION, *_IN_ERROR):
            return
        self.transition(State.ABORTABLE_ERROR)
        self._abortable_error = error

    def begin_transaction(self) -> None:
        self.transition(State.IN_TRANSACTION)
        self.transaction = Transaction(self.latest_version)

    def set_producer_id_and_epoch(self, producer: ProducerIdAndEpoch) -> None:
        """Sets the producer id and epoch that InitProducerId has returned, and changes the state to
        READY. If a transaction was already begun, the state does not change: InitProducerId was
        sent to get an epoch for this transaction.
        """
        if self.state not in ONGOING and self.state is not State.READY:
            self.transition(State.READY)
            self.transaction = Transaction(self.transaction.version)
        self.producer, self.used_identity = producer, NO_PRODUCER_ID

    def complete_transaction(self, successor: ProducerIdAndEpoch | None) -> None:
        """Ends the transaction after it was committed or aborted. ``successor`` decides which
        producer id and epoch the next transaction has:

        * A producer id and epoch: the next transaction uses them.
        * NO_PRODUCER_ID: the next transaction must request a new id and epoch.
        * None: no broker knows the transaction, so the current id and epoch can be used again.
        """
        # With transaction version 2 (KIP-890), each EndTxn response contains the next epoch. With
        # version 1, it contains no epoch. The current id and epoch are then used up, and the next
        # ``begin_transaction`` requests a new epoch.
        if successor is not None:
            self.used_identity = NO_PRODUCER_ID if successor.is_valid else self.producer
            self.producer = successor
        known = self.producer.is_valid or self.used_identity.is_valid
        self.transition(State.READY if known else State.UNINITIALIZED)
        self.transaction = Transaction(self.transaction.version)

    def reset_producer_id(self) -> None:
        """Removes the producer id and epoch. The producer must then request a new id."""
        self.transition(State.UNINITIALIZED)
        self.producer = NO_PRODUCER_ID

    def raise_epoch(self) -> None:
        """Adds 1 to the epoch of an idempotent producer, without a request, as Java's producer does
        (``bumpIdempotentProducerEpoch``, KIP-360). If the epoch is already the largest possible, a
        new producer id is requested.
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
        """Raises the error of the failed transaction or producer. Each call raises a new exception
        object. Does nothing if there is no error.
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
        """Raises IllegalStateError ("can't <what>") if the current state is not ``state``."""
        if self.state is not state:
            raise IllegalStateError(f"{self.name}: can't {what} in state '{self.state.value}'")
