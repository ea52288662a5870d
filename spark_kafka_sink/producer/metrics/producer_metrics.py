"""What a producer measures, under the names that Kafka's Java producer gives it.

Owns: the table of all metrics (:data:`METRICS`, of which docs/metrics.md is made), and
:class:`ProducerMetrics`, where they are recorded and read. Never: a cost per row, a decision, a
clock but to answer :meth:`ProducerMetrics.snapshot`. It stands beside a record's way: the sender
tells it of requests, the pool of waits, the selector of polls, the facade of blocking calls.

Units are Java's: milliseconds and nanoseconds as the names say, bytes, seconds for metadata-age;
rates are per second. Nanoseconds are counted on a clock of milliseconds: a single figure is coarse,
a sum is right, because what one measurement misses another one has too much.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.network.channel.selectable import NetworkReceive, NetworkSend
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.metrics.sensors import Sensor, Windows
from spark_kafka_sink.records.record_batch import HEADER_SIZE

_NS_PER_MS = 1_000_000

_Tag = TypeVar("_Tag", int, str)


@dataclass(frozen=True, slots=True)
class MetricName:
    """A metric of one producer (Java's MetricName). ``tags`` are sorted pairs."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()
    description: str = field(default="", compare=False)

    def __str__(self) -> str:
        tags = ", ".join(f"{key}={value}" for key, value in self.tags)
        return f"{self.group}:{self.name} [{tags}]"


class Group(Enum):
    """Java's groups; each has the tag client-id and one more."""

    PRODUCER = "producer-metrics"
    TOPIC = "producer-topic-metrics"
    NODE = "producer-node-metrics"

    @property
    def tag(self) -> str | None:
        """The tag besides client-id."""
        return {Group.TOPIC: "topic", Group.NODE: "node-id"}.get(self)


class Stream(Enum):
    """What is measured; each is one :class:`Sensor` for each producer, topic or node."""

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

    # Enum's own is a function of Python's, and these are looked up for each request.
    __hash__ = object.__hash__


class Statistic(Enum):
    """What is told of a stream; the value says how, for the docs."""

    RATE = "sum per second"
    EVENT_RATE = "count per second"
    TOTAL = "sum since the producer was made"
    EVENT_TOTAL = "count since the producer was made"
    AVG = "average over the windows"
    MAX = "maximum over the windows"
    AVG_NS = "average over the windows, in nanoseconds"
    TOTAL_NS = "sum since the producer was made, in nanoseconds"
    RATIO = "fraction of the windows' time"
    GAUGE = "as it is now"


class Gauge(Enum):
    """What is asked when a snapshot is taken."""

    REQUESTS_IN_FLIGHT = "requests-in-flight"
    METADATA_AGE = "metadata-age"
    BUFFER_TOTAL = "buffer-total-bytes"
    BUFFER_AVAILABLE = "buffer-available-bytes"
    WAITING_THREADS = "waiting-threads"
    CONNECTION_COUNT = "connection-count"


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the table."""

    name: str
    group: Group
    source: Stream | Gauge
    statistic: Statistic
    description: str
    #: Added to ``source``, another of the producer's streams.
    plus: Stream | None = None


def _rated(name: str, group: Group, stream: Stream, what: str) -> tuple[Metric, ...]:
    """A rate and the total beside it, of sums."""
    return (
        Metric(f"{name}-rate", group, stream, Statistic.RATE, f"{what}, per second."),
        Metric(f"{name}-total", group, stream, Statistic.TOTAL, f"{what}, in all."),
    )


def _counted(name: str, group: Group, stream: Stream, what: str) -> tuple[Metric, ...]:
    """The same, of how often it happened."""
    return (
        Metric(f"{name}-rate", group, stream, Statistic.EVENT_RATE, f"{what}, per second."),
        Metric(f"{name}-total", group, stream, Statistic.EVENT_TOTAL, f"{what}, in all."),
    )


def _spread(name: str, group: Group, stream: Stream, what: str) -> tuple[Metric, ...]:
    """Average and maximum."""
    return (
        Metric(f"{name}-avg", group, stream, Statistic.AVG, f"{what}, on average."),
        Metric(f"{name}-max", group, stream, Statistic.MAX, f"{what}, at most."),
    )


def _gauge(gauge: Gauge, what: str) -> Metric:
    return Metric(gauge.value, Group.PRODUCER, gauge, Statistic.GAUGE, what)


def _time(name: str, stream: Stream, what: str) -> Metric:
    return Metric(name, Group.PRODUCER, stream, Statistic.TOTAL_NS, f"Nanoseconds {what}, in all.")


def _traffic(group: Group) -> tuple[Metric, ...]:
    """What went over the wire, in all or to one broker."""
    return (
        *_rated("outgoing-byte", group, Stream.OUTGOING, "Bytes sent, of all requests"),
        *_counted("request", group, Stream.OUTGOING, "Requests sent, of all kinds"),
        *_spread("request-size", group, Stream.OUTGOING, "Bytes of a request"),
        *_rated("incoming-byte", group, Stream.INCOMING, "Bytes received"),
        *_counted("response", group, Stream.INCOMING, "Answers received"),
        *_spread("request-latency", group, Stream.LATENCY, "Milliseconds from Produce to answer"),
    )


_P, _T = Group.PRODUCER, Group.TOPIC

#: Every metric, as docs/metrics.md shows them.
METRICS: tuple[Metric, ...] = (
    *_rated("record-send", _P, Stream.RECORDS, "Records sent; again, when they are sent again"),
    *_rated("byte", _P, Stream.BATCH_SIZE, "Bytes of the record batches that were sent (Java has it"
            " by topic only)"),
    *_spread("batch-size", _P, Stream.BATCH_SIZE, "Bytes of a record batch as sent"),
    Metric("compression-rate-avg", _P, Stream.COMPRESSION, Statistic.AVG,
           "Bytes of a record batch as sent, by its bytes before compression, on average."),
    Metric("records-per-request-avg", _P, Stream.RECORDS, Statistic.AVG,
           "Records of a Produce request, on average."),
    Metric("record-size-avg", _P, Stream.RECORD_SIZE, Statistic.AVG,
           "Encoded bytes of a record before compression, on average over all records. (Java"
           " averages the largest record of each batch.)"),
    Metric("record-size-max", _P, Stream.RECORD_SIZE, Statistic.MAX,
           "Bytes of the largest record as a batch of its own, before compression, estimated"
           " upwards as Java does."),
    *_spread("record-queue-time", _P, Stream.QUEUE_TIME,
             "Milliseconds from a batch's first record until it was sent"),
    *_rated("record-retry", _P, Stream.RETRIES, "Records that went back to be sent again"),
    *_rated("record-error", _P, Stream.ERRORS,
            "Records that failed for good, those dropped with a failed producer or transaction"
            " included"),
    *_counted("batch-split", _P, Stream.SPLITS, "Batches that a broker refused as too large and"
              " that went on in pieces"),
    *_spread("produce-throttle-time", _P, Stream.THROTTLE,
             "Milliseconds that a broker's quota asked to wait, with each answer to Produce"),
    _gauge(Gauge.REQUESTS_IN_FLIGHT, "Requests without an answer yet, of all kinds."),
    _gauge(Gauge.METADATA_AGE, "Seconds since the last full metadata answer."),
    _gauge(Gauge.BUFFER_TOTAL, "buffer.memory, in bytes."),
    _gauge(Gauge.BUFFER_AVAILABLE, "Bytes of it that nobody uses."),
    _gauge(Gauge.WAITING_THREADS, "Threads that wait for memory."),
    Metric("bufferpool-wait-ratio", _P, Stream.POOL_WAIT, Statistic.RATIO,
           "Part of the time that writers waited for memory."),
    _time("bufferpool-wait-time-ns-total", Stream.POOL_WAIT, "that writers waited for memory"),
    *_counted("buffer-exhausted", _P, Stream.POOL_EXHAUSTED,
              "Waits for memory that ended without it"),
    _time("flush-time-ns-total", Stream.FLUSH_TIME, "spent in flush"),
    _time("metadata-wait-time-ns-total", Stream.METADATA_WAIT, "that writers waited for metadata"),
    _time("txn-init-time-ns-total", Stream.TXN_INIT, "spent in init_transactions"),
    _time("txn-begin-time-ns-total", Stream.TXN_BEGIN, "spent in begin_transaction"),
    _time("txn-prepare-time-ns-total", Stream.TXN_PREPARE, "spent in prepare"),
    _time("txn-commit-time-ns-total", Stream.TXN_COMMIT, "spent in commit_transaction"),
    _time("txn-abort-time-ns-total", Stream.TXN_ABORT, "spent in abort_transaction"),
    _gauge(Gauge.CONNECTION_COUNT, "Connections that are open or being opened."),
    *_counted("connection-creation", _P, Stream.CONNECTED, "Connections that were made"),
    *_counted("connection-close", _P, Stream.CLOSED, "Connections that ended"),
    *_counted("successful-authentication", _P, Stream.AUTHENTICATED,
              "Connections that got through TLS or SASL"),
    Metric("successful-authentication-no-reauth-total", _P, Stream.AUTHENTICATED,
           Statistic.EVENT_TOTAL,
           "The same (Java counts peers that can not renew a session; no client knows)."),
    *_counted("failed-authentication", _P, Stream.AUTHENTICATION_FAILED,
              "Connections that were refused for who we are, or who the broker is"),
    *_counted("successful-reauthentication", _P, Stream.REAUTHENTICATED,
              "Sessions that were renewed"),
    *_counted("failed-reauthentication", _P, Stream.REAUTHENTICATION_FAILED,
              "Sessions whose renewal was refused"),
    *_spread("reauthentication-latency", _P, Stream.REAUTHENTICATED,
             "Milliseconds that renewing a session took"),
    Metric("network-io-rate", _P, Stream.OUTGOING, Statistic.EVENT_RATE,
           "Requests sent and answers received, per second.", plus=Stream.INCOMING),
    Metric("network-io-total", _P, Stream.OUTGOING, Statistic.EVENT_TOTAL,
           "Requests sent and answers received, in all.", plus=Stream.INCOMING),
    *_traffic(_P),
    *_counted("select", _P, Stream.SELECT, "Polls of the network"),
    Metric("io-wait-time-ns-avg", _P, Stream.SELECT, Statistic.AVG_NS,
           "Nanoseconds that a poll waited for the network, on average."),
    _time("io-wait-time-ns-total", Stream.SELECT, "that polls waited for the network"),
    Metric("io-wait-ratio", _P, Stream.SELECT, Statistic.RATIO,
           "Part of the time that the network thread waited. Near 0: it is the bottleneck."),
    Metric("io-time-ns-avg", _P, Stream.IO, Statistic.AVG_NS,
           "Nanoseconds that a poll read and wrote, on average."),
    _time("io-time-ns-total", Stream.IO, "that polls read and wrote"),
    Metric("io-ratio", _P, Stream.IO, Statistic.RATIO,
           "Part of the time that the network thread read and wrote."),
    *_rated("record-send", _T, Stream.RECORDS, "Records sent"),
    *_rated("byte", _T, Stream.BYTES, "Bytes of the record batches that were sent"),
    Metric("compression-rate", _T, Stream.COMPRESSION, Statistic.AVG,
           "Bytes of a record batch as sent, by its bytes before compression, on average."),
    *_rated("record-retry", _T, Stream.RETRIES, "Records that went back to be sent again"),
    *_rated("record-error", _T, Stream.ERRORS, "Records that failed for good"),
    *_traffic(Group.NODE),
)  # fmt: skip

#: Topics and nodes that are measured by themselves; what more there is counts in the sums only. A
#: dynamic topic column could else fill the memory with sensors.
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


class _Sensors:
    """The streams of one group: of the producer, of one topic, or of one node."""

    __slots__ = ("by_stream",)

    def __init__(self, group: Group, windows: Windows) -> None:
        self.by_stream = {
            metric.source: Sensor(windows)
            for metric in METRICS
            if metric.group is group and isinstance(metric.source, Stream)
        }


class _TopicSums:
    """What one request carries of one topic."""

    __slots__ = ("batches", "bytes", "ratio", "records")

    def __init__(self) -> None:
        self.records = self.bytes = self.batches = 0
        self.ratio = 0.0


class ProducerMetrics:
    """All measurements of one producer; see the module docstring.

    One lock (``_lock``) guards the sensors. It is taken once for a request, an answer, a poll that
    brought something, a wait; nothing else is called under it. Gauges are asked without it.
    """

    def __init__(
        self, clock: Clock, *, client_id: str = "", windows: Windows | None = None
    ) -> None:
        self._clock = clock
        self._client_id = client_id
        self._windows = Windows() if windows is None else windows
        self._lock = threading.Lock()
        self._producer = _Sensors(Group.PRODUCER, self._windows)
        self._topics: dict[str, _Sensors] = {}
        self._nodes: dict[int, _Sensors] = {}
        self._gauges: dict[Gauge, Callable[[int], float]] = {}
        self._connections = 0
        # The latest time that anybody told: for what happens without one.
        self._latest_ms = clock.now_ms()
        self.gauge(Gauge.CONNECTION_COUNT, lambda _: self._connections)
        of = self._producer.by_stream
        self._batch_size, self._queue_time = of[Stream.BATCH_SIZE], of[Stream.QUEUE_TIME]
        self._compression, self._record_size = of[Stream.COMPRESSION], of[Stream.RECORD_SIZE]
        self._records = of[Stream.RECORDS]
        self._latency, self._throttle = of[Stream.LATENCY], of[Stream.THROTTLE]
        self._outgoing, self._incoming = of[Stream.OUTGOING], of[Stream.INCOMING]
        self._select, self._io = of[Stream.SELECT], of[Stream.IO]

    def gauge(self, gauge: Gauge, value: Callable[[int], float]) -> None:
        """``value(now)`` is asked for every snapshot, on its thread, without a lock."""
        self._gauges[gauge] = value

    # ---- the sender ----------------------------------------------------------------------------

    def request_sent(self, batches: Sequence[ProducerBatch], now: int) -> None:
        """A Produce request with ``batches`` leaves (Java's updateProduceRequestMetrics)."""
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
                if topic in self._topics or self._know(self._topics, topic, Group.TOPIC):
                    of = self._topics[topic].by_stream
                    of[Stream.RECORDS].record(sums.records, now)
                    of[Stream.BYTES].record(sums.bytes, now)
                    of[Stream.COMPRESSION].record(sums.ratio, now, sums.batches)

    def request_answered(self, node_id: int, latency_ms: int, throttle_ms: int, now: int) -> None:
        """An answer to a Produce request."""
        with self._lock:
            self._latest_ms = now
            self._latency.record(latency_ms, now)
            self._throttle.record(throttle_ms, now)
            if node_id in self._nodes or self._know(self._nodes, node_id, Group.NODE):
                self._nodes[node_id].by_stream[Stream.LATENCY].record(latency_ms, now)

    # Batches end and come back where no time is told: it is that of the round they end in.

    def records_retried(self, topic: str, records: int) -> None:
        """Records of a batch that goes back to its queue."""
        self._count_records(Stream.RETRIES, topic, records)

    def records_failed(self, topic: str, records: int) -> None:
        """Records of a batch that failed for good, or was dropped."""
        self._count_records(Stream.ERRORS, topic, records)

    def batch_split(self) -> None:
        """A batch was refused as too large, and goes on in pieces."""
        with self._lock:
            self._producer.by_stream[Stream.SPLITS].record(1, self._latest_ms)

    def _count_records(self, stream: Stream, topic: str, records: int) -> None:
        with self._lock:
            now = self._latest_ms
            self._producer.by_stream[stream].record(records, now)
            if topic in self._topics or self._know(self._topics, topic, Group.TOPIC):
                self._topics[topic].by_stream[stream].record(records, now)

    # ---- everybody else ------------------------------------------------------------------------

    def record(self, stream: Stream, value: float, now: int) -> None:
        """One measurement of the producer as a whole: a wait in milliseconds, or an event."""
        with self._lock:
            self._producer.by_stream[stream].record(value, now)

    def buffer_waited(self, waited_ms: int, now: int, *, exhausted: bool) -> None:
        """A writer waited for memory, and (``exhausted``) did not get it."""
        with self._lock:
            of = self._producer.by_stream
            of[Stream.POOL_WAIT].record(waited_ms, now)
            if exhausted:
                of[Stream.POOL_EXHAUSTED].record(1, now)

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
        """The selector's poll ended: what it brought, to whom connections were made in it, how many
        are there after it, how long it waited, and how long it read and wrote.
        """
        with self._lock:
            self._latest_ms = now
            self._select.record(waited_ms, now)
            self._io.record(io_ms, now)
            for send in sends:
                self._outgoing.record(send.size, now)
                node_id = send.destination
                if node_id in self._nodes or self._know(self._nodes, node_id, Group.NODE):
                    self._nodes[node_id].by_stream[Stream.OUTGOING].record(send.size, now)
            for receive in receives:
                size = len(receive.payload) + 4
                self._incoming.record(size, now)
                node_id = receive.source
                if node_id in self._nodes or self._know(self._nodes, node_id, Group.NODE):
                    self._nodes[node_id].by_stream[Stream.INCOMING].record(size, now)
            for _ in connected:
                self._producer.by_stream[Stream.CONNECTED].record(1, now)
            self._connections = connections

    def authenticated(self, now: int, *, renewed_in_ms: int | None) -> None:
        """A connection got through; None: for the first time."""
        if renewed_in_ms is None:
            self.record(Stream.AUTHENTICATED, 1, now)
        else:
            self.record(Stream.REAUTHENTICATED, renewed_in_ms, now)

    def authentication_failed(self, now: int, *, renewal: bool) -> None:
        """A connection was refused for who we are, or its peer for who that is."""
        failed = Stream.REAUTHENTICATION_FAILED if renewal else Stream.AUTHENTICATION_FAILED
        self.record(failed, 1, now)

    def connection_closed(self, connections: int, now: int) -> None:
        """A connection ended, whoever ended it; so many are left."""
        with self._lock:
            self._producer.by_stream[Stream.CLOSED].record(1, now)
            self._connections = connections

    def _know(self, known: dict[_Tag, _Sensors], tag: _Tag, group: Group) -> bool:
        """Begin to measure a topic or node by itself; False when there are too many."""
        if len(known) >= MAX_TAGS:
            return False
        known[tag] = _Sensors(group, self._windows)
        return True

    # ---- what was measured ---------------------------------------------------------------------

    def total(self, stream: Stream) -> float:
        """The sum of a stream since the producer was made."""
        return self._producer.by_stream[stream].total

    def count(self, stream: Stream) -> int:
        """How many measurements it had since then."""
        return self._producer.by_stream[stream].count

    def snapshot(self) -> Mapping[MetricName, float]:
        """Every metric as it is now; NaN where nothing was measured, as in Java. Any thread."""
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
                    of = self._producer.by_stream
                    value = _measure(metric.statistic, of[source], now)
                    if metric.plus is not None:
                        value += _measure(metric.statistic, of[metric.plus], now)
                    found[_name(metric, client)] = value
                    continue
                for tagged, sensors in self._tagged(metric.group):
                    name = _name(metric, client, (tag, tagged))
                    found[name] = _measure(metric.statistic, sensors.by_stream[source], now)
        return found

    def _tagged(self, group: Group) -> Iterable[tuple[str, _Sensors]]:
        if group is Group.TOPIC:
            return self._topics.items()
        # As Java's: a bootstrap server's is "node--1".
        return ((f"node-{node_id}", sensors) for node_id, sensors in self._nodes.items())


def _name(metric: Metric, *tags: tuple[str, str]) -> MetricName:
    return MetricName(metric.name, metric.group.value, tuple(sorted(tags)), metric.description)
