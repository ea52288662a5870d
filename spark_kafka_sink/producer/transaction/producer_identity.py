"""Who the producer is to the brokers, and how far its transaction is: the fields under one lock.

Owns: the state, the producer id and epoch, the error that ended them, one :class:`Transaction`, and
every change of these that the table of ``transaction_states.py`` allows. ``transaction_manager.py``
changes it for the application and for batches, ``txn_request_queue.py`` by the coordinator's
answers. Never: a request, a sequence, a wait.

**One (producer id, epoch) is one transaction** (rule R4). With transactions of version 2
(KIP-890) each EndTxn brings the next epoch. With version 1 it does not: an identity that a
transaction was written with is then *spent*, and the next ``begin_transaction`` asks the
coordinator for another one, so that a late duplicate can never belong to a later transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

from spark_kafka_sink.errors import IllegalStateError, KafkaError, ProducerFencedError
from spark_kafka_sink.producer.transaction.transaction_states import (
    NO_PRODUCER_ID,
    ONGOING,
    TRANSITIONS,
    ProducerIdAndEpoch,
    State,
)
from spark_kafka_sink.protocol.api_versions import NodeApiVersions
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey

#: InitProducerId from here on raises the epoch of a producer that tells its own (KIP-360).
_INIT_WITH_OWN_EPOCH = 3

_IN_ERROR = frozenset({State.ABORTABLE_ERROR, State.FATAL_ERROR})


@dataclass(slots=True)
class Transaction:
    """One transaction, as far as the producer knows. Made anew for each.

    ``new_partitions`` are to be added (version 1), ``pending_partitions`` are asked for,
    ``partitions`` are in. ``started``: a broker knows of it, so that it must be ended.
    ``add_unclear``: an AddPartitionsToTxn has no answer. ``end_sent``: nothing may leave any more.
    """

    version: int = 1
    new_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    pending_partitions: dict[TopicPartition, None] = field(default_factory=dict)
    partitions: set[TopicPartition] = field(default_factory=set)
    started: bool = False
    add_unclear: bool = False
    end_sent: bool = False

    def add(self, tps: Iterable[TopicPartition]) -> None:
        """Records were appended for ``tps``."""
        if self.version >= 2:
            self.partitions.update(tps)  # the leader tells the coordinator, at the first Produce
            return
        for tp in tps:
            if tp not in self.partitions and tp not in self.pending_partitions:
                self.new_partitions[tp] = None

    def partitions_to_ask_for(self) -> tuple[TopicPartition, ...]:
        """What AddPartitionsToTxn must name now: what is new, and what has no answer yet."""
        self.pending_partitions |= self.new_partitions
        self.new_partitions.clear()
        self.add_unclear = True
        return tuple(self.pending_partitions)

    def partitions_answered(self, tps: Iterable[TopicPartition], *, added: bool) -> None:
        """AddPartitionsToTxn has its definite answer: all of ``tps`` are in, or none."""
        self.add_unclear = False
        for tp in tps:
            self.pending_partitions.pop(tp, None)
        if added:
            self.partitions.update(tps)
            self.started = True


class ProducerIdentity:
    """Every method but those of ``note_api_versions`` and the properties runs under ``lock``,
    which its callers take. Single fields may be read without it: each is set or replaced whole.
    """

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self.lock = threading.Lock()
        self.state = State.UNINITIALIZED
        self.producer = NO_PRODUCER_ID
        #: What the last transaction was written with (version 1): nobody's any more.
        self.used_identity = NO_PRODUCER_ID
        self.last_error: KafkaError | None = None
        self.transaction = Transaction()
        #: What the next transaction will be.
        self.latest_version = 1
        self._features_epoch = -1
        self._may_raise_epoch = True

    @property
    def name(self) -> str:
        if self.transactional_id is None:
            return f"producer {self.producer.producer_id}"
        return f"transactional id '{self.transactional_id}'"

    @property
    def in_error(self) -> bool:
        return self.state in _IN_ERROR

    @property
    def can_raise_epoch(self) -> bool:
        """Can the coordinator give this producer another epoch after a lost batch?"""
        return self.transaction.version >= 2 or self._may_raise_epoch

    def note_api_versions(
        self, brokers: Iterable[NodeApiVersions], coordinator: NodeApiVersions | None
    ) -> None:
        """What connected brokers say that the cluster does. The newest word wins."""
        for versions in brokers:
            if versions.finalized_features_epoch > self._features_epoch:
                self._features_epoch = versions.finalized_features_epoch
                self.latest_version = 2 if versions.transaction_version >= 2 else 1
        if coordinator is not None:
            found = coordinator.api_versions.get(ApiKey.INIT_PRODUCER_ID)
            self._may_raise_epoch = found is not None and found.max >= _INIT_WITH_OWN_EPOCH

    # -- changes of state -------------------------------------------------------------------------

    def transition(self, target: State) -> None:
        """IllegalStateError, and no change, when the table does not allow it."""
        if target not in TRANSITIONS[self.state]:
            raise IllegalStateError(
                f"{self.name}: can't go from '{self.state.value}' to '{target.value}'"
            )
        if target not in _IN_ERROR:
            self.last_error = None
        self.state = target

    def fail_for_good(self, error: KafkaError) -> None:
        """The first error is the one that is kept."""
        if self.state is not State.FATAL_ERROR:
            self.transition(State.FATAL_ERROR)
            self.last_error = error

    def fail_transaction(self, error: KafkaError) -> None:
        """It can only be aborted now. No change while it is, nor after it failed for good (a
        ``send`` that waited meanwhile fails then, too); the first error is kept.
        """
        if self.state in (State.ABORTING_TRANSACTION, *_IN_ERROR):
            return
        self.transition(State.ABORTABLE_ERROR)
        self.last_error = error

    def begin_transaction(self) -> None:
        self.transition(State.IN_TRANSACTION)
        self.transaction = Transaction(self.latest_version)

    def take(self, producer: ProducerIdAndEpoch) -> None:
        """A broker gave the identity that was asked for: to begin with, to abort, or for a
        transaction that has begun, and may be over, meanwhile.
        """
        if self.state not in ONGOING and self.state is not State.READY:
            self.transition(State.READY)
            self.transaction = Transaction(self.transaction.version)
        self.producer, self.used_identity = producer, NO_PRODUCER_ID

    def complete_transaction(self, successor: ProducerIdAndEpoch | None) -> None:
        """It is over. ``successor`` is the identity for the next one, NO_PRODUCER_ID when there
        is none, None when this one's was not used.
        """
        if successor is not None:
            self.used_identity = NO_PRODUCER_ID if successor.is_valid else self.producer
            self.producer = successor
        known = self.producer.is_valid or self.used_identity.is_valid
        self.transition(State.READY if known else State.UNINITIALIZED)
        self.transaction = Transaction(self.transaction.version)

    def give_up(self) -> None:
        """A new identity is to be asked for."""
        self.transition(State.UNINITIALIZED)
        self.producer = NO_PRODUCER_ID

    def forget_prepared(self) -> None:
        self.give_up()
        self.transaction = Transaction(self.transaction.version)

    # -- refusals ---------------------------------------------------------------------------------

    def raise_error(self) -> None:
        """Raise what the transaction, or the producer, failed with; a new error for each caller."""
        error = self.last_error
        if not self.in_error or error is None:
            return
        what = f"{self.name}: {error.message}"
        if isinstance(error, ProducerFencedError):
            raise ProducerFencedError(what, hint=error.hint, code=error.code) from error
        if self.state is State.ABORTABLE_ERROR:
            left = "this transaction can only be aborted; then a new one can begin"
        else:
            left = "the producer can only be closed"
        # The cause's own hint first: only that helps a task of the sink, which aborts by itself.
        hint = f"{error.hint}; {left}" if error.hint else left
        raise KafkaError(what, hint=hint, kind=error.kind) from error

    def require(self, state: State, what: str) -> None:
        """IllegalStateError unless in ``state``."""
        if self.state is not state:
            raise IllegalStateError(f"{self.name}: can't {what} in state '{self.state.value}'")
