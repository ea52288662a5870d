"""Appends columns to the accumulator.

Owns: the steps for one chunk of rows: metadata, partitions, groups, memory, positions, encoding,
appending, and encoding refused slices again. The writer's side of steps 4 to 7 of a record's way.
One thread at a time. Never: bytes, queues, the effect of an error on the producer.

Memory is allocated for a whole chunk *before* positions are read: the wait for memory is long, the
sender closes open batches during it (the waiter makes every batch sendable), and slices encoded
before the wait would all be refused after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import BufferExhaustedError, DataError, ErrorCode, RecordTooLargeError
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.encoded_slice import EncodedSlice
from spark_kafka_sink.records.gather import offsets_of
from spark_kafka_sink.records.partitioning.partitioners import Partitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_batch import HEADER_SIZE
from spark_kafka_sink.records.record_columns import MAX_CHUNK_BYTES, RecordColumns
from spark_kafka_sink.records.record_encoder import (
    Groups,
    content_sizes,
    encode_groups,
    encode_slice_again,
    group_rows,
)

#: Bytes of a record besides key, value and headers, as many as they can get: length, attributes,
#: the two deltas, the two lengths.
_RECORD_OVERHEAD = 5 + 1 + 10 + 5 + 5 + 5

#: Header of a batch and Java's bound of a record's overhead, for its size check.
_JAVA_OVERHEAD = 61 + 21


class ColumnAppender:
    """Appends chunks of at most :attr:`chunk_bytes` of input.

    ``last_answer`` returns the last response that caused a retry, for messages.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        partitioner: Partitioner,
        transaction_manager: TransactionManager | None,
        last_answer: Callable[[], str | None],
        wakeup: Callable[[], None],
    ) -> None:
        self._config = config
        self._clock = clock
        self._metadata = metadata
        self._accumulator = accumulator
        self._partitioner = partitioner
        self._manager = (
            transaction_manager
            if transaction_manager is not None and transaction_manager.is_transactional
            else None
        )
        self._last_answer = last_answer
        self._wakeup = wakeup
        # A chunk must leave room for batches of earlier chunks, so that encoding and sending
        # overlap.
        self.chunk_bytes = max(1, min(MAX_CHUNK_BYTES, config.buffer_memory // 4))

    def append(self, chunk: RecordColumns) -> None:
        """Append a chunk. When this raises, some of its rows may have been appended."""
        topics = chunk.topics()
        cluster = self._await_topics(topics)
        size = self._upper_bound(chunk)
        if chunk.rows > 1 and size > self._config.buffer_memory // 2:
            half = chunk.rows // 2
            self.append(chunk.slice(0, half))
            self.append(chunk.slice(half, chunk.rows - half))
            return
        accumulator = self._accumulator
        limits = {topic: accumulator.raw_limit(topic) for topic in topics}
        try:
            groups = self._group(chunk, cluster, limits)
        except DataError:
            # An explicit partition that the topic lacks: it may have been added meanwhile.
            self._metadata.refresh(self._clock.now_ms() + self._config.max_block_ms)
            groups = self._group(chunk, self._await_topics(topics), limits)
        self._allocate(size)
        taken = 0
        try:
            now_ms = self._clock.wall_ms()
            slices: Sequence[EncodedSlice] = encode_groups(
                chunk,
                groups,
                accumulator.positions(groups.tps),
                [limits[tp.topic] for tp in groups.tps],
                now_ms,
                max_request_size=self._config.max_request_size,
            )
            while slices:
                result = accumulator.append(slices, self._clock.now_ms())
                taken += result.taken
                slices = self._encode_again(chunk, groups, result.refused, now_ms)
            if self._manager is not None:
                # Not before: only partitions with appended rows join the transaction. Until then
                # the sender does not drain these batches.
                self._manager.maybe_add_partitions(groups.tps)
        finally:
            accumulator.pool.adjust(size, taken)

    def _group(self, chunk: RecordColumns, cluster: Cluster, limits: Mapping[str, int]) -> Groups:
        views = {topic: TopicView.of(cluster, topic, limit) for topic, limit in limits.items()}
        partitions = self._partitioner.assign(chunk, views, self._accumulator.open_room)
        return group_rows(chunk, partitions)

    def _encode_again(
        self, chunk: RecordColumns, groups: Groups, refused: Sequence[EncodedSlice], now_ms: int
    ) -> list[EncodedSlice]:
        """Encode the refused rows again, in order. One slice of a partition after the other: the
        position of the second depends on the first.
        """
        slices: list[EncodedSlice] = []
        seen = set()
        for piece in refused:
            if piece.tp in seen:
                # Its generation is 0 (only the first of a chunk continues a batch), so it always
                # opens a batch, and its bytes are valid unchanged.
                slices.append(piece)
                continue
            seen.add(piece.tp)
            position = self._accumulator.positions([piece.tp])[0]
            limit = self._accumulator.raw_limit(piece.tp.topic)
            slices += encode_slice_again(chunk, groups, piece, position, limit, now_ms)
        return slices

    def _await_topics(self, topics: Sequence[str]) -> Cluster:
        cluster = self._metadata.fetch()
        if self._metadata.parked or not all(topic in cluster.topics for topic in topics):
            deadline = self._clock.now_ms() + self._config.max_block_ms
            return self._metadata.await_topics(topics, deadline)
        self._metadata.add_topics(topics, self._clock.now_ms())
        return cluster

    def _upper_bound(self, chunk: RecordColumns) -> int:
        """At least the encoded bytes of ``chunk``, without looking at its rows."""
        size = chunk.rows * _RECORD_OVERHEAD + HEADER_SIZE
        for column in (chunk.key, chunk.value, chunk.headers):
            if column is not None:
                offsets = offsets_of(column)
                size += int(offsets[-1]) - int(offsets[0])
        memory = self._config.buffer_memory
        if chunk.rows > 1 or size <= memory:
            return size
        # The bound leaves slack, so this row may fit exactly.
        exact = int(content_sizes(chunk)[0]) + _JAVA_OVERHEAD
        if exact > self._config.max_request_size:
            return 0  # encode_groups rejects it; do not wait for memory first
        if exact > memory:
            raise RecordTooLargeError(
                f"Row {chunk.first_row} of the Arrow batch (topic {chunk.topics()[0]}): The "
                f"message is {exact} bytes when serialized which is larger than the total memory "
                "buffer you have configured with the buffer.memory configuration.",
                hint="raise kafka.buffer.memory",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        return memory

    def _allocate(self, size: int) -> None:
        config = self._config
        deadline = self._clock.now_ms() + config.buffer_wait_ms
        try:
            self._accumulator.pool.allocate(size, deadline, self._wakeup)
        except BufferExhaustedError as error:
            last = self._last_answer()
            raise BufferExhaustedError(
                f"buffer.memory ({config.buffer_memory} bytes) stayed exhausted for "
                f"{config.buffer_wait_ms} ms while {size} bytes were needed (max.block.ms is "
                f"{config.max_block_ms}, delivery.timeout.ms {config.delivery_timeout_ms}); "
                f"the brokers' last response: {last or 'none since the attempt began'}",
                hint="the brokers accept rows more slowly than they are sent, or not at all",
                code=error.code,
            ) from error
