"""Where encoded slices wait until they are sent: a queue of batches for every topic partition.

Owns: the queues, the open batch of each partition, who closes it, which nodes have data that must
go, what is drained for them, backoff, muting, expiry, flush. Never: encoding, sockets, sequences
(asked of a :class:`DrainControl`), a clock below its two waits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.producer_batch import BatchListener, ProducerBatch
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.records.encoded_slice import EncodedSlice, OpenPosition


class DrainControl(Protocol):
    """What drain asks of the transaction manager (Java: shouldStopDrainBatchesForPartition)."""

    @property
    def is_transactional(self) -> bool: ...

    @property
    def producer_id_and_epoch(self) -> tuple[int, int]:
        """(producer id, epoch); a NamedTuple is fine. Negative id: not known yet."""
        ...

    @property
    def has_producer_id(self) -> bool: ...

    @property
    def is_completing(self) -> bool:
        """A transaction is being committed or aborted: every batch must go (seam, False now)."""
        ...

    def can_drain(self, tp: TopicPartition) -> bool:
        """May a batch *without* sequence be drained for ``tp`` now (rule 5.3; transactional: the
        partition is part of the transaction; nothing unresolved; at most five in flight)?"""
        ...

    def first_in_flight_sequence(self, tp: TopicPartition) -> int:
        """Base sequence of the first batch in flight (tracked until it is completed or failed for
        good, so a batch that waits for its retry counts); NO_SEQUENCE when none is."""
        ...

    def take_sequence(self, tp: TopicPartition, record_count: int) -> int:
        """The next base sequence of ``tp``; moves on by ``record_count``, wrapping at 2^31."""
        ...

    def add_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Track ``batch``, which has its sequence now (called at drain, and for split pieces)."""
        ...

    def remove_in_flight_batch(self, batch: ProducerBatch) -> None:
        """Forget ``batch`` (called for a batch that is split, before its pieces are added)."""
        ...


@dataclass(frozen=True, slots=True)
class ReadyCheckResult:
    """Java's ReadyCheckResult: ``next_ready_check_delay_ms`` is NEVER when nothing waits."""

    ready_nodes: frozenset[int]
    next_ready_check_delay_ms: int
    unknown_leader_topics: frozenset[str]


class RecordAccumulator:
    """Queues of ProducerBatch by topic partition (Java's RecordAccumulator).

    One lock (``_lock``) guards every queue, the open batches, the incomplete ones, the flushes and
    all batches' states before DONE. The pool has its own lock; neither is taken under the other's
    wait. Listeners are called without locks. ``wakeup`` (the sender's) is called without locks
    whenever a batch became ready or the first batch was opened.

    Called by the writer: :meth:`positions`, :meth:`append`, flush, ``writer_waiting_since``.
    Called by the sender: everything else.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        transaction_manager: DrainControl | None,
        listener: BatchListener,
        wakeup: Callable[[], None],
    ) -> None:
        raise NotImplementedError

    pool: BufferPool

    # -- the writer --

    def positions(self, tps: Sequence[TopicPartition]) -> list[OpenPosition]: ...
    def open_room(self, tp: TopicPartition) -> int | None: ...
    def raw_limit(self, topic: str) -> int: ...
    def append(self, slices: Sequence[EncodedSlice], now: int) -> list[EncodedSlice]:
        """Returns the refused slices; what follows a refused one in its partition is refused."""
        raise NotImplementedError

    # -- the sender --

    def ready(self, cluster: Cluster, now: int) -> ReadyCheckResult:
        raise NotImplementedError

    def drain(
        self, cluster: Cluster, nodes: Collection[int], max_size: int, now: int
    ) -> dict[int, list[ProducerBatch]]:
        """Batches by node id, IN_FLIGHT, headers written; nodes with nothing are left out."""
        raise NotImplementedError

    def reenqueue(self, batch: ProducerBatch, now: int) -> None:
        """Back to the head of its queue; with sequences, behind earlier retries."""
        raise NotImplementedError

    def split_and_reenqueue(self, batch: ProducerBatch, now: int) -> int:
        """Split a refused batch, track and queue the pieces, give its memory back; how many."""
        raise NotImplementedError

    def expired_batches(self, now: int) -> list[ProducerBatch]:
        """Take queued batches past delivery.timeout.ms out of their queues, oldest first.

        The caller fails them (``complete_exceptionally``) and calls :meth:`deallocate`.
        """
        raise NotImplementedError

    def next_expiry_time_ms(self) -> int:
        """When the oldest queued batch expires (as of the last :meth:`expired_batches`)."""
        raise NotImplementedError

    def deallocate(self, batch: ProducerBatch) -> None:
        """The batch is done with: no longer incomplete, its memory back. Harmless when repeated."""
        raise NotImplementedError

    def mute_partition(self, tp: TopicPartition) -> None: ...
    def unmute_partition(self, tp: TopicPartition) -> None: ...
    def update_node_latency_stats(self, node_id: int, now: int, *, can_drain: bool) -> None: ...
    def abort_incomplete_batches(self, error: KafkaError) -> None:
        """Fail every batch, in flight or not, and refuse all further ones with ``error``."""
        raise NotImplementedError

    def abort_undrained_batches(self, error: KafkaError) -> None:
        """Fail batches that have no sequence yet and are not in flight."""
        raise NotImplementedError

    def close(self) -> None:
        """No more appends; what is queued may still be drained at once."""
        raise NotImplementedError

    @property
    def has_undrained(self) -> bool:
        """Some batch waits in a queue."""
        raise NotImplementedError

    @property
    def has_incomplete(self) -> bool:
        """Some batch is not done with: queued or in flight."""
        raise NotImplementedError


_ = Mapping
