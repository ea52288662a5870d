"""Few leaders with three real nodes: connections counted at the sockets, a leader that dies."""

from __future__ import annotations

import uuid
from collections import Counter
from dataclasses import replace

import psutil
import pyarrow as pa
import pytest

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.producer_cache import CachedProducers, ProducerCache
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_task import WriteTask
from spark_kafka_sink.records.column_plan import ColumnPlan

TASKS, ROWS = 18, 4_000

pytestmark = pytest.mark.timeout(300)


def connections(kafka3) -> Counter[int]:
    """The sockets of this process that are connected to each node."""
    ports = {int(one.rpartition(":")[2]): n for n, one in enumerate(kafka3.bootstrap.split(","), 1)}
    found = psutil.Process().net_connections("tcp")
    return Counter(ports[one.raddr.port] for one in found if one.raddr and one.raddr.port in ports)


def rows(first: int, count: int = ROWS) -> pa.RecordBatch:
    return pa.record_batch([pa.array([f"{first + n:0100}" for n in range(count)])], ["value"])


@pytest.fixture
def run(kafka3, request):
    """Runs tasks one after the other; each keeps its producer, as workers of their own would."""
    topic = kafka3.unique_topic(f"few-{uuid.uuid4().hex[:6]}", partitions=36)
    given = {"kafka.bootstrap.servers": kafka3.bootstrap, "topic": topic}
    with AdminClient(parse_sink_config(given).producer) as admin:
        # Spark's driver gives this to each task.
        cluster = admin.describe_topics((topic,), timeout_ms=60_000)

    def run_tasks(most, between=lambda: None):
        config = parse_sink_config(given).producer
        config = replace(config, max_leaders_per_task=most, batch_size=10_000)
        # No leader counts as slow on a slow machine: its tasks would take another one, too.
        config = replace(config, partitioner_availability_timeout_ms=600_000)
        reports = []
        for number in range(TASKS):
            cache = ProducerCache()
            request.addfinalizer(cache.close)
            first = number * ROWS

            def source(first=first):
                yield rows(first, ROWS // 2)
                between()
                yield rows(first + ROWS // 2, ROWS // 2)

            task = WriteTask(
                ColumnPlan(topic=topic, value_column=0),
                CachedProducers(cache, config, cluster),
                TaskIdentity(partition_id=number),
            )
            reports.append(task.run(source()))
        return reports

    run_tasks.topic = topic
    return run_tasks


@pytest.mark.parametrize("most", [None, 1])
def test_a_task_is_connected_to_its_leader_only(kafka3, run, consume, most):
    before = connections(kafka3)
    reports = run(most)
    opened = connections(kafka3)
    opened.subtract(before)
    assert sum(one.produced.connections for one in reports) == sum(opened.values())
    if most is None:
        assert sum(opened.values()) == 3 * TASKS
    else:
        # The leader also gives the producer's id.
        assert sum(opened.values()) == TASKS
        leaders = Counter(len(one.produced.nodes) for one in reports)
        assert leaders == {1: TASKS}
    assert sorted(map(int, consume(run.topic).values)) == list(range(TASKS * ROWS))


def test_a_leader_that_dies_while_tasks_write_loses_nothing(kafka3, run, consume):
    stopped = []

    def stop_once():
        if not stopped:
            stopped.append(2)
            kafka3.node(2).kill()

    run(1, stop_once)
    assert stopped
    kafka3.node(2).start()
    kafka3.wait_until_in_sync()
    assert sorted(map(int, consume(run.topic).values)) == list(range(TASKS * ROWS))
