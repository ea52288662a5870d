"""The rows of ``kprod check`` for topics of brokers that are down, or create topics: on a fake
cluster of three. What a real broker says of rights and configs is in ``test_check_topics.py``.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.topic_steps import OF_TOPIC, report_topic_step, topic_steps
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.simulation.scene import scene_of

TIMEOUT_MS = 5_000
CONFIGS = {
    "auto.create.topics.enable": "false",
    "max.message.bytes": "1048588",
    "compression.type": "producer",
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
}


def cluster_of_three(configs=None):
    """Its clients know all three brokers, since any of them may be stopped."""
    return scene_of(broker_configs=configs)


@pytest.fixture
def scene():
    return cluster_of_three(CONFIGS)


def config(topic="t", **options):
    """Names with ``__`` for a dot."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    given = {"kafka.bootstrap.servers": "broker:9092"} | named
    return parse_sink_config(given if topic is None else given | {"topic": topic})


def rows_of(scene, config):
    with scene.client() as client:
        steps = {step.name: step for step in topic_steps(client, config, TIMEOUT_MS)}
    for step in steps.values():
        assert step.state in (StepState.OK, StepState.SKIPPED) or (step.change and step.code), step
    return steps


def created(scene, topic, *, replicas, least):
    """The topic's first replica, which leads its only partition, and the others."""
    scene.cluster.create_topic(
        topic, 1, replication=replicas, configs={"min.insync.replicas": str(least)}
    )
    return scene.cluster.logs[TopicPartition(topic, 0)].replicas


def test_a_topic_that_lacks_nothing_is_green(scene):
    created(scene, "rows", replicas=3, least=2)
    steps = rows_of(scene, config("rows"))
    assert tuple(steps) == OF_TOPIC
    rights = steps.pop("rights")
    assert {step.state for step in steps.values()} == {StepState.OK}, steps
    assert steps["partitions"].said == "1, each with a leader"
    assert steps["replicas"].said == "3 in sync at least, min.insync.replicas=2"
    assert (rights.state, rights.said) == (
        StepState.SKIPPED,
        "these brokers don't report the rights of a principal",
    )


@pytest.mark.parametrize(("creates", "state"), [("true", "warning"), ("false", "failed")])
def test_a_missing_topic_may_be_one_that_brokers_create(creates, state):
    told = {**CONFIGS, "auto.create.topics.enable": creates}
    scene = cluster_of_three(told)

    def body():
        steps = rows_of(scene, config("rows"))
        assert list(steps) == ["topic"], "what a topic has that is not there is not asked"
        assert (steps["topic"].state, steps["topic"].code) == (state, "KP0302")
        assert ("the first write creates it" in steps["topic"].said) == (creates == "true")
        assert "rows" not in scene.cluster.topics

    scene.perform(body)


def test_partitions_without_a_leader_are_named(scene):
    (leader,) = created(scene, "rows", replicas=1, least=1)
    scene.cluster.stop_broker(leader)
    found = rows_of(scene, config("rows"))["partitions"]
    assert (found.state, found.code) == (StepState.FAILED, "KP0306")
    assert found.said == "1 of 1 have no leader: 0"
    assert "rows for them wait" in found.change


@pytest.mark.parametrize(
    ("acks", "state", "said", "change"),
    [
        ("all", StepState.FAILED, "every write to these partitions", "start the brokers"),
        ("1", StepState.WARNING, "", "only writes with kafka.acks other than all succeed"),
    ],
)
def test_too_few_replicas_refuse_writes_with_acks_all(scene, acks, state, said, change):
    _, *followers = created(scene, "rows", replicas=3, least=2)
    for node in followers:
        scene.cluster.stop_broker(node)
    found = rows_of(scene, config("rows", kafka__acks=acks))["replicas"]
    assert (found.state, found.code) == (state, "KP1019")
    assert "1 of 1 partitions have fewer replicas in sync" in found.said
    assert f"down: broker {', '.join(map(str, sorted(followers)))}" in found.said
    assert said in found.said
    assert change in found.change


def test_replicas_that_one_more_stop_makes_too_few(scene):
    """None is out of sync yet."""
    created(scene, "rows", replicas=2, least=2)
    found = rows_of(scene, config("rows"))["replicas"]
    assert (found.state, found.code) == (StepState.WARNING, "KP1019")
    assert found.said.startswith("1 of 1 partitions have no more replicas in sync")
    assert found.change == "give the topic more replicas than min.insync.replicas"
    without = rows_of(scene, config("rows", kafka__acks="1"))["replicas"]
    assert without.state is StepState.OK, "who does not wait for replicas loses no write"


def test_a_follower_that_lags_behind_is_named(scene):
    """A write still has what it needs, also with one broker less."""
    *_, follower = created(scene, "rows", replicas=3, least=1)
    scene.cluster.shrink_isr(TopicPartition("rows", 0), follower)
    found = rows_of(scene, config("rows"))["replicas"]
    assert found.state is StepState.WARNING
    assert found.said == "replicas of 1 of 1 partitions are not in sync: 0 (2 of 3)"
    assert "or see why replicas lag behind" in found.change


def test_without_configs_the_need_of_replicas_is_not_known():
    scene = cluster_of_three()  # without DescribeConfigs

    def body():
        _, *followers = created(scene, "rows", replicas=3, least=3)
        assert rows_of(scene, config("rows"))["replicas"].state is StepState.SKIPPED
        scene.cluster.stop_broker(followers[0])
        found = rows_of(scene, config("rows"))["replicas"]
        assert found.state is StepState.WARNING
        assert "whether writes are rejected is not known" in found.said

    scene.perform(body)


@pytest.mark.parametrize(
    ("options", "state", "said"),
    [
        (
            {"deliveryGuarantee": "exactly-once"},
            StepState.FAILED,
            "the commit, which writes a report",
        ),
        ({}, StepState.WARNING, "rows are written without a report"),
    ],
    ids=["exactly once", "at least once"],
)
def test_reports_that_brokers_refuse_fail_a_commit(scene, options, state, said):
    _, *followers = created(scene, "reports", replicas=3, least=2)
    for node in followers:
        scene.cluster.stop_broker(node)
    with scene.client() as client:
        reports = config("t", reportTopic="reports", **options)
        (found,) = report_topic_step(client, reports, TIMEOUT_MS)
    assert (found.state, found.code) == (state, "KP1019")
    assert "reports: 1 of 1 partitions have fewer replicas in sync" in found.said
    assert said in found.said
