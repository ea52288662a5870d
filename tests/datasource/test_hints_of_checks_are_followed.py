"""The advice of a row of ``kprod check`` makes the row green when it is followed: on a fake cluster
of three.
"""

from __future__ import annotations

from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.topic_steps import report_topic_step
from tests.datasource.test_topic_steps import (
    CONFIGS,
    TIMEOUT_MS,
    cluster_of_three,
    config,
    created,
    rows_of,
)


def test_brokers_that_are_started_make_the_replicas_green():
    """So does a topic with more replicas, which is the other advice."""
    scene = cluster_of_three(CONFIGS)

    def body():
        _, *followers = created(scene, "rows", replicas=3, least=2)
        for node in followers:
            scene.cluster.stop_broker(node)
        found = rows_of(scene, config("rows"))["replicas"]
        assert found.change.startswith("start the brokers that are down")
        for node in followers:
            scene.cluster.start_broker(node)
        assert rows_of(scene, config("rows"))["replicas"].state is StepState.OK

        created(scene, "tight", replicas=2, least=2)
        found = rows_of(scene, config("tight"))["replicas"]
        assert found.change == "give the topic more replicas than min.insync.replicas"
        created(scene, "wide", replicas=3, least=2)
        assert rows_of(scene, config("wide"))["replicas"].state is StepState.OK

    scene.perform(body)


def test_another_topic_for_reports_makes_its_row_green():
    scene = cluster_of_three(CONFIGS)

    def step_of(topic):
        with scene.client() as client:
            (found,) = report_topic_step(client, config("t", reportTopic=topic), TIMEOUT_MS)
        return found

    def body():
        scene.cluster.create_topic("table", 1, configs={"cleanup.policy": "compact"})
        found = step_of("table")
        assert found.state is StepState.FAILED
        assert found.change == "set cleanup.policy=delete on it, or name another topic"
        scene.cluster.create_topic("reports", 1, configs={"cleanup.policy": "delete"})
        assert step_of("reports").state is StepState.OK

    scene.perform(body)
