"""Rows of ``kprod check`` that only a coordinator that loads, or brokers before 3.7, give: on a
fake cluster.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.datasource.checks.check_steps import State
from spark_kafka_sink.datasource.checks.replicas import takes_fewer_replicas
from spark_kafka_sink.datasource.checks.transaction_steps import OF_TRANSACTIONS, steps_with
from spark_kafka_sink.protocol.request import ApiKey
from tests.datasource.test_exactly_once_trial import CONFIG, TIMEOUT_MS
from tests.fakes.fake_cluster.control import FOREVER
from tests.transactions.committing_world import CommittingWorld


def rows_of(world):
    steps = {}

    def body():
        with world.client() as client:
            steps.update((one.name, one) for one in steps_with(client, CONFIG, TIMEOUT_MS))

    world.run(body)
    world.cluster.control.check()
    return steps


@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, ApiKey.DESCRIBE_TRANSACTIONS])
def test_a_coordinator_that_loads_for_long_is_named(api):
    """After the restart of a broker with a large __transaction_state; the same answer as on a real
    one.
    """
    world = CommittingWorld()
    world.cluster.control.answer(api, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, FOREVER)
    steps = rows_of(world)
    found = steps["coordinator"]
    assert (found.state, found.code) == (State.FAILED, "KP1014")
    assert "COORDINATOR_LOAD_IN_PROGRESS" in found.said
    assert "__transaction_state" in found.change
    assert "firewall" not in f"{found.said} {found.change}"
    assert steps["commit log"].state is State.OK


def test_a_coordinator_that_loads_for_a_moment_is_waited_for():
    world = CommittingWorld()
    world.cluster.control.answer(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3)
    steps = rows_of(world)
    assert tuple(steps) == OF_TRANSACTIONS
    assert {one.state for one in steps.values()} == {State.OK}


@pytest.mark.parametrize(("produce", "fewer"), [(9, False), (10, True)], ids=["3.6", "3.7"])
def test_brokers_before_3_7_need_all_replicas(produce, fewer):
    """They refuse every write to a topic with fewer replicas than min.insync.replicas (seen on
    3.6.2); Produce 10 came with the change.
    """
    world = CommittingWorld(versions={ApiKey.PRODUCE: produce})
    found = []

    def body():
        with world.client() as client:
            client.init_producer_id("any", 1_000, client.deadline())  # of its coordinator
            found.append(takes_fewer_replicas(client))

    world.run(body)
    assert found == [fewer]
