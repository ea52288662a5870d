"""The row of ``kprod check`` for the brokers of a cluster, some of which have no listener, or one
that answers nothing: real sockets, before a fake cluster whose Metadata names them.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager

import pytest

from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.connection_steps import brokers
from spark_kafka_sink.network.client.connection_probe import ConnectionProbe
from tests.network.loopback import closed_port, serving
from tests.simulation.scene import scene_of

#: How long a listener that is silent is waited for.
TIMEOUT_MS = 1_000
#: An answer to ApiVersions, as far as a probe reads one.
ANSWER = bytes((0, 0, 0, 4, 0, 0, 0, 1))


@contextmanager
def listener():
    """The port of one that answers."""

    def answer(connection, over):
        connection.sendall(ANSWER)
        over.wait(60)

    with serving(answer) as (_, port):
        yield port


@contextmanager
def silent_listener():
    """As of a process that is stopped: its operating system accepts connections for it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def row_of(*ports, dies_ms=None):
    """The row for a cluster with a broker at each port; the last one leaves its metadata then."""
    scene = scene_of(nodes=len(ports))
    scene.cluster.brokers = dict(enumerate(ports, 1))
    scene.machine.ports = scene.cluster.ports
    # (A few rounds of the wait for a death are enough.)
    servers = (("127.0.0.1", ports[0]),)
    scene.changes |= {"bootstrap_servers": servers, "retry_backoff_ms": 300}
    rows = []

    def body():
        with scene.client() as client, ConnectionProbe(client.config) as probe:
            cluster = client.describe_topics(())
            if dies_ms == 0:
                scene.cluster.stop_broker(len(ports))
                scene.scheduler.sleep(10)  # its metadata are not of now
            elif dies_ms is not None:
                at_ms = scene.scheduler.now_ms() + dies_ms
                scene.cluster.at(at_ms, lambda: scene.cluster.stop_broker(len(ports)))
            rows.append(brokers(client, probe, cluster, TIMEOUT_MS))

    scene.perform(body)
    (row,) = rows
    assert row.name == "brokers"
    return row


def test_brokers_that_answer_are_counted():
    with listener() as one, listener() as two:
        found = row_of(one, two)
    assert (found.state, found.said) == (StepState.OK, "2 of 2 reached")


@pytest.mark.parametrize("dies_ms", [0, 500], ids=["lost already", "lost while it is waited for"])
def test_a_broker_that_leaves_the_metadata_has_died(dies_ms):
    with listener() as one, closed_port() as two:
        found = row_of(one, two, dies_ms=dies_ms)
    assert (found.state, found.code) == (StepState.WARNING, "KP0311")
    assert found.said.startswith(f"1 of 2 reached; broker 2 at 127.0.0.1:{two}: TCP: Connection")
    assert "it has just died, and is no longer in the cluster's metadata" in found.said
    assert found.change.startswith("start it: its partitions have other leaders")


def test_a_broker_that_stays_may_have_a_wrong_address():
    with listener() as one, closed_port() as two:
        found = row_of(one, two)
    assert (found.state, found.code) == (StepState.FAILED, "KP0311")
    assert f"reaches (127.0.0.1:{two})" in found.change
    assert "advertised.listeners" in found.change


def test_a_silent_broker_that_leaves_the_metadata_is_stopped():
    with listener() as one, silent_listener() as two:
        found = row_of(one, two, dies_ms=0)
    assert found.state is StepState.WARNING
    assert "it answers nothing, and is no longer in the cluster's metadata" in found.said
    assert found.change.startswith("see whether its process is stopped, or start it again")


def test_a_cluster_that_answers_nothing_is_waited_for_once():
    """No broker is left that could tell of a death."""
    with silent_listener() as one:
        found = row_of(one)
    assert (found.state, found.code) == (StepState.FAILED, "KP0311")
    assert "ApiVersions: no answer within" in found.said
    assert found.change.startswith("see whether its process is stopped or overloaded")
