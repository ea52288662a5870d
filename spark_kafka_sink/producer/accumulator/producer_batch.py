"""One record batch of the producer, from its creation to its completion.

The accumulator queues the batch, and the sender sends it and decides its outcome. A batch may have
rows of ``send_columns``, records of ``send``, or both.

The methods of the batch take no lock. A caller that changes the state, except to DONE, must hold
the accumulator's lock. After a batch is closed, its record bytes do not change, and a retry sends
the same bytes again (DESIGN.md, rule R1).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import groupby
from typing import Protocol

from spark_kafka_sink.base.errors import IllegalStateError, KafkaError
from spark_kafka_sink.producer.buffer_pool import SharedBuffer
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.produce import RecordError
from spark_kafka_sink.protocol.request import Buffer, Buffers
from spark_kafka_sink.records.compression import Codec
from spark_kafka_sink.records.record_batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    increment_sequence,
    split_records,
    write_header,
)


class BatchState(Enum):
    """The state of a batch. :data:`TRANSITIONS` has the allowed changes.

    * OPEN: the batch accepts records.
    * CLOSING: a thread compresses the batch.
    * READY: the batch is closed, and can be sent. A batch that waits for a retry is also READY.
    * IN_FLIGHT: the batch was taken out of its queue for a request, and has no outcome yet.
    * DONE: the batch was acknowledged, has failed, or was split.
    """

    OPEN = "open"
    CLOSING = "closing"
    READY = "ready"
    IN_FLIGHT = "in flight"
    DONE = "done"

    # Enum's is a Python function, and these are dictionary keys for each batch.
    __hash__ = object.__hash__


_S = BatchState

#: The allowed changes of the state. OPEN -> CLOSING: a thread has claimed the batch to compress it,
#: and no other thread can claim it. OPEN -> READY: the batch need not be compressed. CLOSING ->
#: OPEN: the thread was interrupted, and has released its claim. A batch can fail in any state, and
#: is then DONE.
TRANSITIONS: dict[BatchState, frozenset[BatchState]] = {
    _S.OPEN: frozenset({_S.CLOSING, _S.READY, _S.DONE}),
    _S.CLOSING: frozenset({_S.READY, _S.OPEN, _S.DONE}),
    _S.READY: frozenset({_S.IN_FLIGHT, _S.DONE}),
    _S.IN_FLIGHT: frozenset({_S.READY, _S.DONE}),
    _S.DONE: frozenset(),
}


#: If a batch has more chunks than this, neighbouring copies are joined when it is closed: each
#: chunk adds a call of the checksum and a buffer of sendmsg, and many chunks are small.
_MAX_CHUNKS = 4


class BatchListener(Protocol):
    """The interface of an object that is notified of completed batches. ``produce_recorder.py``
    implements it.
    """

    def batches_done(self, batches: Sequence[ProducerBatch]) -> None:
        """Called after ``batches`` were acknowledged or have failed. ``batch.error`` is None for an
        acknowledged batch.

        Each batch is reported once, and no lock is held. A batch that was split is not reported:
        the new batches are reported.
        """
        ...


class BatchRecords(Protocol):
    """The interface to the records that ``send`` has appended to one batch. ``record_future.py``
    implements it.
    """

    def __len__(self) -> int:
        """The number of records that ``send`` has appended to the batch."""
        ...

    def complete(self, batch: ProducerBatch) -> None:
        """Sets the outcome of the futures, and runs the callbacks, after ``batch`` was acknowledged
        or has failed. Called without a lock.
        """
        ...

    def split(self, halves: Sequence[ProducerBatch]) -> None:
        """Moves the records to the two batches in ``halves``, because their batch was split."""
        ...


class ProducerBatch:
    """Records of one topic partition that are sent together (Java's ProducerBatch).

    Sizes are in bytes. Fields that end in ``_ms``, except ``log_append_time_ms``, are monotonic
    milliseconds. Record timestamps and ``log_append_time_ms`` are milliseconds since the epoch.
    Comments in ``__init__`` explain the fields.
    """

    __slots__ = (
        "_codec",
        "_leader_epoch",
        "_leader_epoch_attempts",
        "_listener",
        "_viewed",
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "buffers",
        "checksum",
        "chunks",
        "created_ms",
        "drained_ms",
        "error",
        "generation",
        "largest_record",
        "lineage",
        "log_append_time_ms",
        "max_timestamp",
        "pool_size",
        "producer_epoch",
        "producer_id",
        "raw_size",
        "record_count",
        "record_errors",
        "records",
        "retry_at_ms",
        "size_in_bytes",
        "state",
        "tp",
        "transactional",
        "views",
    )

    def __init__(
        self,
        tp: TopicPartition,
        created_ms: int,
        generation: int,
        base_timestamp: int,
        listener: BatchListener,
        lineage: int | None = None,
    ) -> None:
        self.tp = tp
        self.created_ms = created_ms
        #: The batch's number. A producer numbers its batches 1, 2, 3 and so on as it creates them.
        self.generation = generation
        #: The ``generation`` of the original batch if this batch is a part of a split batch,
        #: otherwise its own ``generation``. A part of a part has the same original batch.
        self.lineage = generation if lineage is None else lineage
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.record_count = 0
        #: The size of the encoded records before compression.
        self.raw_size = 0
        #: The bytes of the BufferPool that belong to this batch, including the bytes that it views.
        self.pool_size = 0
        #: The number of times that the batch was put back into its queue for a retry.
        self.attempts = 0
        self.retry_at_ms = created_ms
        self.drained_ms = 0
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.transactional = False
        #: The batch's CRC-32C. It is set when the batch is first drained.
        self.checksum = 0
        self.base_offset = -1
        self.log_append_time_ms = -1
        self.error: KafkaError | None = None
        self.record_errors: Sequence[RecordError] = ()
        #: The estimated size in bytes of a batch that has only the largest record of this batch
        #: (Java's maxRecordSize). For rows of ``send_columns``, the largest record of the whole
        #: chunk is used.
        self.largest_record = 0
        #: The records of ``send`` in this batch. None if there are none.
        self.records: BatchRecords | None = None
        #: The size of the whole batch after compression. It is set when the batch is closed.
        self.size_in_bytes = HEADER_SIZE
        #: Only methods of this class change the state.
        self.state = BatchState.OPEN
        self._listener = listener
        #: The encoded records, as copies or as views of larger buffers.
        self.chunks: list[Buffer] = []
        #: ``views`` has the buffer of each view in ``chunks``. A buffer with two views is listed
        #: twice. ``_viewed`` is the number of bytes of all views.
        self.views: Sequence[SharedBuffer] = ()
        self._viewed = 0
        self._codec: Codec | None = None
        #: ``[header, *chunks]``, as the batch is sent. A retry sends the same objects. Empty until
        #: the batch is drained for the first time.
        self.buffers: Buffers = ()
        self._leader_epoch = -1
        self._leader_epoch_attempts = 0

    def __repr__(self) -> str:
        return (
            f"ProducerBatch({self.tp}, generation {self.generation}, {self.state.value}, "
            f"{self.record_count} records, sequence {self.base_sequence})"
        )

    def move(self, to: BatchState) -> None:
        """Changes the state of the batch. Raises IllegalStateError if :data:`TRANSITIONS` does not
        allow the change.
        """
        if to not in TRANSITIONS[self.state]:
            raise IllegalStateError(
                f"{self.tp}: a batch can't go from '{self.state.value}' to '{to.value}'"
            )
        self.state = to
        if to is BatchState.DONE:
            # A send in progress holds its own references; the buffers are not read again.
            self.chunks, self.buffers = [], ()

    def _refuse(self) -> IllegalStateError:
        return IllegalStateError(f"{self.tp}: not possible for a batch '{self.state.value}'")

    # ---- filling and closing -----------------------------------------------------------------

    def append(
        self, chunk: Buffer, record_count: int, max_timestamp: int, size: int | None = None
    ) -> None:
        """Appends the encoded records in ``chunk`` to the batch, which must be OPEN. ``size`` is
        the size of ``chunk`` in bytes. If ``size`` is None, the method computes the size.
        """
        if self.state is not BatchState.OPEN:
            raise self._refuse()
        self.chunks.append(chunk)
        self.raw_size += len(chunk) if size is None else size
        self.record_count += record_count
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp

    def view(self, buffer: SharedBuffer, size: int) -> int:
        """Notes that the last ``size`` bytes of this batch are a view of ``buffer``, so the whole
        buffer stays in memory. Returns the number of bytes that the caller must add to the used
        memory.

        The caller has already counted the ``size`` bytes of the view. The result is:

        * ``buffer.size - size`` if this is the only view of the buffer
        * ``-size`` if the buffer has other views, because the whole buffer is already counted
        """
        counted = 0 if buffer.views else buffer.size
        buffer.views += 1
        self.views = (*self.views, buffer)
        self._viewed += size
        return counted - size

    def add_memory(self, size: int) -> None:
        """Adds ``size`` bytes to the memory of the BufferPool that this batch owns. Called under
        the accumulator's lock.
        """
        self.pool_size += size

    def charge_its_bytes(self) -> int:
        """Sets ``pool_size`` to the batch's size in bytes after compression, and returns this size.
        Called under the accumulator's lock.
        """
        self.pool_size = self.size_in_bytes
        return self.pool_size

    def begin_records(self, records: BatchRecords) -> None:
        """Sets the object that collects the records that ``send`` appends to this batch."""
        self.records = records

    def take_memory(self) -> int:
        """Gives up the memory of the BufferPool that this batch owns. Returns the number of bytes
        that the caller must deallocate. A second call returns 0.

        Several batches can have views of one buffer. The bytes of this buffer are deallocated only
        with the last of these batches. Called under the accumulator's lock.
        """
        size = self.pool_size - self._viewed
        for buffer in self.views:
            buffer.views -= 1
            if not buffer.views:
                size += buffer.size
        self.pool_size = self._viewed = 0
        self.views = ()
        return size

    def release_claim(self) -> None:
        """Moves the batch from CLOSING back to OPEN, because the thread that was closing the batch
        was interrupted. Does nothing if the batch is already DONE because of an abort.
        """
        if self.state is BatchState.CLOSING:
            self.move(BatchState.OPEN)

    def compress(self, codec: Codec) -> bytes | None:
        """Returns the compressed records of the batch, or None if the codec is none. Does not
        change the batch. Called without a lock.
        """
        # Another thread may abort the batch meanwhile and replace the list ``chunks``. So the list
        # is read only once.
        chunks = self.chunks
        if codec.is_none:
            return None
        return codec.compress(chunks if self.records is None else [b"".join(chunks)])

    def finish_close(self, compressed: bytes | None, codec: Codec) -> None:
        """Moves the batch from OPEN or CLOSING to READY. ``compressed`` is the result of
        :meth:`compress`. From now on, the record bytes do not change.
        """
        if self.state is not BatchState.OPEN and self.state is not BatchState.CLOSING:
            raise self._refuse()
        self.state = BatchState.READY
        self._codec = codec
        if compressed is not None:
            self.chunks = [compressed]
            self.size_in_bytes = HEADER_SIZE + len(compressed)
            return
        self.size_in_bytes = HEADER_SIZE + self.raw_size
        if len(self.chunks) > _MAX_CHUNKS:
            self.chunks = _join_copies(self.chunks)

    def close(self, codec: Codec) -> None:
        """Compresses the batch, and moves it from OPEN to READY. Only for a batch that no other
        thread uses. For other batches, the accumulator calls :meth:`compress` and
        :meth:`finish_close`.
        """
        self.finish_close(self.compress(codec), codec)

    # ---- sending -----------------------------------------------------------------------------

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def has_header(self) -> bool:
        return bool(self.buffers)

    @property
    def in_retry(self) -> bool:
        return self.attempts > 0

    def set_producer_state(
        self, producer_id: int, epoch: int, base_sequence: int, *, transactional: bool
    ) -> None:
        """Writes the batch header with this producer id, epoch and first sequence number, and
        computes the checksum. The header can be written once, and again only after
        :meth:`begin_again`.
        """
        if self.state is not BatchState.READY and self.state is not BatchState.IN_FLIGHT:
            raise self._refuse()
        if self.buffers:
            raise IllegalStateError(f"{self.tp}: the header of a batch is written only once")
        self.producer_id = producer_id
        self.producer_epoch = epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        codec = self._codec
        assert codec is not None
        header, self.checksum = write_header(
            self.chunks,
            size=self.size_in_bytes,
            codec=codec,
            record_count=self.record_count,
            base_timestamp=self.base_timestamp,
            max_timestamp=self.max_timestamp,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )
        self.buffers = [header, *self.chunks]

    def drained(self, now: int, leader_epoch: int = -1) -> None:
        """Moves the batch from READY to IN_FLIGHT at the time ``now``. ``leader_epoch`` is the
        leader epoch of the partition, or -1 if it is unknown.
        """
        if self.state is not BatchState.READY:
            raise self._refuse()
        self.state = BatchState.IN_FLIGHT
        self.drained_ms = now
        if leader_epoch > self._leader_epoch:
            self._leader_epoch, self._leader_epoch_attempts = leader_epoch, self.attempts

    def reenqueued(self, retry_at_ms: int) -> None:
        """Moves the batch from IN_FLIGHT to READY, and adds 1 to ``attempts``. The batch can be
        sent again at the time ``retry_at_ms``.
        """
        self.move(BatchState.READY)
        self.attempts += 1
        self.retry_at_ms = retry_at_ms

    def begin_again(self, now: int) -> None:
        """Moves the batch to READY, and removes its producer id, epoch and sequence number. The
        next drain assigns new values, and writes a new header.

        The batch must have one of these states:

        * READY: the batch waits in its queue.
        * IN_FLIGHT: a response to the batch has arrived, but the batch has no outcome yet.
        """
        if self.state is BatchState.IN_FLIGHT:
            self.reenqueued(now)
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.buffers = ()

    def has_reached_delivery_timeout(self, delivery_timeout_ms: int, now: int) -> bool:
        return delivery_timeout_ms <= now - self.created_ms

    def maybe_update_leader_epoch(self, epoch: int) -> None:
        """If ``epoch`` is higher than the stored leader epoch, stores it together with the current
        number of attempts. Otherwise does nothing.

        ``epoch`` is the leader epoch of the partition, or -1 if it is unknown.
        """
        if epoch > self._leader_epoch:
            self._leader_epoch = epoch
            self._leader_epoch_attempts = self.attempts

    @property
    def has_leader_changed_for_the_ongoing_retry(self) -> bool:
        """True if the leader epoch of the partition has risen since the previous attempt. The batch
        is then sent without its backoff.
        """
        return self.attempts >= 1 and self.attempts == self._leader_epoch_attempts

    # ---- completion --------------------------------------------------------------------------

    @property
    def has_futures_only(self) -> bool:
        """True if all records of the batch were appended by ``send``. Then each of them has a
        future.
        """
        return self.records is not None and len(self.records) == self.record_count

    @property
    def is_done(self) -> bool:
        return self.state is BatchState.DONE

    def complete(self, base_offset: int, log_append_time_ms: int) -> bool:
        """Marks the batch as acknowledged, and completes its futures. Returns False if the batch
        had already failed, for example because it was aborted or expired.

        ``base_offset`` is -1 if the offset is unknown (acks=0, or a duplicate). The listener is not
        called, because the caller calls it once for all batches of a response.

        Raises IllegalStateError if the batch was already acknowledged.
        """
        if self.state is BatchState.DONE:
            self._require_failed()
            return False
        self.base_offset = base_offset
        self.log_append_time_ms = log_append_time_ms
        self.move(BatchState.DONE)
        if self.records is not None:
            self.records.complete(self)
        return True

    def complete_exceptionally(
        self, error: KafkaError, record_errors: Sequence[RecordError] = ()
    ) -> bool:
        """Marks the batch as failed with ``error``, completes its futures, and calls the listener.
        Returns False if the batch had already failed.

        Raises IllegalStateError if the batch was already acknowledged.
        """
        if not self.abort(error, record_errors):
            return False
        self.report_done()
        return True

    def abort(self, error: KafkaError, record_errors: Sequence[RecordError] = ()) -> bool:
        """Marks the batch as failed with ``error``. Unlike :meth:`complete_exceptionally`, this
        method neither completes futures nor calls the listener. The caller must call
        :meth:`report_done` later. Returns False if the batch had already failed.
        """
        if self.state is BatchState.DONE:
            self._require_failed()
            return False
        self.error = error
        self.record_errors = record_errors
        self.move(BatchState.DONE)
        return True

    def report_done(self) -> None:
        """Completes the futures of the batch, then calls the listener. The caller must hold no
        lock.
        """
        # The futures come first, because the listener may fail all later batches of the producer.
        # In the other order, callbacks of later records would run before the callbacks of this
        # batch.
        if self.records is not None:
            self.records.complete(self)
        self._listener.batches_done((self,))

    def _require_failed(self) -> None:
        """Raises IllegalStateError if the batch, which is DONE, was acknowledged or split.

        A batch that has failed may get a second outcome, for example a late acknowledgement. The
        caller ignores this outcome.
        """
        if self.error is None:
            raise IllegalStateError(f"{self.tp}: the batch was already acknowledged")

    def split(self, first_generation: int) -> list[ProducerBatch]:
        """Splits the batch into two READY batches, which have the same records in the same order.
        The original batch is then DONE, and is not reported to the listener.

        * The cut is at the record that is nearest to half of the uncompressed bytes.
        * The new batches have the numbers ``first_generation`` and ``first_generation + 1``.
        * The new batches keep the creation time, the number of attempts, and the sequence numbers
          of their records (DESIGN.md, rule R7). For example, 20 to 29 is divided into 20 to 23 and
          24 to 29.

        Raises IllegalStateError for a batch with a single record.
        """
        if self.state is not BatchState.IN_FLIGHT and self.state is not BatchState.READY:
            raise self._refuse()
        if self.record_count < 2:
            raise IllegalStateError(f"{self.tp}: a batch of a single record can't be split")
        codec = self._codec
        assert codec is not None
        section = b"".join(self.chunks)
        raw = section
        if not codec.is_none:
            raw = codec.decompress(section, self.raw_size)
        split_batches: list[ProducerBatch] = []
        sequence = self.base_sequence
        for half in split_records(raw, self.record_count, self.base_timestamp):
            generation = first_generation + len(split_batches)
            split_batch = ProducerBatch(
                self.tp,
                self.created_ms,
                generation,
                half.base_timestamp,
                self._listener,
                self.lineage,
            )
            split_batch.append(half.data, half.record_count, half.max_timestamp)
            split_batch.largest_record = self.largest_record
            split_batch.close(codec)
            split_batch.attempts = self.attempts
            split_batch.retry_at_ms = self.created_ms  # the broker is not at fault: no backoff
            split_batch._leader_epoch = self._leader_epoch
            split_batch._leader_epoch_attempts = self._leader_epoch_attempts
            if self.has_sequence:
                split_batch.set_producer_state(
                    self.producer_id,
                    self.producer_epoch,
                    sequence,
                    transactional=self.transactional,
                )
                sequence = increment_sequence(sequence, half.record_count)
            split_batches.append(split_batch)
        if self.records is not None:
            self.records.split(split_batches)
        self.error = None
        self.move(BatchState.DONE)
        return split_batches


def _join_copies(chunks: Sequence[Buffer]) -> list[Buffer]:
    """Joins neighbouring ``bytes`` objects of ``chunks`` into one. Views stay separate, because the
    BufferPool counts the viewed buffers.
    """
    joined: list[Buffer] = []
    for kind, run in groupby(chunks, type):
        some = list(run)
        joined += [b"".join(some)] if kind is bytes else some
    return joined
