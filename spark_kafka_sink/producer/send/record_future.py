"""The futures that ``send`` returns (Java's FutureRecordMetadata).

* :class:`RecordFuture`: the future of one record.
* :class:`ProduceRequestResult`: the outcome of a batch, which all futures of the batch share.
* :class:`FutureRecords`: the records that ``send`` has appended to one batch.

A batch is completed in three steps, as in Java:

1. The outcome is set.
2. The callbacks run, in the order of the records.
3. The waiting threads are woken.

These steps usually run on the network thread. If a call such as ``send_columns`` makes the producer
fail, the steps for batches that were never sent run on the thread of this call.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress

from spark_kafka_sink.base.clock import NEVER, Clock, Waiters
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ApiError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    safe_text,
    warn,
)
from spark_kafka_sink.base.security.import_paths import place_of
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.interceptors import Interceptors
from spark_kafka_sink.producer.producer_record import Headers, RecordMetadata, new_record_metadata
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.produce import RecordError
from spark_kafka_sink.records.record_batch import HEADER_SIZE
from spark_kafka_sink.records.single_record import record_bytes, size_upper_bound

_log = logging.getLogger(__name__)

#: ``callback(metadata, error)``. For a record that was written, ``error`` is None. For a failed
#: record, ``metadata`` has only the topic partition.
Callback = Callable[[RecordMetadata, KafkaError | None], object]


#: The error of a record, by its index in the batch.
RecordErrors = Callable[[int], KafkaError]


class ProduceRequestResult:
    """The outcome of a batch. All futures of the batch share this object (Java's
    ProduceRequestResult).

    ``lock`` guards all fields until the outcome is set. After that, the outcome does not change.

    * ``offset``: the offset of the batch's first record, or -1 if the offset is unknown.
    * ``log_append_time_ms``: the broker's time for a topic with LogAppendTime. -1 if there is no
      such time.
    * ``record_errors``: returns the error of a record by its index. None if the batch was written.
    * ``wanted``: True if a record of the batch has a callback of ``send`` or a function of
      ``add_done_callback``.
    """

    __slots__ = (
        "_done",
        "_teller",
        "_waiters",
        "clock",
        "is_set",
        "lock",
        "log_append_time_ms",
        "offset",
        "record_errors",
        "tp",
        "wanted",
    )

    def __init__(self, tp: TopicPartition, clock: Clock) -> None:
        self.tp = tp
        self.clock = clock
        self.lock = threading.Lock()
        self._waiters = Waiters()
        self.offset = -1
        self.log_append_time_ms = -1
        self.record_errors: RecordErrors | None = None
        self.is_set = self._done = False
        #: The id of the thread that runs the callbacks. 0 until the outcome is set.
        self._teller = 0
        #: Set under the accumulator's lock when a record with a callback is appended.
        self.wanted = False

    def set(self, offset: int, log_append_time_ms: int, record_errors: RecordErrors | None) -> bool:
        """Sets the outcome of the batch. If this method returns True, the caller must next call
        :meth:`run_callbacks`. In both cases the caller must finally call :meth:`release_waiters`.
        """
        with self.lock:
            self.offset = offset
            self.log_append_time_ms = log_append_time_ms
            self.record_errors = record_errors
            self._teller = threading.get_ident()
            self.is_set = True
            return self.wanted

    def run_callbacks(self, futures: Iterable[RecordFuture]) -> None:
        """Runs the callbacks of ``futures`` in their order, after :meth:`set`."""
        errors, error, metadata = self.record_errors, None, RecordMetadata.empty(self.tp)
        (topic, partition), offset, appended = self.tp, self.offset, self.log_append_time_ms
        for future in futures:
            callback = future.callback
            if callback is not None:
                if errors is None:
                    # The body of :meth:`metadata_of`, without the call.
                    metadata = new_record_metadata(
                        (
                            topic,
                            partition,
                            offset if offset < 0 else offset + future.index,
                            future.timestamp if appended < 0 else appended,
                            future.key_size,
                            future.value_size,
                            1,
                        )
                    )
                else:
                    error = errors(future.index)
                # The body of :func:`call_back`, without the call.
                try:
                    callback(metadata, error)
                # Even SystemExit is caught: it would end the network thread, and waiting threads
                # would hang.
                except BaseException as raised:  # noqa: BLE001
                    _warn_of(metadata, raised)
            for function in future.done_callbacks or ():
                _call(function, future, BaseException)

    def metadata_of(self, future: RecordFuture) -> RecordMetadata:
        """The metadata of the record of ``future``: partition, offset, timestamp, and sizes of key
        and value.
        """
        topic, partition = self.tp
        offset, appended = self.offset, self.log_append_time_ms
        return new_record_metadata(
            (
                topic,
                partition,
                offset if offset < 0 else offset + future.index,
                future.timestamp if appended < 0 else appended,
                future.key_size,
                future.value_size,
                1,
            )
        )

    def release_waiters(self) -> None:
        """Wakes the waiting threads. Called after :meth:`set` or :meth:`transfer`."""
        with self.lock:
            self._done = True
            self._waiters.wake_all()

    def transfer(
        self, futures: Sequence[RecordFuture], to: ProduceRequestResult, first: int
    ) -> None:
        """Moves ``futures`` from this batch to a batch that was split from this batch. ``to`` is
        the result of the new batch. ``first`` is the index that the new batch's first record had in
        this batch.

        After all transfers, the caller calls :meth:`release_waiters`. A thread that waits for a
        moved future then wakes up, and waits for the result of the new batch.
        """
        with self.lock:
            to.wanted = self.wanted
            for future in futures:
                future.move(to, future.index - first)

    @property
    def is_done(self) -> bool:
        """True after a call of :meth:`release_waiters`. The thread that runs the callbacks gets
        True already after :meth:`set`.
        """
        # ``release_waiters`` is called only after the callbacks. So without the special rule for
        # the thread of the callbacks, a callback that waits for its own future would wait forever.
        return self._done or (self.is_set and self._teller == threading.get_ident())

    def wait(self, deadline_ms: int) -> bool:
        """Waits until :attr:`is_done` is True. Returns False at ``deadline_ms`` (monotonic ms)."""
        with self.lock:
            if self.is_done:
                return True
            latch = self._waiters.enlist()
        return self.clock.wait(latch, deadline_ms)


class RecordFuture:
    """The outcome of one record of ``send``. It has the methods ``result``, ``exception``, ``done``
    and ``add_done_callback`` of ``concurrent.futures.Future``, and can be awaited in asyncio. A
    future can't be cancelled.

    * ``index``: the index of the record in its batch.
    * ``timestamp``: the timestamp of the record, in milliseconds since the epoch.
    * ``key_size``, ``value_size``: in bytes. -1 for null.
    """

    __slots__ = (
        "_result",
        "callback",
        "done_callbacks",
        "index",
        "key_size",
        "timestamp",
        "value_size",
    )

    # No constructor: it would take twice as long as :meth:`of`.
    _result: ProduceRequestResult
    index: int
    timestamp: int
    key_size: int
    value_size: int
    callback: Callback | None
    done_callbacks: list[Callable[[RecordFuture], object]] | None

    @staticmethod
    def of(
        result: ProduceRequestResult,
        index: int,
        timestamp: int,
        key_size: int,
        value_size: int,
        callback: Callback | None,
    ) -> RecordFuture:
        """Creates the future of a record. ``result`` is the outcome of its batch, and ``index`` the
        index of the record in the batch.
        """
        future = RecordFuture()
        future._result = result
        future.index = index
        future.timestamp = timestamp
        future.key_size = key_size
        future.value_size = value_size
        future.callback = callback
        future.done_callbacks = None
        return future

    @staticmethod
    def failed(tp: TopicPartition, clock: Clock, error: KafkaError) -> RecordFuture:
        """Creates the future of a record that failed before it was added to a batch (Java's
        FutureFailure).
        """
        result = ProduceRequestResult(tp, clock)
        result.set(-1, -1, lambda _: error)
        result.release_waiters()
        return RecordFuture.of(result, 0, -1, -1, -1, None)

    def move(self, result: ProduceRequestResult, index: int) -> None:
        """Moves the future to another batch after a split. ``result`` is the outcome of the new
        batch, and ``index`` the record's index in it.
        """
        self.index = index
        self._result = result

    @property
    def tp(self) -> TopicPartition:
        """The record's topic partition."""
        return self._result.tp

    # ---- the caller's side -------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Waits for the outcome. Returns the topic, partition and offset at which the record was
        written, or raises the record's error.

        Raises KafkaTimeoutError after ``timeout`` seconds. The record may nevertheless be written
        later. If ``timeout`` is None, waits without a limit.
        """
        return self._outcome(self._await(timeout))

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """Waits for the outcome like :meth:`result`. Returns the record's error, or None if the
        record was written. Raises KafkaTimeoutError after ``timeout`` seconds.
        """
        return self._error(self._await(timeout))

    def done(self) -> bool:
        """True if the outcome is known and the callbacks of the batch have run, so that
        :meth:`result` does not block.
        """
        result = self._result
        return result.is_done and self._result is result

    def add_done_callback(self, function: Callable[[RecordFuture], object]) -> None:
        """Calls ``function(self)`` when the outcome is known, on the thread that completes the
        batch. This is usually the network thread.

        If the outcome is already known, calls ``function(self)`` immediately, on the current
        thread. An exception of ``function`` is logged.
        """
        while True:
            result = self._result
            with result.lock:
                if self._result is not result:
                    continue  # split in between
                if not result.is_set:
                    result.wanted = True
                    self.done_callbacks = [*(self.done_callbacks or ()), function]
                    return
            break
        _call(function, self)

    def __await__(self) -> Generator[object, None, RecordMetadata]:
        """Waits for the outcome in asyncio: ``metadata = await future``. Returns or raises like
        :meth:`result`, without blocking the event loop. If the asyncio task is cancelled, the
        record is nevertheless sent.
        """
        import asyncio  # a task of Spark does without it

        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def end() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def wake(_: RecordFuture) -> None:
            # The loop was closed meanwhile: nothing waits any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(end)

        self.add_done_callback(wake)
        yield from waiter
        # Not ``result``, which also waits for the callbacks of the batch's other records.
        return self._outcome(self._result)

    # ---- inside ------------------------------------------------------------------------------

    def _outcome(self, result: ProduceRequestResult) -> RecordMetadata:
        error = self._error(result)
        if error is not None:
            raise error.with_traceback(None)  # many futures may share it
        return result.metadata_of(self)

    def _await(self, timeout: float | None) -> ProduceRequestResult:
        result = self._result
        clock = result.clock
        deadline = NEVER if timeout is None else clock.now_ms() + round(timeout * 1000)
        while True:
            if not result.wait(deadline):
                raise KafkaTimeoutError(
                    f"{result.tp}: the record was not completed within {timeout} s",
                    hint="it may still be written, until delivery.timeout.ms expires",
                )
            now = self._result
            if now is result:
                return result
            result = now

    def _error(self, result: ProduceRequestResult) -> KafkaError | None:
        errors = result.record_errors
        return None if errors is None else errors(self.index)


#: A record of ``send`` before it has its position in a batch: timestamp, key, value, headers
#: (``single_record.headers_section``), and the receiver of its outcome.
UnplacedRecord = tuple[int, bytes | None, bytes | None, bytes, Callback | None]


class FutureRecords:
    """The records that ``send`` has appended to one batch, with their futures. Implements
    ``BatchRecords`` (Java's thunks).

    ``raw_limit`` is the maximum number of uncompressed record bytes in the batch.
    """

    __slots__ = ("_longest", "futures", "raw_limit", "result")

    def __init__(self, tp: TopicPartition, clock: Clock, raw_limit: int) -> None:
        self.raw_limit = raw_limit
        self.futures: list[RecordFuture] = []
        self.result = ProduceRequestResult(tp, clock)
        self._longest = 0

    def __len__(self) -> int:
        return len(self.futures)

    def try_append(self, batch: ProducerBatch, unplaced: UnplacedRecord) -> RecordFuture | None:
        """Appends one record to the open batch ``batch``. Called under the accumulator's lock.

        Returns the record's future. Returns None if the batch would become too large, or if the
        batch does not have enough allocated memory.
        """
        timestamp, key, value, headers, callback = unplaced
        count = batch.record_count
        record = record_bytes(count, timestamp - batch.base_timestamp, key, value, headers)
        size = len(record)
        raw_size = batch.raw_size + size
        if raw_size > self.raw_limit or raw_size > batch.pool_size - HEADER_SIZE:
            return None
        result = self.result
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        # The body of ``RecordFuture.of``, without the call.
        future = RecordFuture()
        future._result = result  # noqa: SLF001 - of this module
        future.index = count
        future.timestamp = timestamp
        future.key_size = key_size
        future.value_size = value_size
        future.callback = callback
        future.done_callbacks = None
        if callback is not None:
            result.wanted = True
        self.futures.append(future)
        # The body of ``ProducerBatch.append``, without the call.
        batch.chunks.append(record)
        batch.raw_size = raw_size
        batch.record_count = count + 1
        if timestamp > batch.max_timestamp:
            batch.max_timestamp = timestamp
        if size > self._longest:
            self._longest = size
            batch.largest_record = max(batch.largest_record, size_upper_bound(key, value, headers))
        return future

    def complete(self, batch: ProducerBatch) -> None:
        """Sets the outcome of the futures, runs the callbacks, and wakes the waiting threads."""
        errors = None if batch.error is None else lambda index: error_of_record(batch, index)
        if self.result.set(batch.base_offset, batch.log_append_time_ms, errors):
            self.result.run_callbacks(self.futures)
        self.result.release_waiters()

    def split(self, halves: Sequence[ProducerBatch]) -> None:
        """Moves the futures to ``halves``, the two batches into which the batch was split."""
        result = self.result
        first = 0
        for half in halves:
            records = FutureRecords(result.tp, result.clock, 0)
            end = first + half.record_count
            records.futures = [f for f in self.futures if first <= f.index < end]
            result.transfer(records.futures, records.result, first)
            half.begin_records(records)
            first = end
        result.release_waiters()


def error_of_record(batch: ProducerBatch, index: int) -> KafkaError:
    """The error of the record with the index ``index`` in a failed batch (Java's Sender.failBatch).

    A broker returns one error code for the whole batch, and optionally a list of the invalid
    records. The list decides the error of a record:

    * There is no list: the error of the batch.
    * The record is the only record in the list: an error with the exception class of the error
      code.
    * The record is one of several in the list: an InvalidRecordError.
    * The record is not in the list: a general KafkaError.
    """
    error = batch.error
    assert error is not None
    if not batch.record_errors:
        return error
    for named in batch.record_errors:
        if named.batch_index == index:
            return _named_error(batch, error, named)
    return KafkaError(
        f"{batch.tp}: Failed to append record because it was part of a batch which had one or more "
        "invalid records",
        hint=error.hint,
        kind=error.kind,
    )


def _named_error(batch: ProducerBatch, error: KafkaError, named: RecordError) -> KafkaError:
    message = error.message
    if named.message is not None:
        message = f"{batch.tp}: {safe_text(named.message)}"
    if len(batch.record_errors) > 1 or not isinstance(error, ApiError):
        return InvalidRecordError(message, hint=error.hint)
    return type(error)(message, hint=error.hint, code=error.code, kind=error.kind)


def intercepted(
    callback: Callback | None, interceptors: Interceptors, headers: Headers
) -> Callback:
    """Returns a callback that first notifies the interceptors and then calls ``callback`` (Java's
    AppendCallbacks).
    """

    def on_completion(metadata: RecordMetadata, error: KafkaError | None) -> None:
        interceptors.on_acknowledgement(metadata, error, headers)
        if callback is not None:
            call_back(callback, metadata, error)

    return on_completion


def call_back(callback: Callback, metadata: RecordMetadata, error: KafkaError | None) -> None:
    """Calls the user's callback. If the callback raises an exception, the exception is logged."""
    try:
        callback(metadata, error)
    except Exception as raised:  # noqa: BLE001 - the network thread must not die of it
        _warn_of(metadata, raised)


def _warn_of(metadata: RecordMetadata, raised: BaseException) -> None:
    """Logs an exception of the user's callback: ``raised``. Logs only the exception's class and
    place in the code, because the exception's text may contain the content of a record.
    """
    warn(
        _log,
        Kind.USER_CODE,
        "Error executing user-provided callback on message for topic-partition '%s-%s': %s",
        metadata.topic,
        metadata.partition,
        place_of(raised),
        level=logging.ERROR,
    )


def _call(
    function: Callable[[RecordFuture], object],
    future: RecordFuture,
    caught: type[BaseException] = Exception,
) -> None:
    try:
        function(future)
    except caught as raised:
        warn(
            _log,
            Kind.USER_CODE,
            "a done callback of a record raised %s",
            place_of(raised),
            level=logging.ERROR,
        )
