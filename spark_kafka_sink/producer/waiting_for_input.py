"""The time during which a writer of columns waits for input: linger.ms counts only then.

Owns: notifying the accumulator of the begin and end of that wait. Never: the wait itself.
"""

from __future__ import annotations

from collections.abc import Callable

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator


class WaitingForInput:
    """``with producer.waiting_for_input(): batch = next(iterator)``. Not reentrant."""

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
