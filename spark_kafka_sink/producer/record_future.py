"""What ``send`` gives back: one record's outcome, to be waited for (Java's FutureRecordMetadata).

Owns: :class:`RecordFuture` and :class:`ProduceRequestResult`, the outcome of a whole batch that the
futures of its records share. On the way back of a record it is the last step. Never: what the
outcome is (``producer_batch.py`` says so).

A future costs a few words and no lock: it names its batch's result and its place in that batch,
and its metadata is made when somebody asks. A batch that is split hands its futures on to its
pieces (:meth:`ProduceRequestResult.hand_on`); who waits for the whole then waits for the piece.

The order of an end is Java's: the outcome is set, then the callbacks run, on the network thread,
in the order of the records; then those who wait are woken.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from spark_kafka_sink.clock import NEVER, Clock, Waiters
from spark_kafka_sink.errors import ErrorCode, KafkaError, KafkaTimeoutError
from spark_kafka_sink.producer.interceptors import Interceptors, place_of
from spark_kafka_sink.producer.producer_record import RecordMetadata
from spark_kafka_sink.protocol.cluster import TopicPartition

_log = logging.getLogger(__name__)

#: ``callback(metadata, error)``: ``error`` is None for a record that was written; with an error,
#: the metadata knows the topic partition only.
Callback = Callable[[RecordMetadata, KafkaError | None], object]


class RecordErrors(Protocol):
    """The error of each record of a batch that failed."""

    def __call__(self, index: int) -> KafkaError: ...


class ProduceRequestResult:
    """The outcome of a batch (Java's class of that name).

    One lock (``_lock``) guards all fields while the batch is on its way; nothing changes once it
    is ``_set``. ``_wanted`` says that some future of the batch must be told one by one.
    """

    __slots__ = (
        "_clock",
        "_done",
        "_lock",
        "_log_append_time_ms",
        "_offset",
        "_record_errors",
        "_set",
        "_waiters",
        "_wanted",
        "tp",
    )

    def __init__(self, tp: TopicPartition, clock: Clock) -> None:
        self.tp = tp
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters = Waiters()
        self._offset = -1
        self._log_append_time_ms = -1
        self._record_errors: RecordErrors | None = None
        self._set = False
        self._done = False
        self._wanted = False

    def want(self) -> None:
        """The record that is appended next has a callback."""
        self._wanted = True

    def set(
        self, offset: int, log_append_time_ms: int, record_errors: RecordErrors | None
    ) -> bool:
        """The outcome is known. True: the futures must be told, by :meth:`RecordFuture.tell`."""
        with self._lock:
            self._offset = offset
            self._log_append_time_ms = log_append_time_ms
            self._record_errors = record_errors
            self._set = True
            return self._wanted

    def open(self) -> None:
        """Wake who waits: the outcome is set, or the futures belong to other results now."""
        with self._lock:
            self._done = True
            self._waiters.wake_all()

    def hand_on(self, futures: Sequence[RecordFuture], to: ProduceRequestResult) -> None:
        """``futures``, in order, are records 0 and on of the batch of ``to``; :meth:`open` after.

        A thread that waits for one of them wakes up at :meth:`open`, finds that its future has
        another result, and waits for that.
        """
        with self._lock:
            to._wanted = to._wanted or self._wanted
            for index, future in enumerate(futures):
                future._index = index
                future._result = to

    def _wait(self, deadline_ms: int) -> bool:
        with self._lock:
            if self._done:
                return True
            latch = self._waiters.enlist()
        return self._clock.wait(latch, deadline_ms)


class RecordFuture:
    """One record's outcome; the methods are those of ``concurrent.futures.Future``.

    It can't be cancelled: the record is on its way.
    """

    __slots__ = (
        "_callback",
        "_done_callbacks",
        "_index",
        "_interceptors",
        "_key_size",
        "_result",
        "_timestamp",
        "_value_size",
    )

    def __init__(
        self,
        timestamp: int,
        key_size: int,
        value_size: int,
        callback: Callback | None,
        interceptors: Interceptors | None,
    ) -> None:
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size
        self._callback = callback
        self._interceptors = interceptors
        self._done_callbacks: list[Callable[[RecordFuture], object]] | None = None
        self._index = -1
        self._result: ProduceRequestResult | None = None

    @classmethod
    def failed(cls, tp: TopicPartition, clock: Clock, error: KafkaError) -> RecordFuture:
        """A record that was never appended (Java's FutureFailure)."""
        future = cls(-1, -1, -1, None, None)
        result = ProduceRequestResult(tp, clock)
        result.set(-1, -1, lambda _: error)
        result.open()
        future.appended(result, 0)
        return future

    @property
    def wants_to_be_told(self) -> bool:
        return self._callback is not None or self._interceptors is not None

    def appended(self, result: ProduceRequestResult, index: int) -> None:
        """The record is number ``index`` of the batch whose outcome is ``result``."""
        self._index = index
        self._result = result

    # ---- the caller's side -------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record was written. Blocks for at most ``timeout`` seconds (None: no limit).

        Raises the error of the record, or KafkaTimeoutError when the time is over.
        """
        result = self._await(timeout)
        error = self._error(result)
        if error is not None:
            raise error
        return self._metadata(result)

    def exception(self, timeout: float | None = None) -> KafkaError | None:
        """The error of the record, or None; waits as :meth:`result` does."""
        return self._error(self._await(timeout))

    def done(self) -> bool:
        """True when :meth:`result` would not wait."""
        result = self._result
        return result is not None and result._done and self._result is result

    def add_done_callback(self, function: Callable[[RecordFuture], object]) -> None:
        """Call ``function(self)`` when the record has its outcome: on the network thread, or now
        on this one. What it raises is logged.
        """
        while True:
            result = self._result
            assert result is not None
            with result._lock:
                if self._result is not result:
                    continue  # split in between
                if not result._set:
                    result._wanted = True
                    self._done_callbacks = [*(self._done_callbacks or ()), function]
                    return
            break
        _call(function, self)

    # ---- the network thread's side -----------------------------------------------------------

    def tell(self) -> None:
        """Run what waits for this record's outcome, which is set: interceptors, then callbacks."""
        result = self._result
        assert result is not None
        if self._callback is not None or self._interceptors is not None:
            error = self._error(result)
            metadata = (
                self._metadata(result) if error is None else RecordMetadata.empty(result.tp)
            )
            if self._interceptors is not None:
                self._interceptors.on_acknowledgement(metadata, error)
            if self._callback is not None:
                call_back(self._callback, metadata, error)
        if self._done_callbacks is not None:
            for function in self._done_callbacks:
                _call(function, self)

    # ---- inside ------------------------------------------------------------------------------

    def _await(self, timeout: float | None) -> ProduceRequestResult:
        result = self._result
        assert result is not None
        clock = result._clock
        deadline = NEVER if timeout is None else clock.now_ms() + round(timeout * 1000)
        while True:
            if not result._wait(deadline):
                raise KafkaTimeoutError(
                    f"{result.tp}: the record had no outcome within {timeout} s",
                    hint="it may still be written: delivery.timeout.ms is the limit of that",
                    code=ErrorCode.REQUEST_TIMED_OUT,
                )
            now = self._result
            assert now is not None
            if now is result:
                return result
            result = now

    def _error(self, result: ProduceRequestResult) -> KafkaError | None:
        errors = result._record_errors
        return None if errors is None else errors(self._index)

    def _metadata(self, result: ProduceRequestResult) -> RecordMetadata:
        tp, offset, appended = result.tp, result._offset, result._log_append_time_ms
        return RecordMetadata(
            tp.topic,
            tp.partition,
            offset if offset < 0 else offset + self._index,
            self._timestamp if appended < 0 else appended,
            self._key_size,
            self._value_size,
        )


def call_back(callback: Callback, metadata: RecordMetadata, error: KafkaError | None) -> None:
    """Call a user's callback; what it raises is logged, and ends nothing."""
    try:
        callback(metadata, error)
    except Exception as raised:  # noqa: BLE001 - the network thread must not die of it
        # Its text may hold a row: class and place only.
        _log.error(  # noqa: TRY400 - see above
            "Error executing user-provided callback on message for topic-partition '%s-%s': %s",
            metadata.topic,
            metadata.partition,
            place_of(raised),
        )


def _call(function: Callable[[RecordFuture], object], future: RecordFuture) -> None:
    try:
        function(future)
    except Exception as raised:  # noqa: BLE001 - the network thread must not die of it
        _log.error("a done callback of a record raised %s", place_of(raised))  # noqa: TRY400
