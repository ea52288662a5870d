"""One record batch on its way: opened, filled, closed, sent, answered.

Owns: a batch's record bytes (finished by the records room), its header (written at drain) and its
states. Stands between the accumulator, which queues it, and the sender, which carries it. Never: a
lock (the accumulator's covers every change of state up to DONE), a queue, a clock, a decision to
retry.

Bytes are frozen when a batch is closed (design.md rule 5.1): chunks are immutable ``bytes``, the
header is written once for each (producer id, epoch, sequence), and a retry hands out the very same
objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Protocol

from spark_kafka_sink.errors import IllegalStateError, KafkaError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.produce import RecordError
from spark_kafka_sink.records.compression import Codec

NO_SEQUENCE = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1


class BatchState(Enum):
    """Where a batch stands. The table of moves is :data:`TRANSITIONS`."""

    OPEN = "open"
    CLOSING = "closing"
    READY = "ready"
    IN_FLIGHT = "in flight"
    DONE = "done"


class BatchListener(Protocol):
    """Who wants to know how batches end (the attempt's ledger, later futures and interceptors)."""

    def batch_done(self, batch: ProducerBatch) -> None:
        """``batch`` was acknowledged (``error`` is None) or failed. Once for each; no lock held.

        A batch that was split is not reported; its pieces are.
        """
        ...


class ProducerBatch:
    """Records of one topic partition that travel together (Java's ProducerBatch).

    Counts are records, sizes bytes, times monotonic milliseconds. ``generation`` is unique for
    every batch that was ever opened; ``lineage`` is the generation of the batch that this one was
    split from, else its own.
    """

    tp: TopicPartition
    created_ms: int
    generation: int
    lineage: int
    state: BatchState
    record_count: int
    base_timestamp: int
    max_timestamp: int
    #: Bytes counted in the BufferPool for this batch; changed under the accumulator's lock.
    pool_size: int
    #: How often it was given back to the queue after a failed send.
    attempts: int
    last_attempt_ms: int
    drained_ms: int
    in_retry: bool
    producer_id: int
    producer_epoch: int
    base_sequence: int
    base_offset: int
    log_append_time_ms: int
    error: KafkaError | None
    record_errors: Mapping[int, str | None]

    # -- filling and closing --

    def append(self, chunk: bytes, record_count: int, max_timestamp: int) -> None:
        """Add finished records; IllegalStateError unless OPEN."""
        raise NotImplementedError

    def close(self, codec: Codec) -> None:
        """OPEN -> READY in one go, for one thread (the accumulator takes the steps apart)."""
        raise NotImplementedError

    @property
    def estimated_size(self) -> int:
        """Header and raw record bytes; once closed, :attr:`size_in_bytes`."""
        raise NotImplementedError

    @property
    def size_in_bytes(self) -> int:
        """Bytes on the wire; IllegalStateError before it is closed."""
        raise NotImplementedError

    # -- sending --

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped at 2^31; NO_SEQUENCE when there is none."""
        raise NotImplementedError

    def set_producer_state(
        self, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool
    ) -> None:
        """Write the header for this producer and sequence. READY only, and only once."""
        raise NotImplementedError

    def drained(self, now: int) -> None:
        """READY -> IN_FLIGHT."""
        raise NotImplementedError

    def buffers(self) -> Sequence[bytes]:
        """``[header, *chunks]`` exactly as sent; the same objects for every retry."""
        raise NotImplementedError

    def reenqueued(self, now: int) -> None:
        """IN_FLIGHT -> READY: one attempt more, counted from ``now`` for backoff."""
        raise NotImplementedError

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now: int) -> bool:
        return delivery_timeout_ms <= now - self.created_ms

    def maybe_update_leader_epoch(self, epoch: int) -> None:
        """Remember the partition's leader epoch (-1: unknown), and the attempt that saw it rise."""
        raise NotImplementedError

    @property
    def has_leader_changed_for_the_ongoing_retry(self) -> bool:
        raise NotImplementedError

    # -- the end --

    @property
    def is_done(self) -> bool:
        return self.state is BatchState.DONE

    def complete(self, base_offset: int, log_append_time_ms: int) -> bool:
        """Acknowledged. False when it had failed before (aborted, expired): the answer is late.

        ``base_offset`` is -1 when it is not known (acks=0, a duplicate). Raises IllegalStateError
        when it was acknowledged already.
        """
        raise NotImplementedError

    def complete_exceptionally(
        self, error: KafkaError, record_errors: Sequence[RecordError] = ()
    ) -> bool:
        """Failed for good. False when it had failed before.

        Raises IllegalStateError when it was acknowledged already.
        """
        raise NotImplementedError

    def split(self, next_generation: int) -> list[ProducerBatch]:
        """Two READY batches with this one's records in order; this one is DONE, unreported.

        They keep creation time, attempts, and the sequence ranges [s, s+k) and [s+k, s+n)
        (design.md rule 5.7). IllegalStateError for a single record.
        """
        raise NotImplementedError


_ = IllegalStateError
