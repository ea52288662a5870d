"""Records the metrics of writes with Prometheus' client library.

The user starts the HTTP server, for example by ``prometheus_client.start_http_server``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.datasource.monitoring.instruments import (
    INSTRUMENTS,
    Instrument,
    InstrumentKind,
)
from spark_kafka_sink.datasource.monitoring.library_needed import library_needed
from spark_kafka_sink.datasource.monitoring.measurements import MetricValue

try:
    from prometheus_client import REGISTRY, Counter, Gauge, Histogram
except ImportError as error:
    raise library_needed(error) from None

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class PrometheusMetrics:
    """Keeps all metrics of writes in ``registry``. Give this object to a :class:`KprodListener`.
    The default is prometheus_client's registry of the process. A registry accepts only one
    PrometheusMetrics. For a second PrometheusMetrics, prometheus_client raises ValueError.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._metrics = {one.name: _metric(one, registry) for one in INSTRUMENTS}

    def record(self, measurement: MetricValue) -> None:
        """Records a value: adds it to a counter, sets a gauge, or counts it in a histogram."""
        series = self._metrics[measurement.instrument.name].labels(*measurement.labels)
        if isinstance(series, Counter):
            series.inc(measurement.value)
        elif isinstance(series, Gauge):
            series.set(measurement.value)
        else:
            for _ in range(measurement.count):
                series.observe(measurement.value)


def _metric(one: Instrument, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name, text, labels = one.prometheus_name, one.description, one.labels
    if one.kind is InstrumentKind.HISTOGRAM:
        return Histogram(name, text, labels, registry=registry, buckets=one.buckets)
    cls = Counter if one.kind is InstrumentKind.COUNTER else Gauge
    return cls(name, text, labels, registry=registry)
