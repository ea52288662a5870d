"""Rows of ``kprod check`` that only a coordinator that loads, or brokers before 3.7, give: on a
fake cluster.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.replicas import takes_fewer_replicas
from spark_kafka_sink.datasource.checks.transaction_steps import (
    OF_TRANSACTIONS,
    producer_id_step,
    steps_with,
)
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.request import ApiKey
from tests.datasource.test_exactly_once_trial import CONFIG, TIMEOUT_MS
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import scene_of
from tests.simulation.spark_tasks import producer_of


def rows_of(scene):
    steps = {}

    def body():
        with scene.client() as client:
            steps.update((one.name, one) for one in steps_with(client, CONFIG, TIMEOUT_MS))

    scene.perform(body)
    scene.control.check()
    return steps


@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_TRANSACTIONS])
def test_a_coordinator_that_loads_for_long_is_named(api):
    """After the restart of a broker with a large __transaction_state; the same answer as on a real
    one.
    """
    scene = scene_of()
    scene.control.answer(api, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, FOREVER)
    steps = rows_of(scene)
    found = steps["coordinator"]
    assert (found.state, found.code) == (StepState.FAILED, "KP1014")
    assert "COORDINATOR_LOAD_IN_PROGRESS" in found.said
    assert "__transaction_state" in found.change
    assert "firewall" not in f"{found.said} {found.change}"
    assert steps["commit log"].state is StepState.OK


@pytest.mark.parametrize(
    ("api", "weaker"),
    [(ApiKey.INIT_PRODUCER_ID, "none"), (ApiKey.DESCRIBE_TRANSACTIONS, "at-least-once")],
)
def test_a_service_without_a_request_gets_what_works_there(api, weaker):
    found = rows_of(scene_of(versions={api: 0}))["coordinator"]
    assert (found.state, found.code) == (StepState.FAILED, "KP1035")
    assert found.change == f"use deliveryGuarantee={weaker} with these brokers"
    scene = scene_of(versions={api: 0})
    given = {"kafka.bootstrap.servers": "127.0.0.1:9093", "deliveryGuarantee": weaker}

    def write() -> None:
        process = scene.machine.process("worker")
        producer = producer_of(process, parse_sink_config(given).producer)
        producer.send(ProducerRecord("t", b"row"))
        producer.flush()
        assert scene.values() == ["row"]

    scene.perform(write)


@pytest.mark.parametrize(
    ("guarantee", "offered", "state"),
    [
        ("at-least-once", True, StepState.OK),
        ("at-least-once", False, StepState.FAILED),
        ("none", False, StepState.SKIPPED),
        ("exactly-once", False, StepState.SKIPPED),
    ],
)
def test_a_default_write_needs_a_producer_id(guarantee, offered, state):
    """As on a service without InitProducerId, where each task failed after a green check."""
    scene = scene_of(versions={} if offered else {ApiKey.INIT_PRODUCER_ID: 0})
    options = {"kafka.bootstrap.servers": "broker:9092", "deliveryGuarantee": guarantee}
    found = []

    def body():
        with scene.client() as client:
            found.extend(producer_id_step(client, parse_sink_config(options), TIMEOUT_MS))

    scene.perform(body)
    (step,) = found
    assert step.state is state
    if state is StepState.FAILED:
        assert step.code == "KP1035"
        assert "write with deliveryGuarantee=none" in step.change
        assert "2.1" not in f"{step.said} {step.change}"


def test_a_coordinator_that_loads_for_a_moment_is_waited_for():
    scene = scene_of()
    scene.control.answer(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3)
    steps = rows_of(scene)
    assert tuple(steps) == OF_TRANSACTIONS
    assert {one.state for one in steps.values()} == {StepState.OK}


@pytest.mark.parametrize(("produce", "fewer"), [(9, False), (10, True)], ids=["3.6", "3.7"])
def test_brokers_before_3_7_need_all_replicas(produce, fewer):
    """They refuse every write to a topic with fewer replicas than min.insync.replicas (seen on
    3.6.2); Produce 10 came with the change.
    """
    scene = scene_of(versions={ApiKey.PRODUCE: produce})
    found = []

    def body():
        with scene.client() as client:
            client.init_producer_id("any", 1_000, client.deadline())  # of its coordinator
            found.append(takes_fewer_replicas(client))

    scene.perform(body)
    assert found == [fewer]
