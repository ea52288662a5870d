"""Reads the values of metrics from a report or from Spark's progress, and passes them to metrics
libraries.

- :func:`measure` finds the values by the table of metrics (``instruments.py``).
- :class:`Metrics` passes the values to metrics libraries, and limits the number of a label's
  values.

A label's value never comes from a payload or an error's message. It is the name of a query or a
topic, an id, a broker's number, a member of a fixed set, or an error code.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from spark_kafka_sink.datasource.monitoring.instruments import (
    BY_NAME,
    FROM_THE_START,
    INSTRUMENTS,
    OTHER,
    Instrument,
    InstrumentKind,
    Label,
    Origin,
)

#: A document as ``json.loads`` gives it.
Document = Mapping[str, object]

#: The largest number of different values of a label. Further values become ``other``. Users choose
#: the names of queries, and the ids of replaced brokers add up.
MAX_LABEL_VALUES: Final = 100

#: The largest number of characters of a label's value. The value is in some hundred lines of the
#: output.
_LONGEST_VALUE: Final = 200
#: A value from here on is not a figure of this package, and is skipped.
_LARGEST: Final = 2**63

#: The largest count of a histogram's bucket: the requests of a broker in a day. A library records
#: the counted values one after the other.
_MOST_COUNTED: Final = 10_000_000

#: The label ``query`` of batch jobs.
NO_QUERY: Final = "batch"

_CODE = re.compile(r"KP\d{4}")


@dataclass(frozen=True, slots=True)
class MetricValue:
    """A value of a metric in the metric's unit. ``labels`` are the values of the metric's labels,
    in the order of the labels. ``count`` is for histograms: the number of measurements that have
    this value.
    """

    instrument: Instrument
    value: float
    labels: tuple[str, ...]
    count: int = 1


class MetricsLibrary(Protocol):
    """The interface of an object that passes metrics to a library, such as
    :class:`PrometheusMetrics`.
    """

    def record(self, measurement: MetricValue) -> None:
        """Adds the value to a counter, sets a gauge, or counts the value in a histogram. The first
        call for a time series creates the series, even if ``measurement.count`` is 0.
        """
        ...


def measure(document: Document, origin: Origin, query: str) -> Iterator[MetricValue]:
    """Yields the metric values in ``document``. ``origin`` says what the document is: a report,
    Spark's progress, or the figures of running tasks. ``query`` is the value of the label
    ``query``.

    A field is skipped if it is missing, null or not a number. So reports of later versions are read
    as far as possible.
    """
    for instrument in INSTRUMENTS:
        if instrument.origin is origin:
            for value, label, count in _values(document, instrument):
                labels = (query,) if instrument.label is None else (query, label)
                yield MetricValue(instrument, value * instrument.scale, labels, count)


#: A value, before ``scale``; its label; its count.
_Value = tuple[float, str, int]


def _values(document: Document, instrument: Instrument) -> Iterator[_Value]:
    whole, _, member = instrument.field.partition("[].")
    if member:
        found = _at(document, whole)
        for one in found if isinstance(found, list) else ():
            if isinstance(one, Mapping):
                counts, label = one.get(member), one.get(instrument.label_field)
                if instrument.kind is InstrumentKind.HISTOGRAM:
                    yield from _counted(counts, label, instrument.bounds)
                else:
                    yield from _value(counts, label)
        return
    value = _at(document, whole) if whole else 1
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from _value(one, name)
    elif instrument.label is None:
        yield from _value(value, "")
    else:
        yield from _value(value, _at(document, instrument.label_field))


def _at(document: Document, path: str) -> object:
    found: object = document
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _value(value: object, label: object) -> Iterator[_Value]:
    if not isinstance(value, int | float) or isinstance(value, bool) or label is None:
        return
    if 0 <= value < _LARGEST:  # a counter takes nothing less, and no figure of ours is
        yield value, str(label), 1


def _counted(counts: object, label: object, bounds: Sequence[float]) -> Iterator[_Value]:
    """Yields the value, the label and the count of each bucket that is not empty. The value is the
    upper bound of the bucket. The last bucket has no upper bound, so its value is twice the last
    bound.
    """
    if not isinstance(counts, list) or len(counts) != len(bounds) + 1 or label is None:
        return
    for bound, count in zip((*bounds, 2 * bounds[-1]), counts, strict=True):
        if isinstance(count, int) and 0 < count <= _MOST_COUNTED:
            yield bound, str(label), count


def source_lag(progress: Document) -> float | None:
    """The largest lag among the partitions of the query's sources, in offsets. None if no source
    reports a lag.
    """
    sources = progress.get("sources")
    found = [
        float(lag)
        for source in (sources if isinstance(sources, list) else ())
        if isinstance(lag := _at(source, "metrics.maxOffsetsBehindLatest"), str)
        and lag.replace(".", "", 1).isdecimal()
    ]
    return max(found, default=None)


def query_of(document: Document) -> str:
    """The value of the label ``query`` for a report: the query's name or id."""
    name = document.get("queryName") or document.get("queryId")
    return str(name) if name else NO_QUERY


@dataclass(slots=True)
class Metrics:
    """Passes the values of reports and of Spark's progress to the metrics libraries. Thread-safe if
    the libraries are thread-safe.

    A label can have at most 100 different values. All further values are replaced by ``other``.
    """

    libraries: tuple[MetricsLibrary, ...]
    _seen: dict[str, set[str]] = field(default_factory=dict)
    # The lock guards _seen.
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def report(self, document: Document, query: str) -> None:
        """Passes the values of one report (docs/reports.md) to every metrics library. ``document``
        is the report's JSON.
        """
        self._record(measure(document, Origin.REPORT, query))

    def progress(self, document: Document, query: str) -> None:
        """Passes the values of one progress event of a streaming query to every metrics library.
        ``document`` is the JSON of Spark's progress.
        """
        self._record(measure(document, Origin.PROGRESS, query))

    def running(self, document: Document, query: str) -> None:
        """Passes the figures of a query's running tasks to every metrics library. ``document`` has
        the figures as JSON.
        """
        self._record(measure(document, Origin.RUNNING, query))

    def event(self, name: str, value: float, query: str, *label: str) -> None:
        """Passes one value to every metrics library, for a metric that the listener measures
        itself. ``name`` is the metric's name. ``label`` is the value of the metric's second label,
        if the metric has two.
        """
        self._record([MetricValue(BY_NAME[name], value, (query, *label))])

    def begin(self, query: str) -> None:
        """Sets the query's counters and histograms to 0. Prometheus needs two values of a series to
        see an increase, so the first value must be 0.
        """
        for one in INSTRUMENTS:
            if one.kind is not InstrumentKind.GAUGE:
                known = (
                    ((),)
                    if one.label is None
                    else ((v,) for v in FROM_THE_START.get(one.label, ()))
                )
                self._record(MetricValue(one, 0, (query, *label), 0) for label in known)

    def _record(self, measurements: Iterable[MetricValue]) -> None:
        for one in measurements:
            with self._lock:
                labels = tuple(
                    self._bounded(name, value)
                    for name, value in zip(one.instrument.labels, one.labels, strict=True)
                )
            bounded = replace(one, labels=labels)
            for library in self.libraries:
                library.record(bounded)

    def _bounded(self, name: str, value: str) -> str:
        if name == Label.CODE.value and not _CODE.fullmatch(value):
            return OTHER
        # Half of a surrogate pair, which Java has in names and no encoding, would end every scrape.
        value = value.encode(errors="replace").decode()[:_LONGEST_VALUE]
        known = self._seen.setdefault(name, set())
        if value not in known and len(known) >= MAX_LABEL_VALUES:
            return OTHER
        known.add(value)
        return value
