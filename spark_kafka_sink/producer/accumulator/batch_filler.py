"""Opens, fills and closes the batches of the accumulator.

* :class:`BatchLimits` has the maximum size of a batch.
* :class:`BatchFiller` appends slices to batches, and closes full batches. A *slice* is the encoded
  records of one partition for one batch (``EncodedSlice``).

``record_appender.py`` appends the records of ``send``. Any number of threads may call ``send``
while another thread writes columns. ``batch_drainer.py`` closes the batches that must be sent
before they are full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.accumulator.producer_batch import (
    BatchListener,
    BatchState,
    ProducerBatch,
)
from spark_kafka_sink.producer.accumulator.record_accumulator import (
    PartitionQueue,
    RecordAccumulator,
)
from spark_kafka_sink.producer.buffer_pool import SharedBuffer
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import Buffer
from spark_kafka_sink.records.compression import Codec, CompressionRatioEstimator
from spark_kafka_sink.records.encoded_slice import (
    EncodedSlice,
    EncodedSlices,
    OpenPositions,
    open_positions,
)
from spark_kafka_sink.records.record_batch import HEADER_SIZE

#: Raw bytes of one batch are at most this many times batch.size, however well they compress,
#: because a batch holds raw bytes in memory until it is closed.
MAX_RAW_BATCHES = 8

#: Java's COMPRESSION_RATE_ESTIMATION_FACTOR: a batch may compress a little worse than expected.
COMPRESSION_SAFETY = 1.05

#: The compression ratio is measured only for batches of at least 1 / this of a full batch. The
#: reason: a batch of a few bytes grows when it is compressed. The estimate then rises, and recovers
#: only after hundreds of batches (0.005 for each).
_MIN_SAMPLE_FRACTION = 4

#: The maximum age of an open batch in ms. (It is at most a quarter of delivery.timeout.ms, and at
#: least linger.ms.) An older batch is sent even if the writer has never waited for linger.ms.
#: Otherwise, rows that arrive a little faster than linger.ms would keep the batch open until its
#: delivery.timeout.ms is over.
MAX_OPEN_MS = 1_000


#: A slice of fewer bytes is copied into its batch, whatever batch.size is.
_LEAST_VIEW = 64 * 1024
#: A slice of less than 1 / this of batch.size is also copied. As views, more slices than this would
#: fit into one batch, and the batch would keep the buffers of as many chunks in memory.
_VIEWS_OF_A_BATCH = 4


class BatchLimits:
    """The maximum size of a batch of each topic, in bytes of uncompressed records.

    batch.size, max.request.size and MESSAGE_TOO_LARGE responses limit the *compressed* size of a
    batch. But rows are cut into batches before they are compressed. So the compressed limit is
    divided by the topic's estimated compression ratio.

    Any thread may call the methods, without a lock.
    """

    __slots__ = ("_codec", "_estimator", "_limit", "_raw_cap", "_topic_limits")

    def __init__(self, config: ProducerConfig, codec: Codec) -> None:
        self._codec = codec
        self._estimator = CompressionRatioEstimator()
        self._limit = max(1, min(config.batch_size, config.max_request_size))
        self._raw_cap = max(1, MAX_RAW_BATCHES * config.batch_size)
        self._topic_limits: dict[str, int] = {}

    def raw_limit(self, topic: str) -> int:
        """The maximum number of uncompressed record bytes in a batch of ``topic``."""
        limit = min(self._limit, self._topic_limits.get(topic, self._limit))
        room = max(1, limit - HEADER_SIZE)
        if self._codec.is_none:
            return room
        ratio = self._estimator.estimation(topic, self._codec) * COMPRESSION_SAFETY
        return max(1, min(int(room / ratio), self._raw_cap))

    def closed(self, batch: ProducerBatch) -> None:
        """Updates the topic's estimated compression ratio from ``batch``, which was just
        compressed. A small batch is ignored.
        """
        if batch.raw_size * _MIN_SAMPLE_FRACTION < self.raw_limit(batch.tp.topic):
            return
        ratio = (batch.size_in_bytes - HEADER_SIZE) / max(1, batch.raw_size)
        # Without a lock. If two threads update at the same time, one measurement is lost, which
        # does no harm.
        self._estimator.update(batch.tp.topic, self._codec, ratio)

    def refused(self, batch: ProducerBatch) -> None:
        """Lowers the topic's limit to half of the size of ``batch``, which a broker rejected with
        MESSAGE_TOO_LARGE.

        The limit stays for the lifetime of this producer (DESIGN.md, rule R7).
        """
        topic, limit = batch.tp.topic, max(1, batch.size_in_bytes // 2)
        self._topic_limits[topic] = min(limit, self._topic_limits.get(topic, limit))


@dataclass(frozen=True, slots=True)
class AppendResult:
    """The result of :meth:`BatchFiller.append`.

    * ``refused``: the slices that were not appended. The caller must encode their rows again. A
      slice is the encoded records of one partition for one batch.
    * ``taken``: the number of bytes of the BufferPool that now belong to batches. If a batch has a
      view of a buffer, all bytes of the buffer count.
    """

    refused: tuple[EncodedSlice, ...]
    taken: int


class BatchFiller:
    """Opens, fills and closes the accumulator's batches, on the calling thread.

    A thread that writes columns allocates memory in the BufferPool, calls :meth:`positions`,
    encodes its rows, and calls :meth:`append`. The batches then own the memory. ``wakeup`` wakes
    the sender, and is called without a lock.
    """

    __slots__ = (
        "_accumulator",
        "_delivery_timeout_ms",
        "_least_view",
        "_linger_ms",
        "_listener",
        "_max_open_ms",
        "_queues",
        "_uncompressed",
        "_wakeup",
        "_writer_encodes",
        "appended_records",
        "codec",
        "limits",
    )

    def __init__(
        self,
        config: ProducerConfig,
        accumulator: RecordAccumulator,
        listener: BatchListener,
        wakeup: Callable[[], None],
    ) -> None:
        self._accumulator = accumulator
        self._queues = accumulator.queues
        self._listener = listener
        self._wakeup = wakeup
        #: True if a writer of columns has called :meth:`positions` and has not called
        #: :meth:`append` yet. Guarded by the lock.
        self._writer_encodes = False
        #: The number of rows of ``send_columns`` that were appended so far.
        self.appended_records = 0
        self.codec = Codec.of(config)
        self._uncompressed = self.codec.is_none
        self.limits = BatchLimits(config, self.codec)
        self._least_view = max(_LEAST_VIEW, config.batch_size // _VIEWS_OF_A_BATCH)
        self._linger_ms = config.linger_ms
        self._delivery_timeout_ms = config.delivery_timeout_ms
        # Well before it would expire, should delivery.timeout.ms be that short.
        self._max_open_ms = max(config.linger_ms, min(MAX_OPEN_MS, config.delivery_timeout_ms // 4))

    # ---- columns -----------------------------------------------------------------------------
    #
    # The writer encodes rows between ``positions`` and ``append`` without the lock. Meanwhile
    # another thread may close the open batch. An example:
    #
    # 1. The open batch of a partition has the generation 7 and 100 records. The writer gets these
    #    two numbers from ``positions``, and encodes rows for the position 100.
    # 2. The sender finds that batch 7 must be sent before it is full. It claims the batch under the
    #    lock, so nothing more is appended to the batch. Then it compresses the batch without the
    #    lock.
    # 3. The writer calls ``append``, which finds that batch 7 is not open any more. So it returns
    #    the slice as refused, together with every later slice of the partition. Otherwise the rows
    #    of the partition would be reordered.
    # 4. The writer calls ``positions`` again, and encodes the refused rows again.
    #
    # If ``send`` appends a record to batch 7 between the steps 1 and 3, the record count has
    # changed, and the slice is refused as well.

    def positions(self, tps: Sequence[TopicPartition]) -> OpenPositions:
        """The positions at which the next rows of the partitions ``tps`` will be appended.

        Returns an int64 array with a row of four numbers for each partition:

        * the generation of the open batch (its unique number), or 0 if no batch is open
        * the number of records in the open batch
        * the base timestamp of the open batch
        * the number of bytes, before compression, that still fit into the open batch or into a new
          batch

        The caller encodes rows for these positions, and must soon call :meth:`append`.
        """
        limits = {topic: self.limits.raw_limit(topic) for topic in {tp.topic for tp in tps}}
        accumulator, queues = self._accumulator, self._queues.by_partition
        found: list[int] = []
        with accumulator.lock:
            self._writer_encodes = True
            accumulator.note_columns()
            for tp in tps:
                batch, limit = queues[tp].open, limits[tp.topic]
                if batch is None:
                    found += (0, 0, 0, limit)
                else:
                    found += (
                        batch.generation,
                        batch.record_count,
                        batch.base_timestamp,
                        limit - batch.raw_size,
                    )
        return open_positions(found)

    def open_room(self, tp: TopicPartition) -> int | None:
        """The number of uncompressed record bytes that still fit into the open batch of ``tp``.
        None if the partition has no open batch.
        """
        with self._accumulator.lock:
            queue = self._queues.by_partition.get(tp)
            if queue is None or queue.open is None:
                return None
            return self.limits.raw_limit(tp.topic) - queue.open.raw_size

    def append(self, slices: EncodedSlices, now: int) -> AppendResult:
        """Appends ``slices`` to the open batches of their partitions, and closes the batches that
        are now full.

        If an open batch has changed since :meth:`positions`, the result lists its partition's
        slices as ``refused``. Before this call, the caller must allocate memory in the BufferPool:
        the size of each slice, plus HEADER_SIZE for each slice that opens a batch.

        Raises the error of a failed producer. Raises IllegalStateError if the producer is closed.
        """
        sizes, chunks, viewed = self._chunks(slices)
        refused: list[EncodedSlice] = []
        refused_tps: set[TopicPartition] = set()
        claimed: list[ProducerBatch] = []
        taken = 0
        accumulator, queues = self._accumulator, self._queues.by_partition
        with accumulator.lock:
            accumulator.lifecycle.check()
            wake = not self._queues.open  # the sender has not seen a first open batch
            for index, (size, chunk, view, encoded) in enumerate(
                zip(sizes, chunks, viewed, slices.for_append(), strict=True)
            ):
                tp, count, generation, first, base, latest, last, largest = encoded
                queue = queues[tp]
                batch = queue.open
                if refused and tp in refused_tps:
                    refused.append(slices[index])
                    continue
                memory = size
                if generation == 0:
                    if batch is not None:
                        # The encoder knew this batch, and its next record did not fit.
                        wake |= self.claim(queue, claimed)
                    batch = self.open_batch(queue, base, now)
                    memory += HEADER_SIZE
                elif batch is None or batch.generation != generation or batch.record_count != first:
                    refused.append(slices[index])
                    refused_tps.add(tp)
                    continue
                # The body of ``ProducerBatch.append``, without the call.
                batch.chunks.append(chunk)
                batch.raw_size += size
                batch.record_count += count
                if latest > batch.max_timestamp:
                    batch.max_timestamp = latest
                if largest > batch.largest_record:
                    batch.largest_record = largest
                batch.pool_size += memory
                taken += memory
                if view is not None:
                    taken += batch.view(view, size)
                self.appended_records += count
                if last:
                    wake |= self.claim(queue, claimed)
            self._writer_encodes = False
            wake = wake or self._oldest_is_due(now)
        if wake:
            self._wakeup()
        self.close_claimed(claimed, taken)
        return AppendResult(tuple(refused), taken)

    def _chunks(
        self, slices: EncodedSlices
    ) -> tuple[list[int], list[Buffer], Sequence[SharedBuffer | None]]:
        """Makes views of the large slices, and copies the other slices. If large slices have at
        most half of the bytes, all slices are copied.

        Returns three lists with one entry for each slice: the sizes, the bytes (a copy or a
        memoryview), and the viewed buffers (None for a copy).
        """
        sizes = [end - start for start, end in zip(slices.starts, slices.ends, strict=True)]
        places = zip(slices.buffers, slices.starts, slices.ends, strict=True)
        data = [buffer[start:end] for buffer, start, end in places]
        large = [size for size in sizes if size >= self._least_view]
        # A view keeps its whole buffer in memory (DESIGN.md, rule R5). This does not take long if
        # most bytes are in large slices, because a batch with a large slice is soon sent.
        if 2 * sum(large) <= sum(sizes):
            return sizes, [*map(bytes, data)], (None,) * len(sizes)
        chunks: list[Buffer] = []
        viewed: list[SharedBuffer | None] = []
        shared: dict[int, SharedBuffer] = {}
        for piece, size in zip(data, sizes, strict=True):
            buffer = None
            if size >= self._least_view:
                key = id(piece.obj)
                buffer = shared.get(key)
                if buffer is None:
                    buffer = shared[key] = SharedBuffer(memoryview(piece.obj).nbytes)
            viewed.append(buffer)
            chunks.append(bytes(piece) if buffer is None else piece)
        return sizes, chunks, viewed

    def _oldest_is_due(self, now: int) -> bool:
        for queue in self._queues.open.values():
            return self.open_left(queue.batches[-1], now) <= 0
        return False

    # ---- opening and closing -----------------------------------------------------------------
    #
    # Compression takes long, so it runs without the lock. A thread first claims the batch under the
    # lock: the state changes from OPEN to CLOSING, and no other thread appends to the batch or
    # closes it. The thread then compresses the batch, and sets the state READY. If the thread is
    # interrupted (KeyboardInterrupt), it releases its claim, and the sender closes the batch.

    def open_batch(self, queue: PartitionQueue, base_timestamp: int, now: int) -> ProducerBatch:
        """Adds a new open batch at the end of ``queue``. Called under the lock."""
        accumulator = self._accumulator
        generation = accumulator.incomplete.generation + 1
        batch = ProducerBatch(queue.tp, now, generation, base_timestamp, self._listener)
        self._queues.open_batch(queue, batch)
        accumulator.incomplete.add(batch)
        if now + self._delivery_timeout_ms < accumulator.next_expiry_ms:
            accumulator.queued(now)
        return batch

    def open_left(self, batch: ProducerBatch, now: int) -> int:
        """The time in ms until the open ``batch`` must be sent, even if it is not full. At most 0
        if it must be sent now.

        * A batch with a record of ``send`` is sent linger.ms after its creation, as in Java.
        * A batch that has only rows of ``send_columns`` is usually sent one second after its
          creation (MAX_OPEN_MS). While the writer encodes rows, this limit is doubled.
        """
        if batch.records is not None:
            return self._linger_ms - (now - batch.created_ms)
        limit = self._max_open_ms
        # If the batch were sent between ``positions`` and ``append``, the writer would have to
        # encode the rows again. There is still a limit, because the writer may fail before it calls
        # ``append``.
        if self._writer_encodes:
            limit *= 2
        return limit - (now - batch.created_ms)

    def claim(self, queue: PartitionQueue, claimed: list[ProducerBatch]) -> bool:
        """Ends the appends to the open batch of ``queue``. Called under the lock.

        Without compression, the batch is READY on return, and the result is True. With compression,
        the batch is appended to ``claimed``, and the result is False. The caller must then release
        the lock and call :meth:`close_claimed`.
        """
        batch = self._queues.close_open(queue)
        if self._uncompressed:
            batch.finish_close(None, self.codec)  # nothing to compress: keep the lock
            return True
        batch.move(BatchState.CLOSING)
        claimed.append(batch)
        return False

    def close_claimed(self, claimed: list[ProducerBatch], taken: int = 0) -> None:
        """Compresses the batches in ``claimed`` without the lock, and sets their state to READY.
        ``claimed`` has the CLOSING batches that :meth:`claim` has appended to it.

        If a KeyboardInterrupt ends this call, the sender closes the remaining batches.

        ``taken`` is the number of bytes that batches have taken over from the caller's allocation
        in the BufferPool. It is used only after an interrupt. The caller then gets no
        :class:`AppendResult`, and deallocates these bytes too. The batches later deallocate the
        same bytes a second time. So this method allocates them a second time.
        """
        done = 0
        try:
            for batch in claimed:
                self.finish_closing(batch)
                done += 1
                self._wakeup()
        finally:
            if done < len(claimed):
                # This call was interrupted. Nothing more is appended to the remaining batches, and
                # the sender closes them (``BatchDrainer._head``).
                with self._accumulator.lock:
                    for batch in claimed[done:]:
                        batch.release_claim()
                # The bytes will be deallocated twice: by the caller and by the batches.
                self._accumulator.pool.adjust(0, taken)
                self._wakeup()

    def finish_closing(self, batch: ProducerBatch) -> None:
        """Compresses the CLOSING ``batch`` without the lock, and then sets its state to READY. The
        BufferPool then counts the compressed size of the batch. If the batch was aborted meanwhile,
        changes nothing.
        """
        compressed = batch.compress(self.codec)
        with self._accumulator.lock:
            if batch.state is not BatchState.CLOSING:
                return  # aborted meanwhile: its memory was already deallocated
            batch.finish_close(compressed, self.codec)
            if compressed is None:
                return  # without compression, the batch keeps its memory
            before = batch.take_memory()
            after = batch.charge_its_bytes()
        self.limits.closed(batch)
        self._accumulator.pool.adjust(before, after)
