"""Who gets the cluster's id from Metadata."""

from __future__ import annotations

import pytest

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.cluster import Nodes
from spark_kafka_sink.protocol.metadata import MetadataResponse
from tests.fakes.answering_client import AnsweringClient
from tests.producer.metadata_world import NODES, SEED, MetadataWorld, topic


class Listener:
    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[str] = []
        self._error = error

    def on_update(self, cluster_id: str) -> None:
        self.told.append(cluster_id)
        if self._error is not None:
            raise self._error


def answer_of(cluster_id: str | None) -> MetadataResponse:
    return MetadataResponse(Nodes.of(NODES), cluster_id, 1, (topic("t"),))


def test_listeners_hear_of_each_cluster_id_once(caplog: pytest.LogCaptureFixture) -> None:
    """MetadataTest#testClusterListenerGetsNotifiedOfUpdate."""
    world = MetadataWorld()
    broken, listener = Listener(RuntimeError("row 7 is secret")), Listener()
    world.metadata.add_cluster_listener(broken)
    world.metadata.add_cluster_listener(listener)
    world.metadata.add_topics(["t"], world.now)
    for cluster_id in ("one", "one", None, "one", "two"):
        world.metadata.request_update()
        world.clock.advance(1_000)
        world.metadata.update(world.ask()[1], answer_of(cluster_id), world.now)
    assert listener.told == broken.told == ["one", "two"]
    late = Listener()
    world.metadata.add_cluster_listener(late)
    assert late.told == ["two"]
    assert "the cluster's id was one and is two" in caplog.text
    assert "secret" not in caplog.text


def test_a_listener_gets_the_cluster_that_was_sent_with_the_plan() -> None:
    listener = Listener()
    MetadataWorld(SEED).metadata.add_cluster_listener(listener)
    assert listener.told == ["cluster"]


def test_an_interceptor_may_get_the_clusters_id() -> None:
    class Asking(Listener):
        def on_acknowledgement(self, metadata: object, error: object) -> None:
            """Makes it an interceptor."""

    asking = Asking()
    options = {"bootstrap.servers": "one:9092", "interceptor.classes": [asking]}
    producer = KafkaProducer(options, cluster=SEED, client=AnsweringClient(SEED))
    producer.close(0)
    assert asking.told == ["cluster"]
