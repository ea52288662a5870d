"""What is asked of topics, and what is not: on a fake cluster."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.cluster_checks import _clock
from spark_kafka_sink.datasource.checks.topic_checks import (
    CHECK_MS,
    TopicsNow,
    check_topics,
)
from spark_kafka_sink.datasource.checks.topic_steps import settings_if_there
from spark_kafka_sink.datasource.exactly_once.offsets_group import refuse_members
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.bad_rows.topic_limits import TopicLimits
from tests.datasource.test_topic_steps import (
    CONFIGS,
    TIMEOUT_MS,
    cluster_of_three,
    config,
    created,
)
from tests.fakes.fake_cluster.control import FOREVER


@pytest.fixture
def scene():
    return cluster_of_three(CONFIGS)


def asked(scene, api):
    """Counts the requests from now on."""
    return scene.cluster.control.delay(api, 0, FOREVER)


def test_rows_that_name_their_topics_have_none_to_check(scene):
    metadata, configs = asked(scene, ApiKey.METADATA), asked(scene, ApiKey.DESCRIBE_CONFIGS)
    with scene.client() as client:
        assert check_topics(client, config(None), (), TIMEOUT_MS) == {}
        assert settings_if_there(client, None, TIMEOUT_MS) is None
    assert (metadata.fired, configs.fired) == (0, 0)


def test_the_configs_of_each_topic_are_given(scene):
    """The queue's, too, of which nothing is warned."""
    for topic in ("rows", "letters"):
        created(scene, topic, replicas=3, least=1)
    with scene.client() as client:
        found = check_topics(client, config("rows"), ("rows", "letters"), TIMEOUT_MS)
        settings = settings_if_there(client, "rows", TIMEOUT_MS)
        assert settings_if_there(client, "nobody-made-it", TIMEOUT_MS) is None
    assert {topic: limits.max_bytes for topic, limits in found.items()} == {
        "rows": 1_048_588,
        "letters": 1_048_588,
    }
    assert settings["min.insync.replicas"] == "1"


def test_a_request_that_fails_leaves_a_check_out(scene):
    """The tasks raise errors then."""
    code = ErrorCode.INVALID_REQUEST
    scene.cluster.control.answer(ApiKey.DESCRIBE_CONFIGS, code, FOREVER)
    with scene.client() as client:
        assert check_topics(client, config("t"), ("t",), TIMEOUT_MS) == {}


LETTERS = {"errors__tolerance": "all", "errors__deadletterqueue__topic__name": "letters"}


def test_dead_letters_wait_longer_for_the_configs_of_their_topics(scene):
    """Without the configs, a broker refuses a row that is too large, and its task fails."""
    created(scene, "rows", replicas=3, least=1)
    slow = scene.cluster.control.delay(ApiKey.DESCRIBE_CONFIGS, CHECK_MS + 1_000, FOREVER)
    with scene.client() as client:
        assert check_topics(client, config("rows"), ("rows",), 60_000) == {}
        found = check_topics(client, config("rows", **LETTERS), ("rows",), 60_000)
    assert found["rows"].max_bytes == 1_048_588
    assert slow.fired > 0


def test_dead_letters_without_configs_in_time_are_a_warning(scene, caplog):
    created(scene, "rows", replicas=3, least=1)
    slow = scene.cluster.control.delay(ApiKey.DESCRIBE_CONFIGS, 61_000, FOREVER)
    with scene.client() as client:
        assert check_topics(client, config("rows", **LETTERS), ("rows",), 60_000) == {}
    (warning,) = caplog.messages
    assert "the configs of rows are unknown" in warning
    assert "no clear answer in time" in warning
    assert slow.fired > 0


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.UNSUPPORTED_VERSION])
def test_dead_letters_without_configs_by_refusal_are_a_warning(scene, caplog, code):
    scene.cluster.control.answer(ApiKey.DESCRIBE_CONFIGS, code, FOREVER)
    with scene.client() as client:
        limits = check_topics(
            client, config("t", **LETTERS, reportTopic="reports"), ("t", "reports"), TIMEOUT_MS
        )
    assert limits.get("t", TopicLimits()) == TopicLimits()
    (warning,) = caplog.messages
    assert "the configs of t are unknown" in warning, "no row goes to the topic of reports"


def test_brokers_that_tell_no_time_leave_the_clock_out(scene):
    """Before 3.3 they have no DescribeQuorum, as this cluster."""
    with scene.client() as client:
        found = _clock(client, config("t"), None, TIMEOUT_MS)
    assert (found.name, found.state) == ("clock", StepState.SKIPPED)
    assert found.said == "brokers before 3.3, or with ZooKeeper, don't report it"


def test_a_group_is_asked_for_its_members_once_a_minute(scene):
    """Each micro-batch is planned again."""
    requests = asked(scene, ApiKey.LIST_GROUPS)
    with scene.client() as client:
        for _ in range(3):
            refuse_members(client, "reports-of-orders")
        assert requests.fired == 1
        scene.scheduler.sleep(61_000)
        refuse_members(client, "reports-of-orders")
    assert requests.fired == 2


def test_a_task_without_a_producer_sees_a_topic_as_it_is_now(scene):
    """Nothing is kept between two calls, and no call creates a topic."""
    scene.cluster.auto_create_topics = True
    topics = TopicsNow(scene.client)
    with pytest.raises(KafkaError, match="topic rows: UNKNOWN_TOPIC_OR_PARTITION"):
        topics.partitions_for("rows")
    assert "rows" not in scene.cluster.topics
    leader, *_ = created(scene, "rows", replicas=3, least=1)
    (found,) = topics.partitions_for("rows")
    assert (found.tp, found.leader) == (TopicPartition("rows", 0), leader)


def test_topics_that_no_letter_can_reach_are_named_with_their_codes(scene):
    for topic in ("rows", "secret"):
        created(scene, topic, replicas=3, least=1)
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene.cluster.control.answer(ApiKey.METADATA, refused, FOREVER, topic="secret")
    topics = TopicsNow(scene.client)
    assert topics.unavailable_topics(["secret"]) == {"secret": refused}
    missing = {"none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert topics.unavailable_topics(["rows", "none"]) == missing


def test_a_topic_without_a_leader_for_now_is_not_named_as_unavailable(scene):
    """Its rows would become dead letters, and a later attempt could write them."""
    created(scene, "rows", replicas=3, least=1)
    code = ErrorCode.LEADER_NOT_AVAILABLE
    scene.cluster.control.answer(ApiKey.METADATA, code, FOREVER, topic="rows")
    with pytest.raises(KafkaError, match="topic rows: LEADER_NOT_AVAILABLE"):
        TopicsNow(scene.client).unavailable_topics(["rows"])
