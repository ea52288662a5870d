"""What ``kprod check`` and the preflight find of the topic of dead letters: on a fake cluster. A
real broker's answers are in ``test_dead_letter_rights.py``.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ApiError, AuthorizationError, ConfigError, ErrorCode
from spark_kafka_sink.datasource.checks.dead_letter_checks import create_if_missing, queue_check
from spark_kafka_sink.protocol.request import ApiKey
from tests.datasource.test_topic_steps import CONFIGS, TIMEOUT_MS, cluster_of_three, created
from tests.fakes.dead_letter_options import letter_options
from tests.fakes.fake_cluster.control import FOREVER

QUEUE = letter_options("letters")


@pytest.fixture
def scene():
    return cluster_of_three(CONFIGS)


def test_a_check_of_a_missing_queue_creates_none(scene):
    with scene.client() as client:
        said = queue_check(client, QUEUE, TIMEOUT_MS)
    assert said == "letters does not exist yet: the first write creates it"
    assert "letters" not in scene.cluster.topics


def test_a_queue_is_created_once_with_one_partition(scene):
    with scene.client() as client:
        assert create_if_missing(client, QUEUE, TIMEOUT_MS) is None
        found = create_if_missing(client, QUEUE, TIMEOUT_MS)
    assert (found.name, len(found.partitions)) == ("letters", 1)
    assert scene.cluster.topics["letters"].configs == {"cleanup.policy": "delete"}


def test_a_queue_that_is_there_is_named_with_its_limit(scene):
    created(scene, "letters", replicas=3, least=2)
    with scene.client() as client:
        assert queue_check(client, QUEUE, TIMEOUT_MS) == "letters, max.message.bytes=1048588"


def test_a_queue_that_may_not_be_seen_is_refused(scene):
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene.cluster.control.answer(ApiKey.METADATA, code, FOREVER, topic="letters")
    with scene.client() as client, pytest.raises(AuthorizationError, match="topic letters"):
        queue_check(client, QUEUE, TIMEOUT_MS)


def test_a_compacted_queue_is_refused(scene):
    scene.cluster.create_topic("letters", 1, configs={"cleanup.policy": "compact,delete"})
    with scene.client() as client, pytest.raises(ConfigError) as caught:
        queue_check(client, QUEUE, TIMEOUT_MS)
    assert "names letters, which is compacted" in caught.value.message
    assert caught.value.hint == "name another topic, or a missing one: it is created"


def test_a_queue_that_takes_no_letter_is_refused(scene):
    """Letters are sent with acks=all."""
    _, *followers = created(scene, "letters", replicas=3, least=2)
    for node in followers:
        scene.cluster.stop_broker(node)
    with scene.client() as client, pytest.raises(ApiError) as caught:
        queue_check(client, QUEUE, TIMEOUT_MS)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert "letters" in caught.value.message
    assert "fewer replicas in sync than min.insync.replicas=2" in caught.value.message
