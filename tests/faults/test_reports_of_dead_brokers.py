"""Reports when brokers die: the dead one is named, not the one that waited for it."""

from __future__ import annotations

import json
import uuid

import pytest

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def save(spark, kafka3, tmp_path):
    """Writes rows; returns the report, and Spark's error as a text. ``kills`` is a node that is
    killed by the task, before its first row: the driver has seen the node, and on a slow machine
    the cluster might have noticed an earlier death when the task begins.
    """

    def save(topic, rows=1, kills=None, **options):
        frame = spark.range(rows).selectExpr("cast(id AS string) AS value").coalesce(1)
        if kills is not None:
            frame = frame.mapInArrow(killing(kills.pid), "value string")
        path = tmp_path / f"{uuid.uuid4().hex}.jsonl"
        writer = frame.write.format("kprod").option("kafka.bootstrap.servers", kafka3.bootstrap)
        options |= {"topic": topic, "reportPath": str(path)}
        try:
            writer.options(**options).save()
        except Exception as error:
            return json.loads(path.read_text()), str(error)
        return json.loads(path.read_text()), ""

    return save


def killing(pid):
    # Nested, so that it travels to the worker by value: workers don't know the tests.
    def kill_first(batches):
        import os
        import signal

        os.kill(pid, signal.SIGKILL)
        yield from batches

    return kill_first


def replicated(kafka3, replicas, **configs):
    from spark_kafka_sink.admin.admin_client import AdminClient
    from spark_kafka_sink.config.parsing import parse_producer_config
    from spark_kafka_sink.protocol.topic_requests import NewTopic

    name = f"dead-{uuid.uuid4().hex[:8]}"
    config = parse_producer_config({"bootstrap.servers": kafka3.bootstrap})
    with AdminClient(config) as admin:
        made = admin.create_topic(NewTopic(name, 1, replicas, configs))
    return name, made.topics[name][0]


def test_too_few_replicas_in_sync_name_the_setting(save, kafka3):
    topic, info = replicated(kafka3, 3, **{"min.insync.replicas": "3"})
    other = next(node for node in info.replicas if node != info.leader)
    kafka3.node(other).kill()
    told, shown = save(
        topic, **{"kafka.delivery.timeout.ms": "20000", "kafka.request.timeout.ms": "5000"}
    )
    assert told["error"]["code"], told
    assert "min.insync.replicas" in told["error"]["message"] + told["error"]["hint"]
    assert "min.insync.replicas" in shown
    answers = {one["id"]: one["lastAnswer"] for one in told["brokers"]}
    assert "NOT_ENOUGH_REPLICAS" in answers[info.leader] or "min.insync" in answers[info.leader]
    assert (told["applicationName"], told["unfinished"]) == ("spark_kafka_sink tests", [0])
    assert told["elapsedMs"] > 0


def test_a_dead_leader_without_a_replica_is_named(save, kafka3):
    topic, info = replicated(kafka3, 1)
    node = kafka3.node(info.leader)
    port = node.port()
    warm, _ = save(topic)  # the worker knows the leader
    assert warm["outcome"] == "acknowledged"
    limits = {"kafka.delivery.timeout.ms": "20000", "kafka.request.timeout.ms": "5000"}
    told, shown = save(topic, rows=5, kills=node, **limits)
    assert told["error"]["code"], told
    assert f":{port}" in told["error"]["message"], told["error"]
    assert f":{port}" in shown
    (dead,) = (one for one in told["brokers"] if one["id"] == info.leader)
    assert "refused" in dead["lastAnswer"] or "closed" in dead["lastAnswer"]


def test_a_job_that_survives_names_the_dead_leader(save, kafka3):
    topic, info = replicated(kafka3, 3, **{"min.insync.replicas": "2"})
    warm, _ = save(topic)
    assert warm["outcome"] == "acknowledged"
    told, _ = save(topic, rows=5, kills=kafka3.node(info.leader))
    assert (told["outcome"], told["rows"]) == ("acknowledged", 5)
    answers = {one["id"]: one["lastAnswer"] for one in told["brokers"]}
    assert answers.get(info.leader), told["brokers"]
