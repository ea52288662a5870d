"""Metrics in Prometheus' client library.

Owns: :class:`PrometheusMetrics`. Never: an HTTP server: the user calls
``prometheus_client.start_http_server`` with an address and a port.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.datasource.monitoring.instruments import INSTRUMENTS, InstrumentKind
from spark_kafka_sink.datasource.monitoring.library_needed import library_needed
from spark_kafka_sink.datasource.monitoring.measurements import Measurement

try:
    from prometheus_client import REGISTRY, Counter, Gauge
except ImportError as error:
    raise library_needed(error) from None

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class PrometheusMetrics:
    """Keeps all metrics in ``registry``, by default the process's. Only one for each registry:
    prometheus_client raises ValueError for a second one.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        classes = {InstrumentKind.COUNTER: Counter, InstrumentKind.GAUGE: Gauge}
        self._metrics = {
            one.name: classes[one.kind](
                one.prometheus_name, one.description, one.labels, registry=registry
            )
            for one in INSTRUMENTS
        }

    def record(self, measurement: Measurement) -> None:
        """Adds the value of a counter, sets that of a gauge."""
        series = self._metrics[measurement.instrument.name].labels(*measurement.labels)
        if isinstance(series, Counter):
            series.inc(measurement.value)
        else:
            series.set(measurement.value)
