"""Adds a single record of ``send`` to a batch (Java's ``KafkaProducer.doSend``). Any number of
threads may call this module.

``send`` has these steps:

1. Wait for the topic's metadata.
2. Serialize key and value, and make the headers read-only.
3. Choose the partition.
4. Check the size.
5. Append to a batch under the accumulator's lock. If the batch needs more memory, allocate it and
   append again.

If a step fails, this module also notifies the callback and the interceptors. max.block.ms limits
the sum of the waits for metadata and for memory in one call of ``send``.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import (
    ApiError,
    BufferExhaustedError,
    DataError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    safe_text,
)
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.producer.accumulator.batch_filler import BatchFiller
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import (
    PartitionQueue,
    RecordAccumulator,
)
from spark_kafka_sink.producer.buffer_pool import BufferPool
from spark_kafka_sink.producer.interceptors import Interceptors
from spark_kafka_sink.producer.lifecycle import ForkCounter, Lifecycle
from spark_kafka_sink.producer.producer_record import (
    NO_HEADERS,
    Headers,
    ProducerRecord,
    RecordMetadata,
    set_headers,
    tp_of,
)
from spark_kafka_sink.producer.send.record_future import (
    Callback,
    FutureRecords,
    RecordFuture,
    UnplacedRecord,
    call_back,
    intercepted,
)
from spark_kafka_sink.producer.send.record_partitioner import RecordPartitioner, StickyPartition
from spark_kafka_sink.producer.send.serialization import BytesSerializer, Serializer, serialize
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.cluster import PartitionInfos, TopicPartition
from spark_kafka_sink.records.record_batch import HEADER_SIZE
from spark_kafka_sink.records.single_record import (
    EMPTY_SECTION,
    MOST_OVERHEAD,
    headers_section,
    record_bytes,
    size_upper_bound,
)

#: The result of :meth:`RecordFiller.append` if the sticky partition has changed.
PARTITION_CHANGED = -1

#: A batch of single records allocates memory in steps of this number of bytes (Kafka 4.4's
#: incremental strategy). A whole batch.size for each open batch would be 256 MiB for 1000
#: partitions. An allocation for each record would cost as much as encoding the record.
MEMORY_STEP = 16_384

#: The bytes of a record in addition to key, value and headers, as the sticky partitioner counts
#: them: length, attributes, two deltas and two lengths.
_RECORD_OVERHEAD = 12

#: The interval in ms at which a topic's last use is updated. (metadata.max.idle.ms is at least 5
#: seconds.)
_TOUCH_MS = 1_000


class Memory:
    """Bytes of the BufferPool that a thread has allocated for the record that it sends.

    ``size`` is the number of bytes, and ``allocated_ms`` the time of the allocation (monotonic ms).
    When a batch takes over the bytes, ``size`` becomes 0.
    """

    __slots__ = ("allocated_ms", "size")

    def __init__(self) -> None:
        self.size = self.allocated_ms = 0


class RecordFiller:
    """Appends single records to the accumulator's batches. Thread-safe."""

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        accumulator: RecordAccumulator,
        filler: BatchFiller,
        wakeup: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._accumulator = accumulator
        self._lifecycle = accumulator.lifecycle
        self._by_partition = accumulator.queues.by_partition
        self._filler = filler
        self._wakeup = wakeup
        #: The number of records that were appended so far.
        self.appended_records = 0
        self._memory_step = max(1, min(MEMORY_STEP, config.buffer_memory // 8))

    def append(
        self,
        tp: TopicPartition,
        record: UnplacedRecord,
        sticky: StickyPartition | None = None,
        memory: Memory | None = None,
    ) -> RecordFuture | int:
        """Tries to append a record to the open batch of ``tp``, or to a new batch (Java's
        RecordAccumulator.append). The result is one of these:

        * The future: the record was appended. If the batch has taken over the bytes of ``memory``,
          ``memory.size`` is now 0. If ``memory.size`` is not 0, the caller must free these bytes.
        * PARTITION_CHANGED: the sticky partition of the topic has changed. The caller must choose
          the partition again.
        * A number of bytes: the caller must allocate them, and call this method again.

        Raises the error of a failed producer, and IllegalStateError if the producer is closed.
        """
        accumulator = self._accumulator
        claimed: list[ProducerBatch] = []
        wanted, wake = 0, False
        with accumulator.lock:
            if not self._lifecycle.is_open:
                self._lifecycle.check()
            try:
                queue = self._by_partition[tp]
                batch, future = queue.open, None
                if sticky is not None and sticky.changed(all_full=batch is None):
                    return PARTITION_CHANGED
                records = None if batch is None else batch.records
                if batch is not None and type(records) is FutureRecords:
                    future = records.try_append(batch, record)
                if future is None:
                    batch, wanted, wake = self._make_room(queue, record, memory, claimed)
                    if batch is not None:
                        records = batch.records
                        assert type(records) is FutureRecords
                        future = records.try_append(batch, record)
                if batch is not None:
                    self.appended_records += 1
                    assert type(records) is FutureRecords
                    if batch.raw_size >= records.raw_limit:
                        wake |= self._filler.claim(queue, claimed)
                    if sticky is not None:
                        assert future is not None
                        size = (
                            _RECORD_OVERHEAD + len(record[3]) + future.key_size + future.value_size
                        )
                        sticky.appended(size, all_full=queue.open is None)
            except BaseException as error:
                # A KeyboardInterrupt between two of these lines: the state is unknown.
                accumulator.failed(
                    IllegalStateError(f"sending was interrupted by {type(error).__name__}")
                )
                raise
        if wake:
            self._wakeup()
        if claimed:
            self._filler.close_claimed(claimed)
        return wanted if future is None else future

    def _make_room(
        self,
        queue: PartitionQueue,
        record: UnplacedRecord,
        memory: Memory | None,
        claimed: list[ProducerBatch],
    ) -> tuple[ProducerBatch | None, int, bool]:
        """Finds or opens a batch with room for ``record``, and gives ``memory`` to this batch.
        Called under the accumulator's lock.

        Returns three values:

        * the batch, or None if the caller must first allocate memory
        * the number of bytes to allocate
        * True if the sender must be woken

        If the record does not fit into the open batch, the open batch is closed. A closed batch
        that must still be compressed is added to ``claimed``.
        """
        timestamp, key, value, headers, _ = record
        raw_limit = self._filler.limits.raw_limit
        given = 0 if memory is None else memory.size
        limit = raw_limit(queue.tp.topic)
        wake = False
        batch = queue.open
        if batch is not None:
            # The limit at the batch's first single record: Java, too, reads the estimated
            # compression ratio once for each batch.
            if type(batch.records) is FutureRecords:
                limit = batch.records.raw_limit
            delta = timestamp - batch.base_timestamp
            size = len(record_bytes(batch.record_count, delta, key, value, headers))
            room = limit - batch.raw_size
            if size > room:
                wake = self._filler.claim(queue, claimed)
                batch = None
                limit = raw_limit(queue.tp.topic)
            elif batch.pool_size + given < HEADER_SIZE + batch.raw_size + size:
                return None, max(size, min(room, self._memory_step)), wake
        if batch is None:
            size = len(record_bytes(0, 0, key, value, headers))
            if memory is None or given < HEADER_SIZE + size:
                return None, HEADER_SIZE + max(size, min(limit, self._memory_step)), wake
            batch = self._filler.open_batch(queue, timestamp, memory.allocated_ms)
            limit = max(limit, size)  # a larger record is a batch by itself
            wake = True
        if batch.records is None:
            batch.begin_records(FutureRecords(queue.tp, self._clock, limit))
            self._accumulator.note_records()
        if memory is not None:
            batch.add_memory(given)
            memory.size = 0
        return batch, 0, wake


class RecordAppender:
    """Performs the steps of ``send`` on the calling thread. Thread-safe."""

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        metadata: Metadata,
        lifecycle: Lifecycle,
        pool: BufferPool,
        filler: RecordFiller,
        partitioner: RecordPartitioner,
        transactional: TransactionManager | None,
        interceptors: Interceptors | None,
        serializers: tuple[Serializer, Serializer],
        wakeup: Callable[[], None],
    ) -> None:
        self._max_block_ms = config.max_block_ms
        self._max_request_size = config.max_request_size
        self._buffer_memory = config.buffer_memory
        self._surely_fits = min(config.max_request_size, config.buffer_memory) - MOST_OVERHEAD
        self._clock = clock
        self._metadata = metadata
        self._lifecycle = lifecycle
        self._pool = pool
        self._filler = filler
        self._partitioner = partitioner
        self._manager = transactional
        self._interceptors = interceptors
        self._keys, self._values = serializers
        # Bytes need no serializer call, and headers are not created unless added.
        self._plain = interceptors is None and all(
            type(serializer) is BytesSerializer for serializer in serializers
        )
        self._numbers = partitioner.numbers
        self._wakeup = wakeup
        #: For each topic, the time until which the time of its last use need not be updated.
        self._touched_until: dict[str, int] = {}

    def append(self, record: ProducerRecord, callback: Callback | None) -> RecordFuture:
        """Adds ``record`` to a batch. ``KafkaProducer.send`` describes the behaviour.

        If an ApiError occurs, the future and the callback receive it, and an open transaction can
        then only be aborted. Any other error is raised. Interceptors are notified of every error.
        """
        if self._interceptors is not None:
            record = self._interceptors.on_send(record)
        life = self._lifecycle
        if not life.is_open or life.forks != ForkCounter.count or self._manager is not None:
            self._check_usable(record)
        # The path of most records is inline: a call is a hundredth of a record's cost.
        topic, partition = record.topic, record.partition
        given_key, given_value, deadline, sticky = record.key, record.value, None, None
        try:
            partitions = self._metadata.cluster.topics.get(topic)
            if partitions is None or (
                partition is not None and partition >= partitions.partition_count
            ):
                deadline = self._clock.now_ms() + self._max_block_ms
                partitions = self._await_partitions(record, deadline)
            key: bytes | None
            value: bytes | None
            if (
                self._plain
                and type(given_value) is bytes
                and (given_key is None or type(given_key) is bytes)
                and record.made_headers is None
            ):
                key, value, headers, told = given_key, given_value, EMPTY_SECTION, callback
                set_headers(record, NO_HEADERS)
            else:
                key, value, headers, told = self._serialize(record, callback)
            if partition is None:
                if key and self._numbers is not None:
                    known = self._numbers.get(key)
                    number = self._partitioner.number(key) if known is None else known
                    partition = number % partitions.partition_count
                else:
                    partition, sticky = self._choose(topic, key, value, partitions)
            size = len(headers) + (len(key) if key else 0) + (len(value) if value else 0)
            if size > self._surely_fits:
                self._check_size(topic, size_upper_bound(key, value, headers))
            given_ms = record.timestamp
            timestamp = self._clock.wall_ms() if given_ms is None else given_ms
            unplaced = (timestamp, key, value, headers, told)
            placed = self._filler.append(partitions.tps[partition], unplaced, sticky)
            if type(placed) is not RecordFuture:
                placed = self._append_waiting(
                    partitions, partition, sticky, unplaced, placed, deadline
                )
        except ApiError as error:
            return self._failed(record, callback, error)
        except Exception as error:
            self._notify_interceptors(record, error)
            raise
        if self._manager is not None:
            # Raises when the transaction failed meanwhile; its batch calls all who hear of it.
            self._manager.maybe_add_partition(placed.tp)
        return placed

    def _failed(
        self, record: ProducerRecord, callback: Callback | None, error: ApiError
    ) -> RecordFuture:
        """Handles the ``error`` of a record that could not be added to a batch. Calls the callback
        and the interceptors, and fails the open transaction. Returns a future that has the error.
        """
        tp = tp_of(record)
        if callback is not None:
            call_back(callback, RecordMetadata.empty(tp), error)
        self._notify_interceptors(record, error)
        if self._manager is not None:
            self._manager.transition_to_abortable_error(error)
        return RecordFuture.failed(tp, self._clock, error)

    def _check_usable(self, record: ProducerRecord) -> None:
        try:
            self._lifecycle.check()
            if self._manager is not None:
                self._manager.ensure_in_transaction()
        except Exception as error:
            self._notify_interceptors(record, error)
            raise

    def _notify_interceptors(self, record: ProducerRecord, error: Exception) -> None:
        if self._interceptors is not None:
            known = error if isinstance(error, KafkaError) else KafkaError(type(error).__name__)
            self._interceptors.on_send_error(record, known)

    def _serialize(
        self, record: ProducerRecord, callback: Callback | None
    ) -> tuple[bytes | None, bytes | None, bytes, Callback | None]:
        """Serializes ``record``. Returns four values: the key and the value (None for null), the
        encoded headers, and a callback.

        If there are interceptors, the returned callback notifies them and then calls ``callback``.
        Without interceptors, ``callback`` itself is returned.
        """
        headers = record.headers
        assert type(headers) is Headers
        key = serialize(self._keys, "key.serializer", record.topic, record.key, headers)
        value = serialize(self._values, "value.serializer", record.topic, record.value, headers)
        headers.set_read_only()
        if self._interceptors is not None:
            callback = intercepted(callback, self._interceptors, headers)
        return key, value, headers_section(headers) if headers else EMPTY_SECTION, callback

    def _append_waiting(
        self,
        partitions: PartitionInfos,
        partition: int,
        sticky: StickyPartition | None,
        unplaced: UnplacedRecord,
        placed: RecordFuture | int,
        deadline: int | None,
    ) -> RecordFuture:
        """Repeats the append of a record until it succeeds (Java's loop in ``doSend``).

        ``placed`` is the result of the first append. After the result PARTITION_CHANGED, chooses a
        new partition. After a number of bytes, allocates them: ``deadline`` (monotonic ms) limits
        the wait for memory.
        """
        topic = partitions.topic
        now = self._clock.now_ms()
        if deadline is None:
            deadline = now + self._max_block_ms
        # Updates a topic's last use only when its batches need memory, which is often enough.
        if self._metadata.parked:
            self._metadata.await_topics([topic], deadline)
        elif now >= self._touched_until.get(topic, now):
            self._touched_until[topic] = now + _TOUCH_MS
            self._metadata.add_topics([topic], now)
        memory: Memory | None = None
        try:
            while not isinstance(placed, RecordFuture):
                if placed == PARTITION_CHANGED:
                    partition, sticky = self._choose(topic, unplaced[1], unplaced[2], partitions)
                else:
                    memory = self._allocate(memory, placed, deadline)
                tp = partitions.tps[partition]
                placed = self._filler.append(tp, unplaced, sticky, memory)
            return placed
        finally:
            if memory is not None and memory.size:
                self._pool.deallocate(memory.size)

    def _choose(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: PartitionInfos,
    ) -> tuple[int, StickyPartition | None]:
        """Chooses the partition of a record whose partition is not given.

        Returns two values. The first is the partition. The second is the topic's
        :class:`StickyPartition` if this is the chosen partition, or None for any other partition.
        """
        choice = self._partitioner.partition(topic, key, value, partitions)
        number, sticky = (choice, None) if isinstance(choice, int) else (choice.partition, choice)
        if 0 <= number < partitions.partition_count:
            return number, sticky
        # The load-based choice uses the newest metadata, and the topic may have grown meanwhile.
        partitions = self._metadata.cluster.topics.get(topic, partitions)
        if 0 <= number < len(partitions):
            return number, sticky
        if sticky is not None:
            # The topic was recreated with fewer partitions.
            self._partitioner.move_on(topic)
            return self._choose(topic, key, value, partitions)
        raise DataError(
            f"The partitioner generated an invalid partition number: {number}. Topic {topic} has"
            f" {len(partitions)} partitions"
        )

    def _await_partitions(self, record: ProducerRecord, deadline: int) -> PartitionInfos:
        """The partitions of the record's topic. Waits until the metadata has the topic. If the
        partition of the record is given, also waits until the metadata has this partition (Java's
        waitOnMetadata).
        """
        metadata, topic, wanted = self._metadata, record.topic, record.partition
        partitions = metadata.await_topics([topic], deadline).topics[topic]
        while wanted is not None and wanted >= len(partitions):
            if self._clock.now_ms() >= deadline:
                raise KafkaTimeoutError(
                    f"Partition {wanted} of topic {safe_text(topic)} with partition count"
                    f" {len(partitions)} is not present in metadata after {self._max_block_ms} ms.",
                )
            metadata.refresh(deadline)
            partitions = metadata.cluster.topics.get(topic, partitions)
        return partitions

    def _check_size(self, topic: str, size: int) -> None:
        """Raises RecordTooLargeError if ``size``, the size of a record, exceeds max.request.size or
        buffer.memory.
        """
        if size > self._max_request_size:
            raise RecordTooLargeError(
                f"{safe_text(topic)}: The message is {size} bytes when serialized which is larger"
                f" than {self._max_request_size}, which is the value of the max.request.size"
                " configuration.",
                hint="raise max.request.size, and max.message.bytes of the topic with it",
            )
        if size > self._buffer_memory:
            raise RecordTooLargeError(
                f"{safe_text(topic)}: The message is {size} bytes when serialized which is larger"
                " than the total memory buffer you have configured with the buffer.memory"
                " configuration.",
                hint="raise buffer.memory",
            )

    def _allocate(self, memory: Memory | None, size: int, deadline: int) -> Memory:
        """Allocates ``size`` bytes in the BufferPool, and returns them as a :class:`Memory`.
        ``memory`` is an earlier allocation of another size, or None. The method first frees this
        earlier allocation.
        """
        pool = self._pool
        if memory is None:
            memory = Memory()
        else:
            pool.deallocate(memory.size)
            memory.size = 0
        try:
            pool.allocate(size, deadline, self._wakeup)
        except BufferExhaustedError as error:
            raise BufferExhaustedError(
                f"{error.message} (max.block.ms is {self._max_block_ms})",
                hint="the brokers accept records more slowly than they are sent, or not at all",
                code=error.code,
            ) from error
        memory.size, memory.allocated_ms = size, self._clock.now_ms()
        return memory
