"""A failed batch's error code arrives as a metric under its query's name: on a real Kafka."""

from __future__ import annotations

import threading

import pytest
from prometheus_client import CollectorRegistry

from spark_kafka_sink import KprodListener, foreach_batch
from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics

LARGE = {"kafka.max.request.size": "1000"}
TERMINATED_S = 120.0


class AwaitedListener(KprodListener):
    """The caller may see the query's end before Spark calls the listener."""

    def __init__(self, registry, reports):
        super().__init__(PrometheusMetrics(registry), reports=reports)
        self.terminated = threading.Event()

    def onQueryTerminated(self, event):
        super().onQueryTerminated(event)
        self.terminated.set()


class Monitored:
    def __init__(self, path):
        self.path, self.registry = path, CollectorRegistry()
        self.listener = AwaitedListener(self.registry, path)

    def value(self, name, query, **labels):
        return self.registry.get_sample_value(name, {"query": query, **labels})


@pytest.fixture
def monitored(spark, tmp_path):
    world = Monitored(tmp_path / "report.jsonl")
    spark.streams.addListener(world.listener)
    yield world
    spark.streams.removeListener(world.listener)


def counted(world, query):
    with pytest.raises(Exception, match="KP0213"):
        query.awaitTermination()
    assert world.listener.terminated.wait(TERMINATED_S)
    return {
        "failures": world.value("kprod_failures_total", query.name, code="KP0213"),
        "query failures": world.value("kprod_query_failures_total", query.name, code="KP0213"),
        "aborted": world.value("kprod_writes_total", query.name, outcome="aborted"),
    }


ONCE = {"failures": 1, "query failures": 1, "aborted": 1}


def test_a_first_batch_that_fails_is_counted(source, stream, topic, monitored, reports):
    rows, add = source
    add(["v", "x" * 2000])
    query = stream(rows, topic, queryName="first", reportPath=str(monitored.path), **LARGE)
    assert counted(monitored, query) == ONCE
    (told,) = reports()
    of_query = (told["queryId"], told["queryName"], told["runId"], told["batchId"])
    assert of_query == (query.id, query.name, query.runId, 0)
    assert [one["partition"] for one in told["failedAttempts"]] == [0]


def test_a_foreach_batch_that_fails_is_counted(kafka, source, topic, monitored, tmp_path):
    rows, add = source
    add(["x" * 2000])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, **LARGE}
    write = foreach_batch(f"each-{topic}", reportPath=str(monitored.path), **options)
    writer = rows.writeStream.foreachBatch(write).queryName("each").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{tmp_path}/checkpoint").start()
    assert counted(monitored, query) == ONCE
