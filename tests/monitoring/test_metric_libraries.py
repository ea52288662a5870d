"""Prometheus' library and OpenTelemetry's: the same metrics, under the same names."""

import json
import re
from pathlib import Path

import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from spark_kafka_sink.datasource.monitoring.instruments import (
    BY_NAME,
    INSTRUMENTS,
    InstrumentKind,
    Origin,
)
from spark_kafka_sink.datasource.monitoring.measurements import Metrics, measure
from spark_kafka_sink.datasource.monitoring.open_telemetry_metrics import OpenTelemetryMetrics
from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics
from tests.monitoring.reports import failed, report
from tests.programs import run_python

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "spark_kafka_sink/datasource/report/write_report.schema.json"


def samples(registry):
    """(name, labels that are ours) to value."""
    return {
        (s.name, tuple(sorted((k, v) for k, v in s.labels.items() if not k.startswith("otel_")))): (
            s.value
        )
        for metric in registry.collect()
        for s in metric.samples
        if s.name.startswith("kprod") and not s.name.endswith("_created")
    }


def test_opentelemetrys_exported_names_equal_the_direct_ones():
    """One dashboard and one set of rules serve both. The oracle is OpenTelemetry's own exporter."""
    direct, theirs = CollectorRegistry(), CollectorRegistry()
    provider = MeterProvider([PrometheusMetricReader(registry=theirs)])
    metrics = Metrics((PrometheusMetrics(direct), OpenTelemetryMetrics(provider)))
    for one in INSTRUMENTS:
        metrics.event(one.name, 3, "q", *(["1"] if one.label else []))
    named = {re.sub(r"_(bucket|count|sum)$", "", name) for name, _ in samples(direct)}
    assert named == {one.prometheus_name for one in INSTRUMENTS}
    assert samples(theirs) == samples(direct)
    provider.shutdown()


def test_opentelemetry_gets_dotted_names_and_ucum_units():
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics = Metrics((OpenTelemetryMetrics(provider),))
    metrics.report(report(0), "orders")
    metrics.report(report(1), "orders")
    data = json.loads(reader.get_metrics_data().to_json())
    (scope,) = data["resource_metrics"][0]["scope_metrics"]
    assert scope["scope"]["name"] == "spark_kafka_sink"
    found = {metric["name"]: metric for metric in scope["metrics"]}
    assert found["kprod.sent"]["unit"] == "By"
    (point,) = found["kprod.sent"]["data"]["data_points"]
    assert point["value"] == 4_000
    assert point["attributes"] == {"query": "orders"}
    (point,) = found["kprod.queue.time.max"]["data"]["data_points"]
    assert point["value"] == 1.5
    provider.shutdown()


def test_every_field_of_a_report_that_a_metric_is_made_of_exists():
    fields = set(schema_paths(json.loads(SCHEMA.read_text())))
    wanted = {
        path
        for one in INSTRUMENTS
        if one.origin is Origin.REPORT
        for path in (one.field, label_path(one))
        if path
    }
    assert wanted - fields == set()


def label_path(one):
    inside, _, member = one.field.partition("[].")
    return f"{inside}[].{one.label_field}" if member else one.label_field


def schema_paths(schema, prefix=""):
    """Paths of fields in a JSON Schema, as instruments name them."""
    for name, one in schema.get("properties", {}).items():
        yield prefix + name
        for inner in (one, *one.get("anyOf", ())):
            yield from schema_paths(inner, f"{prefix}{name}.")
            yield from schema_paths(inner.get("items", {}), f"{prefix}{name}[].")


def test_names_follow_the_conventions():
    for one in INSTRUMENTS:
        assert one.name.startswith("kprod."), one
        assert not any(word in one.name for word in ("seconds", "bytes", "total", "ms")), one
        unit = one.unit.removesuffix("/s")
        assert unit in ("s", "By", "1") or unit[0] + unit[-1] == "{}", one
        assert one.prometheus_name.endswith("_total") is (one.kind is InstrumentKind.COUNTER), one
        is_ms = one.field.endswith(("Ms", "durationMs", "latencies", "waits"))
        assert (one.scale == 0.001) is is_ms, one
        assert (one.kind is InstrumentKind.HISTOGRAM) is bool(one.bounds), one
        assert list(one.bounds) == sorted(set(one.bounds)), one
    assert len(BY_NAME) == len(INSTRUMENTS) == len({one.prometheus_name for one in INSTRUMENTS})


def test_a_report_with_nothing_gives_nothing():
    names = {one.instrument.name for one in measure({}, Origin.REPORT, "q")}
    assert names == set()
    assert [one.labels for one in measure(failed("KP0501"), Origin.REPORT, "q")][:2] == [
        ("q", "failed"),
        ("q", "KP0501"),
    ]


@pytest.mark.parametrize(
    ("library", "module"),
    [("prometheus_client", "prometheus_metrics"), ("opentelemetry", "open_telemetry_metrics")],
)
def test_a_missing_library_is_named_with_what_to_install(library, module):
    code = (
        f"import sys; sys.modules[{library!r}] = None\n"
        f"try: import spark_kafka_sink.datasource.monitoring.{module}\n"
        "except ImportError as error: print(error)"
    )
    ran = run_python("-c", code)
    assert f"metrics need {library}" in ran.stdout
    assert "spark-kafka-sink[metrics]" in ran.stdout


def test_neither_a_task_nor_a_commit_loads_a_library_of_metrics():
    code = (
        "import sys, spark_kafka_sink\n"
        "import spark_kafka_sink.datasource.source, spark_kafka_sink.datasource.plan.write_plan\n"
        "import spark_kafka_sink.datasource.write.write_task\n"
        "import spark_kafka_sink.datasource.write.producer_cache\n"
        "print([m for m in sys.modules if 'prometheus' in m or 'opentelemetry' in m"
        " or 'monitoring' in m])"
    )
    ran = run_python("-c", code)
    assert ran.stdout.strip() == "[]"
