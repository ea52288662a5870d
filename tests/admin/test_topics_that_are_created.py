"""Topics that are created while brokers are busy, silent or old: on a fake cluster. What a real
broker says is in ``test_admin.py``.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode, KafkaTimeoutError, UnsupportedVersionError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.topic_requests import NewTopic
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import Scene, scene_of

TOPIC = NewTopic("orders", 2, 1)


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Scene:
    return scene_of(versions=getattr(request, "param", {}))


def test_a_topic_is_created_when_the_controller_is_ready(scene: Scene) -> None:
    fault = scene.control.answer(ApiKey.CREATE_TOPICS, ErrorCode.NOT_CONTROLLER, 3)
    with scene.client() as client:
        cluster = client.create_topic(TOPIC)
    assert fault.fired == 3
    assert len(cluster.topics["orders"]) == 2


def test_a_topic_whose_response_is_lost_counts_as_created(scene: Scene) -> None:
    """The broker rejects the second request: the topic exists already."""
    fault = scene.control.cut(ApiKey.CREATE_TOPICS)
    with scene.client() as client:
        cluster = client.create_topic(TOPIC)
    assert fault.fired == 1
    assert len(cluster.topics["orders"]) == 2


def test_a_controller_that_is_silent_is_named_when_the_time_is_over(scene: Scene) -> None:
    scene.control.drop(ApiKey.CREATE_TOPICS, FOREVER)
    with (
        scene.client() as client,
        pytest.raises(KafkaTimeoutError, match="CreateTopics of orders"),
    ):
        client.create_topic(TOPIC, timeout_ms=3_000)


@pytest.mark.parametrize("scene", [{ApiKey.CREATE_TOPICS: 3}], indirect=True, ids=["2.3"])
def test_brokers_without_defaults_for_a_topic_need_its_numbers(scene: Scene) -> None:
    with scene.client() as client:
        with pytest.raises(UnsupportedVersionError) as raised:
            client.create_topic(NewTopic("orders"))
        assert raised.value.message.endswith("brokers before 2.4 have no defaults for a topic")
        assert raised.value.hint == "give its partitions and its replication factor"
        assert len(client.create_topic(TOPIC).topics["orders"]) == 2
