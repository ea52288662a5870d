"""Computes rates, averages, maxima and totals of a series of measurements.

:class:`Sensor` corresponds to Java's ``Sensor`` with its ``Rate``, ``Avg``, ``Max`` and
``CumulativeSum`` over one ``SampledStat``. The caller passes the time, and holds a lock.
``producer_metrics.py`` has the names of the metrics.
"""

from __future__ import annotations

from dataclasses import dataclass

_NAN = float("nan")


@dataclass(frozen=True, slots=True)
class Windows:
    """The length and the number of the windows for rates and averages. ``window_ms`` is
    metrics.sample.window.ms, and ``samples`` is metrics.num.samples.
    """

    window_ms: int = 30_000
    samples: int = 2

    def __post_init__(self) -> None:
        # Java takes a window of 0, and then divides by it.
        object.__setattr__(self, "window_ms", max(1, self.window_ms))

    @property
    def span_ms(self) -> int:
        return self.window_ms * self.samples


class _Sample:
    """The count, sum and maximum of the measurements in one window."""

    __slots__ = ("count", "last_ms", "maximum", "start_ms", "total")

    def __init__(self, now: int) -> None:
        self.reset(now)

    def reset(self, now: int) -> None:
        self.start_ms = self.last_ms = now
        self.count = 0
        self.total = 0.0
        self.maximum = _NAN


class Sensor:
    """A series of measurements, with statistics over the last ``samples * window_ms`` milliseconds
    (Java's Sensor and SampledStat). This time is divided into windows of ``window_ms`` each.

    Times are monotonic milliseconds. The caller holds a lock.
    """

    __slots__ = ("_current", "_samples", "_windows", "count", "total")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        # In Java each statistic has its own windows. Here all statistics share them, so that a
        # measurement is recorded with one call.
        self._samples: list[_Sample] = []
        self._current: _Sample | None = None
        #: The number of all measurements since this sensor was created, and the sum of their
        #: values.
        self.count = 0
        self.total = 0.0

    def record(self, value: float, now: int, count: int = 1, maximum: float | None = None) -> None:
        """Adds ``count`` measurements at once. ``value`` is the sum of the measurements, and
        ``maximum`` is their maximum. By default, adds the single measurement ``value``.
        """
        sample = self._current
        # The first measurement after the end of a window begins a new window.
        if sample is None or now - sample.start_ms >= self._windows.window_ms:
            sample = self._current = self._next_sample(now)
        if maximum is None:
            maximum = value
        if not sample.maximum >= maximum:  # also when it is NaN
            sample.maximum = maximum
        sample.count += count
        sample.total += value
        sample.last_ms = now
        self.count += count
        self.total += value

    def _next_sample(self, now: int) -> _Sample:
        # ``samples`` + 1 windows: only a part of the oldest window may lie within the time of the
        # statistics.
        if len(self._samples) <= self._windows.samples:
            sample = _Sample(now)
        else:
            sample = self._samples.pop(0)
            sample.reset(now)
        self._samples.append(sample)
        return sample

    def _purge(self, now: int) -> list[_Sample]:
        """Resets the windows that are too old, and returns all windows."""
        for sample in self._samples:
            if now - sample.last_ms >= self._windows.span_ms:
                sample.reset(now)
        return self._samples

    # ---- statistics --------------------------------------------------------------------------

    def average(self, now: int) -> float:
        """The average of the measurements in the last windows. NaN without measurements, as in
        Java.
        """
        samples = self._purge(now)
        count = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / count if count else _NAN

    def maximum(self, now: int) -> float:
        """The maximum of the measurements in the last windows. NaN without measurements, as in
        Java.
        """
        return max((s.maximum for s in self._purge(now) if s.count), default=_NAN)

    def rate(self, now: int) -> float:
        """The sum of the measurements in the last windows, per second. 0 without measurements."""
        return sum(sample.total for sample in self._purge(now)) / self._seconds(now)

    def event_rate(self, now: int) -> float:
        """The number of measurements in the last windows, per second. 0 without measurements."""
        return sum(sample.count for sample in self._purge(now)) / self._seconds(now)

    def _seconds(self, now: int) -> float:
        """The time in seconds by which a sum is divided to get a rate. Called after :meth:`_purge`.

        This is the time since the beginning of the oldest window. If fewer than ``samples - 1``
        whole windows have passed since then, ``window_ms`` is added for each missing window (Java's
        Rate.windowSize).
        """
        # Without the missing windows, a burst in the first second would lead to a very high rate.
        window = self._windows.window_ms
        elapsed = now - min((sample.start_ms for sample in self._samples), default=now)
        missing = self._windows.samples - 1 - elapsed // window
        return max(elapsed + max(0, missing) * window, 1) / 1000
