"""The metrics of a producer, with the names and units of Kafka's Java producer.

:data:`METRICS` is the table of all metrics, from which docs/metrics.md is generated.
:class:`ProducerMetrics` records requests, waits, polls and blocking calls, and returns the values
of the metrics. Nothing is recorded for single rows.

Sizes are in bytes, metadata-age is in seconds, and rates are per second. The name of a metric shows
whether it is in milliseconds or nanoseconds. Metrics in nanoseconds are measured with a clock of
milliseconds. So a single value is inaccurate, but a sum of many values is accurate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.network.channel.selectable import NetworkReceive, NetworkSend
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.metrics.sensors import Sensor, Windows
from spark_kafka_sink.records.record_batch import HEADER_SIZE

_NS_PER_MS = 1_000_000

_Tag = TypeVar("_Tag", int, str)


@dataclass(frozen=True, slots=True)
class MetricName:
    """The name of a metric (Java's MetricName). ``tags`` are sorted pairs, such as ``(("client-id",
    "producer-1"),)``.
    """

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()
    description: str = field(default="", compare=False)

    def __str__(self) -> str:
        tags = ", ".join(f"{key}={value}" for key, value in self.tags)
        return f"{self.group}:{self.name} [{tags}]"


class Group(Enum):
    """The groups of metrics, as in Java: the producer, its topics, its nodes. Each metric has the
    tag client-id, and the metrics of a topic or node have a second tag.
    """

    PRODUCER = "producer-metrics"
    TOPIC = "producer-topic-metrics"
    NODE = "producer-node-metrics"

    @property
    def tag(self) -> str | None:
        """The name of the group's second tag. None if client-id is its only tag."""
        return {Group.TOPIC: "topic", Group.NODE: "node-id"}.get(self)


class Measurement(Enum):
    """A quantity that is recorded, such as a latency. Each metric of the quantity belongs to a
    :class:`Group`. In the group PRODUCER, one :class:`Sensor` stores the values. In the groups
    TOPIC and NODE, each topic or node has its own sensor.
    """

    BATCH_SIZE = "batch-size"
    QUEUE_TIME = "record-queue-time"
    COMPRESSION = "compression"
    RECORD_SIZE = "record-size"
    RECORDS = "records"
    BYTES = "bytes"
    RETRIES = "record-retries"
    ERRORS = "record-errors"
    SPLITS = "batch-splits"
    LATENCY = "request-latency"
    THROTTLE = "produce-throttle-time"
    POOL_WAIT = "bufferpool-wait-time"
    POOL_EXHAUSTED = "buffer-exhausted"
    FLUSH_TIME = "flush-time"
    METADATA_WAIT = "metadata-wait-time"
    TXN_INIT = "txn-init-time"
    TXN_BEGIN = "txn-begin-time"
    TXN_PREPARE = "txn-prepare-time"
    TXN_COMMIT = "txn-commit-time"
    TXN_ABORT = "txn-abort-time"
    CONNECTED = "connections-created"
    CLOSED = "connections-closed"
    AUTHENTICATED = "authentication"
    AUTHENTICATION_FAILED = "failed-authentication"
    REAUTHENTICATED = "reauthentication"
    REAUTHENTICATION_FAILED = "failed-reauthentication"
    OUTGOING = "bytes-sent"
    INCOMING = "bytes-received"
    SELECT = "select-wait-time"
    IO = "io-time"

    # Enum's is a Python function, and these are dictionary keys for each request.
    __hash__ = object.__hash__


class Statistic(Enum):
    """A statistic that a metric shows, such as the average of a measurement. The value of each
    member is its description in docs/metrics.md.
    """

    RATE = "sum per second"
    EVENT_RATE = "count per second"
    TOTAL = "sum since the producer was created"
    EVENT_TOTAL = "count since the producer was created"
    AVG = "average over the windows"
    MAX = "maximum over the windows"
    AVG_NS = "average over the windows, in nanoseconds"
    TOTAL_NS = "sum since the producer was created, in nanoseconds"
    RATIO = "fraction of the windows' time"
    GAUGE = "current value"


class Gauge(Enum):
    """A metric that is not recorded. Its value is read when :meth:`ProducerMetrics.snapshot` is
    called.
    """

    REQUESTS_IN_FLIGHT = "requests-in-flight"
    METADATA_AGE = "metadata-age"
    BUFFER_TOTAL = "buffer-total-bytes"
    BUFFER_AVAILABLE = "buffer-available-bytes"
    WAITING_THREADS = "waiting-threads"
    CONNECTION_COUNT = "connection-count"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: a row of the table :data:`METRICS`. The value of the metric is the value of the
    gauge ``source``, or a statistic of the measurement ``source``.
    """

    name: str
    group: Group
    source: Measurement | Gauge
    statistic: Statistic
    description: str
    #: Another measurement. Its value is added to the value of ``source``.
    plus: Measurement | None = None


def _rated(name: str, group: Group, measurement: Measurement, what: str) -> tuple[Metric, ...]:
    """Two metrics of a measurement whose values are added up: ``<name>-rate`` and
    ``<name>-total``. ``what`` is the beginning of their descriptions.
    """
    return (
        Metric(f"{name}-rate", group, measurement, Statistic.RATE, f"{what}, per second."),
        Metric(f"{name}-total", group, measurement, Statistic.TOTAL, f"{what}, in all."),
    )


def _counted(name: str, group: Group, measurement: Measurement, what: str) -> tuple[Metric, ...]:
    """Two metrics of a measurement whose events are counted: ``<name>-rate`` and
    ``<name>-total``.
    """
    return (
        Metric(f"{name}-rate", group, measurement, Statistic.EVENT_RATE, f"{what}, per second."),
        Metric(f"{name}-total", group, measurement, Statistic.EVENT_TOTAL, f"{what}, in all."),
    )


def _spread(name: str, group: Group, measurement: Measurement, what: str) -> tuple[Metric, ...]:
    """Two metrics of a measurement: ``<name>-avg`` and ``<name>-max``."""
    return (
        Metric(f"{name}-avg", group, measurement, Statistic.AVG, f"{what}, on average."),
        Metric(f"{name}-max", group, measurement, Statistic.MAX, f"{what}, at most."),
    )


def _gauge(gauge: Gauge, what: str) -> Metric:
    return Metric(gauge.value, Group.PRODUCER, gauge, Statistic.GAUGE, what)


def _time(name: str, measurement: Measurement, what: str) -> Metric:
    return Metric(
        name, Group.PRODUCER, measurement, Statistic.TOTAL_NS, f"Nanoseconds {what}, in all."
    )


def _traffic(group: Group) -> tuple[Metric, ...]:
    """The metrics of sent and received bytes and requests, for the whole producer or for each
    broker, according to ``group``.
    """
    return (
        *_rated("outgoing-byte", group, Measurement.OUTGOING, "Bytes sent, of all requests"),
        *_counted("request", group, Measurement.OUTGOING, "Requests sent, of all kinds"),
        *_spread("request-size", group, Measurement.OUTGOING, "Bytes of a request"),
        *_rated("incoming-byte", group, Measurement.INCOMING, "Bytes received"),
        *_counted("response", group, Measurement.INCOMING, "Responses received"),
        *_spread(
            "request-latency",
            group,
            Measurement.LATENCY,
            "Milliseconds from Produce request to response",
        ),
    )


_P, _T, _M = Group.PRODUCER, Group.TOPIC, Measurement

#: Every metric, as docs/metrics.md shows them.
METRICS: tuple[Metric, ...] = (
    *_rated("record-send", _P, _M.RECORDS, "Records sent, retries included"),
    *_rated("byte", _P, _M.BATCH_SIZE, "Bytes of the record batches that were sent (Java has it"
            " by topic only)"),
    *_spread("batch-size", _P, _M.BATCH_SIZE, "Bytes of a record batch as sent"),
    Metric("compression-rate-avg", _P, _M.COMPRESSION, Statistic.AVG,
           "Bytes of a record batch as sent, divided by its bytes before compression, on average."),
    Metric("records-per-request-avg", _P, _M.RECORDS, Statistic.AVG,
           "Records of a Produce request, on average."),
    Metric("record-size-avg", _P, _M.RECORD_SIZE, Statistic.AVG,
           "Encoded bytes of a record before compression, on average over all records. (Java"
           " averages the largest record of each batch.)"),
    Metric("record-size-max", _P, _M.RECORD_SIZE, Statistic.MAX,
           "Bytes of the largest record and its batch's header, before compression. As in Java,"
           " this is an estimate, and usually too large."),
    *_spread("record-queue-time", _P, _M.QUEUE_TIME,
             "Milliseconds from a batch's first record until the batch was sent"),
    *_rated("record-retry", _P, _M.RETRIES, "Records that were retried"),
    *_rated("record-error", _P, _M.ERRORS,
            "Records that failed permanently, including those of a failed producer or transaction"),
    *_counted("batch-split", _P, _M.SPLITS, "Batches that were split, because a broker"
              " rejected them as too large"),
    *_spread("produce-throttle-time", _P, _M.THROTTLE,
             "Milliseconds that a broker's quota delayed a Produce request"),
    _gauge(Gauge.REQUESTS_IN_FLIGHT, "Requests in flight, of all kinds."),
    _gauge(Gauge.METADATA_AGE, "Seconds since the last full metadata response."),
    _gauge(Gauge.BUFFER_TOTAL, "buffer.memory, in bytes."),
    _gauge(Gauge.BUFFER_AVAILABLE, "Unused bytes of buffer.memory."),
    _gauge(Gauge.WAITING_THREADS, "Threads that wait for memory."),
    Metric("bufferpool-wait-ratio", _P, _M.POOL_WAIT, Statistic.RATIO,
           "Share of the time in which writers waited for memory."),
    _time("bufferpool-wait-time-ns-total", _M.POOL_WAIT, "that writers waited for memory"),
    *_counted("buffer-exhausted", _P, _M.POOL_EXHAUSTED,
              "Waits for memory that timed out"),
    _time("flush-time-ns-total", _M.FLUSH_TIME, "spent in flush"),
    _time("metadata-wait-time-ns-total", _M.METADATA_WAIT, "that writers waited for metadata"),
    _time("txn-init-time-ns-total", _M.TXN_INIT, "spent in init_transactions"),
    _time("txn-begin-time-ns-total", _M.TXN_BEGIN, "spent in begin_transaction"),
    _time("txn-prepare-time-ns-total", _M.TXN_PREPARE, "spent in prepare"),
    _time("txn-commit-time-ns-total", _M.TXN_COMMIT, "spent in commit_transaction"),
    _time("txn-abort-time-ns-total", _M.TXN_ABORT, "spent in abort_transaction"),
    _gauge(Gauge.CONNECTION_COUNT, "Connections that are open or being opened."),
    *_counted("connection-creation", _P, _M.CONNECTED, "Connections that were made"),
    *_counted("connection-close", _P, _M.CLOSED, "Connections that were closed"),
    *_counted("successful-authentication", _P, _M.AUTHENTICATED,
              "Connections with a successful TLS or SASL authentication"),
    Metric("successful-authentication-no-reauth-total", _P, _M.AUTHENTICATED,
           Statistic.EVENT_TOTAL,
           "The same number as successful-authentication-total."),
    *_counted("failed-authentication", _P, _M.AUTHENTICATION_FAILED,
              "Connections with a failed authentication of the client or of the broker"),
    *_counted("successful-reauthentication", _P, _M.REAUTHENTICATED,
              "Successful re-authentications"),
    *_counted("failed-reauthentication", _P, _M.REAUTHENTICATION_FAILED,
              "Failed re-authentications"),
    *_spread("reauthentication-latency", _P, _M.REAUTHENTICATED,
             "Milliseconds of a re-authentication"),
    Metric("network-io-rate", _P, _M.OUTGOING, Statistic.EVENT_RATE,
           "Requests sent and responses received, per second.", plus=_M.INCOMING),
    Metric("network-io-total", _P, _M.OUTGOING, Statistic.EVENT_TOTAL,
           "Requests sent and responses received, in all.", plus=_M.INCOMING),
    *_traffic(_P),
    *_counted("select", _P, _M.SELECT, "Polls of the network"),
    Metric("io-wait-time-ns-avg", _P, _M.SELECT, Statistic.AVG_NS,
           "Nanoseconds that a poll waited for the network, on average."),
    _time("io-wait-time-ns-total", _M.SELECT, "that polls waited for the network"),
    Metric("io-wait-ratio", _P, _M.SELECT, Statistic.RATIO,
           "Share of the time in which the network thread waited. If the share is near 0, this"
           " thread is the bottleneck."),
    Metric("io-time-ns-avg", _P, _M.IO, Statistic.AVG_NS,
           "Nanoseconds that a poll spent on reads and writes, on average."),
    _time("io-time-ns-total", _M.IO, "that polls spent on reads and writes"),
    Metric("io-ratio", _P, _M.IO, Statistic.RATIO,
           "Share of the time in which the network thread read and wrote."),
    *_rated("record-send", _T, _M.RECORDS, "Records sent"),
    *_rated("byte", _T, _M.BYTES, "Bytes of the record batches that were sent"),
    Metric("compression-rate", _T, _M.COMPRESSION, Statistic.AVG,
           "Bytes of a record batch as sent, divided by its bytes before compression, on average."),
    *_rated("record-retry", _T, _M.RETRIES, "Records that were retried"),
    *_rated("record-error", _T, _M.ERRORS, "Records that failed permanently"),
    *_traffic(Group.NODE),
)  # fmt: skip

#: The maximum number of topics with sensors, and also the maximum number of nodes with sensors.
#: Values of further topics and nodes are only in the metrics of the whole producer. Without a
#: maximum, a column topic with many values could fill the memory with sensors.
MAX_TAGS = 1_000


def _measure(statistic: Statistic, sensor: Sensor, now: int) -> float:
    return _MEASURES[statistic](sensor, now)


_MEASURES: dict[Statistic, Callable[[Sensor, int], float]] = {
    Statistic.RATE: Sensor.rate,
    Statistic.EVENT_RATE: Sensor.event_rate,
    Statistic.TOTAL: lambda sensor, _: sensor.total,
    Statistic.EVENT_TOTAL: lambda sensor, _: float(sensor.count),
    Statistic.AVG: Sensor.average,
    Statistic.MAX: Sensor.maximum,
    Statistic.AVG_NS: lambda sensor, now: sensor.average(now) * _NS_PER_MS,
    Statistic.TOTAL_NS: lambda sensor, _: sensor.total * _NS_PER_MS,
    Statistic.RATIO: lambda sensor, now: sensor.rate(now) / 1000,
}


#: The sensors of the producer, of a topic, or of a node.
_Sensors = dict[Measurement, Sensor]


def _sensors(group: Group, windows: Windows) -> _Sensors:
    return {
        metric.source: Sensor(windows)
        for metric in METRICS
        if metric.group is group and isinstance(metric.source, Measurement)
    }


class _TopicSums:
    """The sums over the batches of one topic in one Produce request."""

    __slots__ = ("batches", "bytes", "ratio", "records")

    def __init__(self) -> None:
        self.records = self.bytes = self.batches = 0
        self.ratio = 0.0


class ProducerMetrics:
    """Collects the measurements of a producer, and returns the values of its metrics.

    One lock (``_lock``) guards the sensors. No other code is called while the lock is held. Gauges
    are read without the lock.
    """

    def __init__(
        self, clock: Clock, *, client_id: str = "", windows: Windows | None = None
    ) -> None:
        self._clock = clock
        self._client_id = client_id
        self._windows = Windows() if windows is None else windows
        self._lock = threading.Lock()
        self._producer = _sensors(Group.PRODUCER, self._windows)
        self._topics: dict[str, _Sensors] = {}
        self._nodes: dict[int, _Sensors] = {}
        self._gauges: dict[Gauge, Callable[[int], float]] = {}
        self._connections = 0
        # The latest time that a caller has passed. It is used for events without a time.
        self._latest_ms = clock.now_ms()
        self.gauge(Gauge.CONNECTION_COUNT, lambda _: self._connections)
        of = self._producer
        self._batch_size, self._queue_time = of[Measurement.BATCH_SIZE], of[Measurement.QUEUE_TIME]
        self._compression, self._record_size = (
            of[Measurement.COMPRESSION],
            of[Measurement.RECORD_SIZE],
        )
        self._records = of[Measurement.RECORDS]
        self._latency, self._throttle = of[Measurement.LATENCY], of[Measurement.THROTTLE]
        self._outgoing, self._incoming = of[Measurement.OUTGOING], of[Measurement.INCOMING]
        self._select, self._io = of[Measurement.SELECT], of[Measurement.IO]

    def gauge(self, gauge: Gauge, value: Callable[[int], float]) -> None:
        """Sets the function that returns the value of a gauge. ``value(now)`` is called at each
        snapshot, without a lock.
        """
        self._gauges[gauge] = value

    # ---- the sender ----------------------------------------------------------------------------

    def request_sent(self, batches: Sequence[ProducerBatch], now: int) -> None:
        """Adds the sizes and counts of ``batches`` to the metrics. One Produce request contains
        these batches (Java's updateProduceRequestMetrics).
        """
        topics: dict[str, _TopicSums] = {}
        records = size = raw = queued = longest = largest = largest_record = 0
        ratios = 0.0
        for batch in batches:
            topic = batch.tp.topic
            sums = topics[topic] if topic in topics else topics.setdefault(topic, _TopicSums())
            batch_size, batch_raw, count = batch.size_in_bytes, batch.raw_size, batch.record_count
            ratio = batch_size / (batch_raw + HEADER_SIZE)
            waited = now - batch.created_ms
            sums.records += count
            sums.bytes += batch_size
            sums.batches += 1
            sums.ratio += ratio
            records += count
            size += batch_size
            raw += batch_raw
            ratios += ratio
            queued += waited
            if waited > longest:
                longest = waited
            if batch_size > largest:
                largest = batch_size
            if batch.largest_record > largest_record:
                largest_record = batch.largest_record
        count = len(batches)
        with self._lock:
            self._latest_ms = now
            self._records.record(records, now)
            self._batch_size.record(size, now, count, largest)
            self._queue_time.record(queued, now, count, longest)
            self._compression.record(ratios, now, count)
            self._record_size.record(raw, now, records, largest_record)
            for topic, sums in topics.items():
                of = self._topics.get(topic) or self._new(self._topics, topic, Group.TOPIC)
                if of is not None:
                    of[Measurement.RECORDS].record(sums.records, now)
                    of[Measurement.BYTES].record(sums.bytes, now)
                    of[Measurement.COMPRESSION].record(sums.ratio, now, sums.batches)

    def request_answered(self, node_id: int, latency_ms: int, throttle_ms: int, now: int) -> None:
        """Adds the latency and the throttle time (ms) of a Produce response to the metrics."""
        with self._lock:
            self._latest_ms = now
            self._latency.record(latency_ms, now)
            self._throttle.record(throttle_ms, now)
            self._of_node(node_id, Measurement.LATENCY, latency_ms, now)

    # The next three methods get no time. They use the latest time that a caller has passed, which
    # is of the same iteration of the sender.

    def records_retried(self, topic: str, records: int) -> None:
        """Counts a retry of a batch with ``records`` records."""
        self._count_records(Measurement.RETRIES, topic, records)

    def records_failed(self, topic: str, records: int) -> None:
        """Counts the permanent failure of a batch with ``records`` records."""
        self._count_records(Measurement.ERRORS, topic, records)

    def batch_split(self) -> None:
        """Counts a batch that was split because a broker rejected it as too large."""
        with self._lock:
            self._producer[Measurement.SPLITS].record(1, self._latest_ms)

    def _count_records(self, measurement: Measurement, topic: str, records: int) -> None:
        with self._lock:
            now = self._latest_ms
            self._producer[measurement].record(records, now)
            of = self._topics.get(topic) or self._new(self._topics, topic, Group.TOPIC)
            if of is not None:
                of[measurement].record(records, now)

    # ---- other callers -------------------------------------------------------------------------

    def record(self, measurement: Measurement, value: float, now: int) -> None:
        """Adds one value of a measurement of the whole producer to the metrics, such as a wait in
        ms.
        """
        with self._lock:
            self._producer[measurement].record(value, now)

    def buffer_waited(self, waited_ms: int, now: int, *, exhausted: bool) -> None:
        """Counts one wait of a writer for memory. ``waited_ms`` is its duration. ``exhausted`` is
        True if the wait timed out.
        """
        with self._lock:
            self._producer[Measurement.POOL_WAIT].record(waited_ms, now)
            if exhausted:
                self._producer[Measurement.POOL_EXHAUSTED].record(1, now)

    def polled(
        self,
        sends: Sequence[NetworkSend],
        receives: Iterable[NetworkReceive],
        connected: Iterable[int],
        connections: int,
        waited_ms: int,
        io_ms: int,
        now: int,
    ) -> None:
        """Adds one poll of the selector to the metrics.

        * ``sends``, ``receives``: the completed requests and responses.
        * ``connected``: the ids of the nodes whose connection was made in this poll.
        * ``connections``: the number of connections after the poll.
        * ``waited_ms``, ``io_ms``: the time that the selector waited, and the time that it read and
          wrote.
        """
        with self._lock:
            self._latest_ms = now
            self._select.record(waited_ms, now)
            self._io.record(io_ms, now)
            for send in sends:
                self._outgoing.record(send.size, now)
                self._of_node(send.destination, Measurement.OUTGOING, send.size, now)
            for receive in receives:
                size = len(receive.payload) + 4
                self._incoming.record(size, now)
                self._of_node(receive.source, Measurement.INCOMING, size, now)
            for _ in connected:
                self._producer[Measurement.CONNECTED].record(1, now)
            self._connections = connections

    def authenticated(self, now: int, *, renewed_in_ms: int | None) -> None:
        """Counts a successful authentication of a connection. ``renewed_in_ms`` is the duration of
        a re-authentication (KIP-368). It is None for the first authentication of the connection.
        """
        if renewed_in_ms is None:
            self.record(Measurement.AUTHENTICATED, 1, now)
        else:
            self.record(Measurement.REAUTHENTICATED, renewed_in_ms, now)

    def authentication_failed(self, now: int, *, renewal: bool) -> None:
        """Counts a failed authentication. ``renewal`` is True for a re-authentication (KIP-368)."""
        failed = (
            Measurement.REAUTHENTICATION_FAILED if renewal else Measurement.AUTHENTICATION_FAILED
        )
        self.record(failed, 1, now)

    def connection_closed(self, connections: int, now: int) -> None:
        """Counts a closed connection. ``connections`` is the number of connections left."""
        with self._lock:
            self._producer[Measurement.CLOSED].record(1, now)
            self._connections = connections

    def _of_node(self, node_id: int, measurement: Measurement, value: float, now: int) -> None:
        of = self._nodes.get(node_id) or self._new(self._nodes, node_id, Group.NODE)
        if of is not None:
            of[measurement].record(value, now)

    def _new(self, known: dict[_Tag, _Sensors], tag: _Tag, group: Group) -> _Sensors | None:
        """Creates the sensors of a topic or node. Returns None if the maximum number of topics or
        of nodes (MAX_TAGS) is reached.
        """
        if len(known) >= MAX_TAGS:
            return None
        found = known[tag] = _sensors(group, self._windows)
        return found

    # ---- reading -------------------------------------------------------------------------------

    def total(self, measurement: Measurement) -> float:
        """The sum of all recorded values of a measurement since the producer was created."""
        return self._producer[measurement].total

    def count(self, measurement: Measurement) -> int:
        """The number of recorded values of a measurement since the producer was created."""
        return self._producer[measurement].count

    def snapshot(self) -> Mapping[MetricName, float]:
        """The current value of every metric. A metric without samples is NaN, like in Java. Any
        thread may call this method.
        """
        now = self._clock.now_ms()
        client = ("client-id", self._client_id)
        gauges = {gauge: float(value(now)) for gauge, value in self._gauges.items()}
        found: dict[MetricName, float] = {}
        with self._lock:
            for metric in METRICS:
                source, tag = metric.source, metric.group.tag
                if isinstance(source, Gauge):
                    if source in gauges:
                        found[_name(metric, client)] = gauges[source]
                    continue
                if tag is None:
                    value = _measure(metric.statistic, self._producer[source], now)
                    if metric.plus is not None:
                        value += _measure(metric.statistic, self._producer[metric.plus], now)
                    found[_name(metric, client)] = value
                    continue
                for tagged, sensors in self._tagged(metric.group):
                    name = _name(metric, client, (tag, tagged))
                    found[name] = _measure(metric.statistic, sensors[source], now)
        return found

    def _tagged(self, group: Group) -> Iterable[tuple[str, _Sensors]]:
        if group is Group.TOPIC:
            return self._topics.items()
        # As Java's: a bootstrap server's is "node--1".
        return ((f"node-{node_id}", sensors) for node_id, sensors in self._nodes.items())


def _name(metric: Metric, *tags: tuple[str, str]) -> MetricName:
    return MetricName(metric.name, metric.group.value, tuple(sorted(tags)), metric.description)
