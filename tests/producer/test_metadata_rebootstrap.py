"""Metadata that starts again from the bootstrap servers, and what is known of a leader then."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.least_loaded_node import LeastLoadedNode
from spark_kafka_sink.network.client.metadata_updater import MetadataUpdater
from spark_kafka_sink.protocol.cluster import (
    Node,
    PartitionInfo,
    PartitionInfos,
    TopicPartition,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
)
from spark_kafka_sink.protocol.metadata import MetadataRequest, MetadataResponse, TopicMetadata
from tests.fakes.kafka_messages import init_response
from tests.fakes.sender_world import SenderWorld, cluster_of
from tests.producer.metadata_world import ID1, NODES, SEED, TP, MetadataWorld, answer, topic


def test_rebootstrap_drops_the_brokers_and_keeps_the_partitions() -> None:
    world = MetadataWorld(SEED)
    world.metadata.rebootstrap(world.now)
    assert [n.id for n in world.metadata.nodes()] == [-1, -2]
    assert len(world.metadata.cluster.topics["t"]) == 1
    assert world.metadata.cluster.leader_for(TP) is None
    world.update(topic("t", epoch=6))
    assert world.metadata.cluster.leader_for(TP) == NODES[0]


def test_what_is_known_of_a_leader_is_said_and_no_more() -> None:
    world = MetadataWorld(SEED)
    known = world.metadata.leader_known
    assert known(TP) == "its leader is one:9092 (id 1)"
    assert known(TopicPartition("u", 0)) == "nothing is known of the partition now"
    world.refresh(topic("t", (1,), epoch=6), nodes=(NODES[1],))
    assert known(TP) == "its leader was one:9092 (id 1), which is no longer in the metadata"
    world.metadata.rebootstrap(world.now)
    was = "its leader was one:9092 (id 1); since then no known broker responded"
    assert known(TP).startswith(was)
    world.clock.advance(1_000)
    world.update(topic("t", (-1,), epoch=7))
    without = "the partition has no leader in the last metadata response"
    assert known(TP) == f"{without}; it was one:9092 (id 1)"
    world.clock.advance(1_000)
    world.refresh(topic("t", (2,), epoch=8))
    assert known(TP) == "its leader is two:9092 (id 2)"


def test_without_a_leader_from_the_start_the_replicas_are_named() -> None:
    world = MetadataWorld()
    world.metadata.add_topics(["t"], world.now)
    world.update(topic("t", (-1,), epoch=7))
    known = world.metadata.leader_known(TP)
    assert known.startswith("the partition has no leader in the last metadata response; its repl")


def test_a_batch_expired_after_its_brokers_death_names_the_cause() -> None:
    with SenderWorld(cluster=cluster_of([1, 1, 2])) as world:
        world.metadata.rebootstrap(world.clock.now_ms())
        batch = world.append()
        world.clock.advance(120_000)
        world.sender.run()
        assert batch.error is not None
        was = "its leader was one:9092 (id 1); since then no known broker responded"
        assert was in batch.error.message
        assert "no leader" not in batch.error.message


def test_a_broker_refusing_an_id_is_named_after_rebootstrap() -> None:
    with SenderWorld(with_id=False) as world:
        world.client.prepare(
            InitProducerIdRequest,
            init_response(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1),
        )
        asked = world.client.poll

        def poll(timeout_ms: int, now: int) -> Sequence[ClientResponse]:
            world.metadata.rebootstrap(now)  # between the request and its answer
            return asked(timeout_ms, now)

        world.client.poll = poll  # type: ignore[method-assign]
        world.append()
        world.round(2)
        assert world.lifecycle.fatal is not None
        assert "InitProducerId on broker one:9092 (id 1)" in str(world.lifecycle.fatal)


# ---- with the updater that asks for it -----------------------------------------------------------


class Carrier:
    """A network that takes every metadata request and answers none by itself."""

    def find_least_loaded_node(self, now: int) -> LeastLoadedNode:
        return LeastLoadedNode(NODES[0], any_connection_ready=True)

    def can_send_request(self, node_id: int, now: int) -> bool:
        return True

    def can_connect(self, node: Node, now: int) -> bool:
        return False

    def initiate_connect(self, node: Node, now: int) -> None:
        raise AssertionError

    def send_metadata_request(self, request: MetadataRequest, node_id: int, now: int) -> bool:
        return True


def updater_of(world: MetadataWorld) -> MetadataUpdater:
    """The updater that requests the metadata of ``world``."""
    return MetadataUpdater(world.metadata, Carrier(), retry_ms=50, rebootstrap_trigger_ms=10_000)


def respond(world: MetadataWorld, updater: MetadataUpdater, response: MetadataResponse) -> None:
    """A second later, the updater requests the metadata and gets ``response``."""
    world.metadata.request_update()
    world.clock.advance(1_000)
    assert updater.maybe_update(world.now) == NEVER
    updater.handle_response(response, world.now)


def test_a_missing_listener_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    world = MetadataWorld(SEED)
    updater = updater_of(world)

    def without_listener(*partitions: int) -> MetadataResponse:
        infos = [PartitionInfo(TopicPartition("t", p), -1, 6, (1,)) for p in range(2)]
        errors = dict.fromkeys(partitions, ErrorCode.LISTENER_NOT_FOUND)
        found = PartitionInfos.of("t", infos, errors)
        return answer(TopicMetadata(ErrorCode.NONE, "t", ID1, False, found))

    for partitions in ((0,), (0,), (), (0,), (0, 1)):
        respond(world, updater, without_listener(*partitions))
    warnings = [r.getMessage() for r in caplog.records if "no listener" in r.getMessage()]
    assert len(warnings) == 2
    assert "t-0" in warnings[0]
    assert "t-1" in warnings[1]


def test_of_many_missing_listeners_a_few_are_named(caplog: pytest.LogCaptureFixture) -> None:
    world = MetadataWorld(SEED)
    updater = updater_of(world)
    infos = [PartitionInfo(TopicPartition("t", p), -1, 6, (1,)) for p in range(50)]
    errors = dict.fromkeys(range(50), ErrorCode.LISTENER_NOT_FOUND)
    found = PartitionInfos.of("t", infos, errors)
    respond(world, updater, answer(TopicMetadata(ErrorCode.NONE, "t", ID1, False, found)))
    (said,) = (r.getMessage() for r in caplog.records if "no listener" in r.getMessage())
    assert "the leaders of 50 partitions" in said
    assert said.count("t-") == 10


def test_a_reply_without_nodes_does_not_reset_the_trigger() -> None:
    """NetworkClientTest#testRebootstrap: a failed update does not restart the time."""
    world = MetadataWorld(SEED)
    updater = updater_of(world)
    for _ in range(10):
        respond(world, updater, answer(topic("t"), nodes=()))
    assert world.metadata.cluster is SEED
    world.clock.advance(2_000)
    assert updater.time_to_rebootstrap(world.now) == 0
