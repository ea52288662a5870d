"""Records the metrics of writes through OpenTelemetry's API.

The user, the platform or ``opentelemetry-instrument`` sets the destination of the metrics in the
meter provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.datasource.monitoring.instruments import INSTRUMENTS, InstrumentKind
from spark_kafka_sink.datasource.monitoring.library_needed import library_needed
from spark_kafka_sink.datasource.monitoring.measurements import MetricValue

try:
    from opentelemetry import metrics as otel
except ImportError as error:
    raise library_needed(error) from None

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider


class OpenTelemetryMetrics:
    """Records all metrics of writes as instruments of ``meter_provider``, by default the meter
    provider of the process. Give this object to a :class:`KprodListener`. Without an OpenTelemetry
    SDK, the instruments do nothing.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        provider = meter_provider or otel.get_meter_provider()
        meter = provider.get_meter("spark_kafka_sink", __version__)
        self._counters = {
            one.name: meter.create_counter(one.name, one.unit, one.description)
            for one in INSTRUMENTS
            if one.kind is InstrumentKind.COUNTER
        }
        self._gauges = {
            one.name: meter.create_gauge(one.name, one.unit, one.description)
            for one in INSTRUMENTS
            if one.kind is InstrumentKind.GAUGE
        }
        self._histograms = {
            one.name: meter.create_histogram(
                one.name,
                one.unit,
                one.description,
                explicit_bucket_boundaries_advisory=one.buckets,
            )
            for one in INSTRUMENTS
            if one.kind is InstrumentKind.HISTOGRAM
        }

    def record(self, measurement: MetricValue) -> None:
        """Records a value: adds it to a counter, sets a gauge, or counts it in a histogram."""
        one = measurement.instrument
        attributes = dict(zip(one.labels, measurement.labels, strict=True))
        if one.kind is InstrumentKind.COUNTER:
            self._counters[one.name].add(measurement.value, attributes)
        elif one.kind is InstrumentKind.GAUGE:
            self._gauges[one.name].set(measurement.value, attributes)
        else:
            for _ in range(measurement.count):
                self._histograms[one.name].record(measurement.value, attributes)
