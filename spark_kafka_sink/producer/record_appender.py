"""Appends a single record to the accumulator (Java's ``KafkaProducer.doSend``).

Owns: the steps of ``send``: metadata, serializers, partition, size, headers made read-only, memory,
append; and the notification of callbacks and interceptors when a step fails. Thread-safe. Never:
batches, the network, columns (``column_appender.py``).

max.block.ms is one budget for all that blocks here: the wait for metadata and the wait for memory.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import (
    ApiError,
    BufferExhaustedError,
    DataError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    RecordTooLargeError,
    safe_text,
)
from spark_kafka_sink.producer.accumulator.producer_batch import new_unplaced
from spark_kafka_sink.producer.accumulator.record_accumulator import (
    PARTITION_CHANGED,
    Memory,
    RecordAccumulator,
)
from spark_kafka_sink.producer.interceptors import Interceptors
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.producer.producer_record import (
    Headers,
    ProducerRecord,
    RecordMetadata,
    tp_of,
)
from spark_kafka_sink.producer.record_future import (
    Callback,
    RecordFuture,
    call_back,
    intercepted,
)
from spark_kafka_sink.producer.record_partitioner import RecordPartitioner, StickyPartition
from spark_kafka_sink.producer.serialization import BytesSerializer, Serializer, serialize
from spark_kafka_sink.producer.transaction.transaction_manager import TransactionManager
from spark_kafka_sink.protocol.cluster import PartitionInfos
from spark_kafka_sink.records.single_record import LARGEST_OVERHEAD, record_tail, size_upper_bound

#: Interval at which a topic's last use is updated: metadata.max.idle.ms is at least 5 seconds.
_TOUCH_MS = 1_000


class RecordAppender:
    """The writer's side of ``send``. Safe for any number of threads."""

    def __init__(
        self,
        config: ProducerConfig,
        clock: Clock,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        partitioner: RecordPartitioner,
        transaction_manager: TransactionManager | None,
        interceptors: Interceptors | None,
        serializers: tuple[Serializer, Serializer],
        wakeup: Callable[[], None],
    ) -> None:
        self._max_block_ms = config.max_block_ms
        self._max_request_size = config.max_request_size
        self._largest_tail = min(config.max_request_size, config.buffer_memory) - LARGEST_OVERHEAD
        self._clock = clock
        self._metadata = metadata
        self._accumulator = accumulator
        self._partitioner = partitioner
        self._manager = (
            transaction_manager
            if transaction_manager is not None and transaction_manager.is_transactional
            else None
        )
        self._interceptors = interceptors
        self._keys, self._values = serializers
        # Bytes need no serializer call.
        self._keys_are_bytes = type(self._keys) is BytesSerializer
        self._values_are_bytes = type(self._values) is BytesSerializer
        self._wakeup = wakeup
        #: Until this time a topic's last use need not be updated.
        self._touched_until: dict[str, int] = {}

    def append(
        self,
        record: ProducerRecord,
        callback: Callback | None,
        check_usable: Callable[[], None],
    ) -> RecordFuture:
        """Append ``record``; see ``KafkaProducer.send``.

        An ApiError goes into the future and the callback, and makes a transaction abortable; any
        other error is raised. Interceptors are notified of both.
        """
        if self._interceptors is not None:
            record = self._interceptors.on_send(record)
        try:
            check_usable()
            if self._manager is not None:
                self._manager.ensure_in_transaction()
        except Exception as error:
            self._notify_interceptors(record, error)
            raise
        try:
            future = self._append(record, callback)
        except ApiError as error:
            tp = tp_of(record)
            if callback is not None:
                call_back(callback, RecordMetadata.empty(tp), error)
            self._notify_interceptors(record, error)
            if self._manager is not None:
                self._manager.transition_to_abortable_error(error)
            return RecordFuture.failed(tp, self._clock, error)
        except Exception as error:
            self._notify_interceptors(record, error)
            raise
        if self._manager is not None:
            # Raises when the transaction failed meanwhile; the batch notifies callback and
            # interceptors of the record, so they must not be notified here.
            self._manager.maybe_add_partition(future.tp)
        return future

    def _notify_interceptors(self, record: ProducerRecord, error: Exception) -> None:
        if self._interceptors is not None:
            known = error if isinstance(error, KafkaError) else KafkaError(type(error).__name__)
            self._interceptors.on_send_error(record, known)

    def _append(self, record: ProducerRecord, callback: Callback | None) -> RecordFuture:
        now = self._clock.now_ms()
        deadline = now + self._max_block_ms
        topic, headers, key, value = record.topic, record.headers, record.key, record.value
        assert type(headers) is Headers
        partitions = self._metadata.fetch().topics.get(topic)
        if (
            partitions is None
            or now >= self._touched_until.get(topic, now)
            or record.partition is not None
            or self._metadata.parked
        ):
            partitions = self._partitions(record, now, deadline)
        if type(key) is not bytes or not self._keys_are_bytes:
            key = serialize(self._keys, "key.serializer", topic, key, headers)
        if type(value) is not bytes or not self._values_are_bytes:
            value = serialize(self._values, "value.serializer", topic, value, headers)
        choice: int | StickyPartition = (
            self._choose(topic, key, value, partitions)
            if record.partition is None
            else record.partition
        )
        headers.set_read_only()
        tail = record_tail(key, value, headers)
        if len(tail) > self._largest_tail:
            self._refuse_size(topic, size_upper_bound(tail))
        if self._interceptors is not None:
            callback = intercepted(callback, self._interceptors, headers)
        unplaced = new_unplaced(
            (
                self._clock.wall_ms() if record.timestamp is None else record.timestamp,
                tail,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
                callback,
            )
        )
        # The loop of Java's append: until memory is allocated and the partition is unchanged.
        accumulator = self._accumulator
        memory: Memory | None = None
        try:
            while True:
                if isinstance(choice, int):
                    sticky, tp = None, partitions.tp(choice)
                else:
                    sticky, tp = choice, partitions.tp(choice.partition)
                placed = accumulator.append_record(tp, unplaced, now, sticky, memory)
                if isinstance(placed, RecordFuture):
                    return placed
                if placed == PARTITION_CHANGED:
                    choice = self._choose(topic, key, value, partitions)
                    continue
                memory = self._allocate(memory, placed, deadline)
                now = self._clock.now_ms()
        finally:
            if memory is not None and memory.size:
                accumulator.pool.deallocate(memory.size)

    def _choose(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: PartitionInfos,
    ) -> int | StickyPartition:
        choice = self._partitioner.partition(topic, key, value, partitions)
        number = choice if isinstance(choice, int) else choice.partition
        if 0 <= number < partitions.partition_count:
            return choice
        # The load-based choice uses the newest metadata, and the topic may have grown meanwhile.
        partitions = self._metadata.fetch().topics.get(topic, partitions)
        if 0 <= number < len(partitions):
            return choice
        if not isinstance(choice, int):
            # The topic was recreated with fewer partitions.
            self._partitioner.move_on(topic)
            return self._choose(topic, key, value, partitions)
        raise DataError(
            f"The partitioner generated an invalid partition number: {number}. Topic {topic} has"
            f" {len(partitions)} partitions"
        )

    def _partitions(self, record: ProducerRecord, now: int, deadline: int) -> PartitionInfos:
        """The topic's partitions; waits while the topic or the record's partition is unknown
        (Java's waitOnMetadata).
        """
        metadata, topic, wanted = self._metadata, record.topic, record.partition
        partitions = metadata.fetch().topics.get(topic)
        if partitions is None or metadata.parked:
            cluster = metadata.await_topics([topic], deadline)
            partitions = cluster.topics[topic]
        elif now >= self._touched_until.get(topic, now):
            self._touched_until[topic] = now + _TOUCH_MS
            metadata.add_topics([topic], now)
        while wanted is not None and wanted >= len(partitions):
            if self._clock.now_ms() >= deadline:
                raise KafkaTimeoutError(
                    f"Partition {wanted} of topic {safe_text(topic)} with partition count"
                    f" {len(partitions)} is not present in metadata after {self._max_block_ms} ms.",
                    code=ErrorCode.REQUEST_TIMED_OUT,
                )
            partitions = metadata.refresh(deadline).topics.get(topic, partitions)
        return partitions

    def _refuse_size(self, topic: str, size: int) -> None:
        """Raise RecordTooLargeError for a record larger than a request or the pool."""
        if size > self._max_request_size:
            raise RecordTooLargeError(
                f"{safe_text(topic)}: The message is {size} bytes when serialized which is larger"
                f" than {self._max_request_size}, which is the value of the max.request.size"
                " configuration.",
                hint="raise max.request.size, and max.message.bytes of the topic with it",
                code=ErrorCode.MESSAGE_TOO_LARGE,
            )
        raise RecordTooLargeError(
            f"{safe_text(topic)}: The message is {size} bytes when serialized which is larger"
            " than the total memory buffer you have configured with the buffer.memory"
            " configuration.",
            hint="raise buffer.memory",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )

    def _allocate(self, memory: Memory | None, size: int, deadline: int) -> Memory:
        """Allocate ``size`` bytes in place of ``memory``, which was of another size."""
        pool = self._accumulator.pool
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
        memory.size = size
        return memory
