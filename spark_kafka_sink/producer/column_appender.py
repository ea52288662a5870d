"""Appends the rows of ``send_columns`` to record batches, in chunks of a few MiB.

A *chunk* is a range of rows that are encoded together. A *slice* is the encoded rows of one
partition for one batch. These steps are performed for each chunk:

1. Wait for the metadata of the topics.
2. Choose a partition for each row, and group the rows by partition.
3. Allocate memory for the whole chunk.
4. For each partition, find the position of the next record in the open batch.
5. Encode the rows as slices (``records/record_encoder.py``).
6. Append the slices to batches (``accumulator/batch_filler.py``). If an open batch has changed
   since step 4, its slices are not appended. The steps 4 to 6 are then repeated for these slices.

Only one thread at a time may write columns. After an error, ``kafka_producer.py`` marks the
transaction or the producer as failed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import BufferExhaustedError, DataError, RecordTooLargeError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.producer.accumulator.batch_filler import BatchFiller
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.records.encoded_slice import EncodedSlice, EncodedSlices
from spark_kafka_sink.records.partitioning.partitioners import Partitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_batch import HEADER_SIZE
from spark_kafka_sink.records.record_columns import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    ChunkSize,
    RecordColumns,
)
from spark_kafka_sink.records.record_encoder import (
    Groups,
    content_sizes,
    encode_groups,
    encode_slices_again,
    group_rows,
)
from spark_kafka_sink.records.single_record import JAVA_OVERHEAD

#: The largest number of bytes of a record in addition to key, value and headers: length,
#: attributes, the two deltas, the two lengths.
_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5

#: The numbers of rows from which on a chunk and a slice are worth their fixed costs. Measured with
#: rows of 100 bytes: a row takes 0.31 us in a chunk of 10 000 rows and 0.25 us in a chunk of 30 000
#: rows. A slice takes 5 us.
_ROWS_OF_A_CHUNK = CHUNK_ROWS * 3 // 4
_ROWS_OF_A_SLICE = 32


class ColumnAppender:
    """Appends the rows of ``send_columns`` to record batches. The rows are divided into chunks of a
    few MiB, and the rows of a chunk are encoded together.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        metadata: Metadata,
        filler: BatchFiller,
        pool: BufferPool,
        partitioner: Partitioner,
        transactional: TransactionManager | None,
        recorder: ProduceRecorder,
        wakeup: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._filler = filler
        self._pool = pool
        self._partitioner = partitioner
        self._manager = transactional
        self._recorder = recorder
        self._wakeup = wakeup
        # A chunk must leave memory for batches of earlier chunks, so that encoding and sending
        # overlap.
        most = max(1, config.buffer_memory // 4)
        self._usual = ChunkSize(CHUNK_ROWS, min(CHUNK_BYTES, most))
        #: The chunk size if each partition gets few rows. A chunk of this size does not fit into
        #: the processor's cache. But with smaller chunks there would be more slices, and the slices
        #: would cost more.
        self._large = ChunkSize(2 * CHUNK_ROWS, min(2 * CHUNK_BYTES, most))
        #: The chunk size for the next call of :meth:`append`.
        self.chunk_size = self._usual

    def append(self, columns: RecordColumns) -> None:
        """Appends all rows of ``columns``. If this call raises an error, some of the rows may
        already be in batches.
        """
        chunks = slices = size = 0
        for chunk in columns.chunks(self.chunk_size):
            chunk_size = self._needed_memory(chunk)
            slices += self._append_chunk(chunk, chunk_size)
            size += chunk_size
            chunks += 1
        if size:
            self.chunk_size = self._next_size(slices / chunks, columns.rows / size, chunks)

    def _next_size(self, slices: float, rows_per_byte: float, chunks: int) -> ChunkSize:
        """The chunk size for the next call of :meth:`append`. A chunk is rows that are encoded
        together, and a slice is a chunk's rows for one batch. If there are too few rows for each
        slice, the next chunks are larger.

        * ``slices``: the average number of slices in a chunk of the last call.
        * ``rows_per_byte``: the number of rows in the last call, divided by their size in bytes
          (the sum of :meth:`_needed_memory` for all chunks).
        * ``chunks``: the number of chunks in the last call.
        """
        rows = min(CHUNK_ROWS, CHUNK_BYTES * rows_per_byte)
        # Compared with the rows of a chunk of the usual size, and not with the rows of the last
        # chunk: the rows of a large chunk would look like enough, so the next chunk would be small
        # again, and so on in turn.
        size = self._large if rows < 2 * _ROWS_OF_A_SLICE * slices else self._usual
        if chunks > 1 or self._config.linger_ms == 0:
            # Several chunks: each was already as large as it may be. linger.ms=0: no row may wait
            # for other rows.
            return size
        wanted = max(_ROWS_OF_A_CHUNK, int(_ROWS_OF_A_SLICE * slices))
        return replace(size, wanted_rows=min(wanted, size.max_rows))

    def _append_chunk(self, chunk: RecordColumns, size: int) -> int:
        """Appends one chunk of rows. Returns the number of slices into which the chunk was divided:
        a slice is the encoded rows of one partition for one batch.

        ``size`` is the result of :meth:`_needed_memory` for this chunk. If ``size`` is more than
        half of buffer.memory, the halves of the chunk are appended one after the other.
        """
        topics = chunk.topics()
        cluster = self._await_topics(topics)
        if chunk.rows > 1 and size > self._config.buffer_memory // 2:
            middle = chunk.rows // 2
            halves = chunk.slice(0, middle), chunk.slice(middle, chunk.rows - middle)
            return sum(self._append_chunk(half, self._needed_memory(half)) for half in halves)
        filler = self._filler
        limits = {topic: filler.limits.raw_limit(topic) for topic in topics}
        try:
            groups = self._group(chunk, cluster, limits)
        except DataError:
            # A row names a partition that the metadata lacks. The topic may have grown meanwhile.
            self._metadata.refresh(self._clock.now_ms() + self._config.max_block_ms)
            groups = self._group(chunk, self._await_topics(topics), limits)
        # Before the positions are read: the allocation may wait for memory, and meanwhile the
        # sender closes open batches to free memory. Rows for positions in these batches would have
        # to be encoded again.
        self._allocate(size)
        taken = 0
        try:
            now_ms = self._clock.wall_ms()
            slices = encode_groups(
                chunk,
                groups,
                filler.positions(groups.tps),
                [limits[tp.topic] for tp in groups.tps],
                now_ms,
                max_request_size=self._config.max_request_size,
            )
            count = len(slices)
            while slices:
                result = filler.append(slices, self._clock.now_ms())
                taken += result.taken
                slices = self._encode_again(chunk, groups, result.refused, now_ms)
            if self._manager is not None:
                # Not before: only partitions with appended rows join the transaction. Until then
                # the sender does not drain these batches.
                self._manager.maybe_add_partitions(groups.tps)
            return count
        finally:
            self._pool.adjust(size, taken)

    def _group(self, chunk: RecordColumns, cluster: Cluster, limits: Mapping[str, int]) -> Groups:
        views = {topic: TopicView.of(cluster, topic, limit) for topic, limit in limits.items()}
        partitions = self._partitioner.assign(chunk, views, self._filler.open_room)
        return group_rows(chunk, partitions)

    def _encode_again(
        self, chunk: RecordColumns, groups: Groups, refused: Sequence[EncodedSlice], now_ms: int
    ) -> EncodedSlices:
        """Returns the slices to append in place of the slices ``refused``. A *slice* is the encoded
        rows of one partition for one batch. The refused slices were not appended, because the open
        batches of their partitions had changed.
        """
        if not refused:
            return EncodedSlices.of(())
        # Only the first slice of each partition is encoded again, for the current position in the
        # open batch. Each later slice of the partition begins a new batch. Its bytes do not depend
        # on the open batch, and are used again.
        first: dict[TopicPartition, EncodedSlice] = {}
        later = [one for one in refused if first.setdefault(one.tp, one) is not one]
        filler = self._filler
        limits = [filler.limits.raw_limit(tp.topic) for tp in first]
        positions = filler.positions([*first])
        again = encode_slices_again(chunk, groups, [*first.values()], positions, limits, now_ms)
        return EncodedSlices.of([*again, *later])

    def _await_topics(self, topics: Sequence[str]) -> Cluster:
        cluster = self._metadata.cluster
        if self._metadata.parked or not all(topic in cluster.topics for topic in topics):
            deadline = self._clock.now_ms() + self._config.max_block_ms
            return self._metadata.await_topics(topics, deadline)
        self._metadata.add_topics(topics, self._clock.now_ms())
        return cluster

    def _needed_memory(self, chunk: RecordColumns) -> int:
        """The number of bytes to allocate for the encoded rows of ``chunk``. As a rule, this is an
        upper bound of their size. It is computed from the columns' sizes, without a loop over the
        rows.

        Exception: ``chunk`` has only one row, and the bound is larger than buffer.memory. Then the
        exact size of the row determines the result. The first of these cases that applies counts:

        * The row is larger than max.request.size: 0, because ``encode_groups`` will reject it.
        * The row is larger than buffer.memory: raises RecordTooLargeError.
        * The row fits into buffer.memory: buffer.memory.
        """
        size = chunk.rows * _RECORD_OVERHEAD + HEADER_SIZE + chunk.span_bytes()
        memory = self._config.buffer_memory
        if chunk.rows > 1 or size <= memory:
            return size
        # The bound leaves slack, so this row may fit exactly.
        exact = int(content_sizes(chunk)[0]) + JAVA_OVERHEAD
        if exact > self._config.max_request_size:
            return 0  # encode_groups rejects it; do not wait for memory first
        if exact > memory:
            raise RecordTooLargeError(
                f"Row {chunk.first_row} of the Arrow batch (topic {chunk.topics()[0]}): The "
                f"message is {exact} bytes when serialized which is larger than the total memory "
                "buffer you have configured with the buffer.memory configuration.",
                hint="raise kafka.buffer.memory",
            )
        return memory

    def _allocate(self, size: int) -> None:
        config = self._config
        deadline = self._clock.now_ms() + config.buffer_wait_ms
        try:
            self._pool.allocate(size, deadline, self._wakeup)
        except BufferExhaustedError as error:
            last = self._recorder.last_answer
            raise BufferExhaustedError(
                f"buffer.memory ({config.buffer_memory} bytes) stayed exhausted for "
                f"{config.buffer_wait_ms} ms while {size} bytes were needed (max.block.ms is "
                f"{config.max_block_ms}, delivery.timeout.ms {config.delivery_timeout_ms}); "
                f"the brokers' last response: {last or 'none since the attempt began'}",
                hint="the brokers accept rows more slowly than they are sent, or not at all",
                code=error.code,
            ) from error


class WaitingForInput:
    """A context manager around the writer's wait for its next rows. If the wait takes longer than
    linger.ms plus ``delay_ms``, all open batches are sent, even if they are not full.

    Example: ``with producer.waiting_for_input(): batch = next(iterator)``. The context manager is
    not reentrant.
    """

    __slots__ = ("_accumulator", "_clock", "_wakeup", "delay_ms")

    def __init__(
        self, accumulator: RecordAccumulator, clock: Clock, wakeup: Callable[[], None]
    ) -> None:
        self._accumulator = accumulator
        self._clock = clock
        self._wakeup = wakeup
        self.delay_ms = 0

    def __enter__(self) -> None:
        if self._accumulator.set_writer_waiting_since(self._clock.now_ms() + self.delay_ms):
            # The sender may be asleep for longer than linger.ms: no batch was due when it checked.
            self._wakeup()

    def __exit__(self, *_: object) -> None:
        self._accumulator.set_writer_waiting_since(None)
