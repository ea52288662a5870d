"""The admin client against a real broker, and against addresses that are none."""

from __future__ import annotations

import dataclasses
import re
import threading
import time
import uuid
from typing import Any

import pytest

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import AnyBroker, Call
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ApiError,
    AuthenticationError,
    ConfigError,
    ErrorCode,
    InvalidTopicError,
    KafkaTimeoutError,
)
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.protocol.topic_requests import NewTopic
from tests.fakes.kafka_messages import init_request
from tests.network.loopback import closed_port, serving
from tests.real_kafka import AT_ONCE_S, RealKafka
from tests.waiting import with_more_time


def config(bootstrap: str, **options: str) -> ProducerConfig:
    names = {name.replace("_", "."): value for name, value in options.items()}
    return parse_producer_config({"bootstrap.servers": bootstrap, **names})


def describe_topics(config: ProducerConfig, *given: Any, **named: Any) -> Cluster:
    with AdminClient(config) as admin:
        return admin.describe_topics(*given, **named)


def create_topic(config: ProducerConfig, *given: Any, **named: Any) -> Cluster:
    with AdminClient(config) as admin:
        return admin.create_topic(*given, **named)


def new_name(kind: str) -> str:
    return f"{kind}-{uuid.uuid4().hex[:12]}"


def missing(kafka: RealKafka, names: list[str], after_ms: int, **options: Any) -> KafkaTimeoutError:
    """What is said when these topics are not there for so long, although a minute was given."""
    start = time.monotonic()
    given = {"timeout_ms": 60_000, "missing_topic_timeout_ms": after_ms} | options
    with pytest.raises(KafkaTimeoutError) as caught:
        describe_topics(config(kafka.bootstrap), names, **given)
    assert after_ms / 1000 <= time.monotonic() - start < AT_ONCE_S
    return caught.value


# --- describe


def test_without_topics_the_brokers_are_described(kafka: RealKafka) -> None:
    cluster = describe_topics(config(kafka.bootstrap), ())
    assert cluster.cluster_id
    assert min(cluster.nodes) >= 0
    assert cluster.controller in cluster.nodes
    assert cluster.topics == {}


def test_topics_are_described_with_leaders_and_ids(kafka: RealKafka) -> None:
    one, three = kafka.unique_topic("one"), kafka.unique_topic("three", partitions=3)
    cluster = describe_topics(config(kafka.bootstrap), [one, three])
    assert {topic: len(partitions) for topic, partitions in cluster.topics.items()} == {
        one: 1,
        three: 3,
    }
    for partitions in cluster.topics.values():
        assert all(cluster.leader_for(partition.tp) is not None for partition in partitions)
        assert {partition.leader_epoch for partition in partitions} == {0}
    assert {len(topic_id) for topic_id in cluster.topic_ids.values()} == {16}


@pytest.mark.parametrize("options", [{}, {"allow_auto_topic_creation": False}])
def test_a_missing_topic_is_waited_for_and_then_named(
    kafka: RealKafka, options: dict[str, bool]
) -> None:
    name = new_name("missing")
    error = missing(kafka, [name], 700, **options)
    assert error.message == f"Topic {name} not found: not present in metadata after 700 ms."
    assert "UNKNOWN_TOPIC_OR_PARTITION" in str(error.hint)
    assert "create the topic first" in str(error.hint)


def test_a_missing_topic_names_the_nearest_one(kafka: RealKafka) -> None:
    near = kafka.unique_topic("orders-enriched")
    error = missing(kafka, [near.replace("enriched", "enrichd")], 200)
    hint = str(error.hint)
    assert hint.startswith(f"is it {near}? the brokers answered UNKNOWN_TOPIC_OR_PARTITION")


def test_only_the_missing_topics_are_named(kafka: RealKafka) -> None:
    there, gone, away = kafka.unique_topic("there"), new_name("gone"), new_name("away")
    error = missing(kafka, [there, gone, away], 500)
    message = f"Topics {gone}, {away} not found: not present in metadata after 500 ms."
    assert error.message == message
    assert there not in str(error.hint)


def test_max_block_ms_bounds_a_call_without_a_limit_of_its_own(kafka: RealKafka) -> None:
    with pytest.raises(KafkaTimeoutError, match="after 300 ms"):
        describe_topics(
            config(kafka.bootstrap, max_block_ms="300"),
            [new_name("missing")],
            allow_auto_topic_creation=False,
        )


def test_an_invalid_name_is_refused_at_once(kafka: RealKafka) -> None:
    start = time.monotonic()
    with pytest.raises(InvalidTopicError, match="topic not a topic"):
        describe_topics(config(kafka.bootstrap), ["not a topic"], timeout_ms=60_000)
    assert time.monotonic() - start < AT_ONCE_S


def test_a_topic_that_appears_while_we_wait_is_found(kafka: RealKafka) -> None:
    name = new_name("late")
    found: list[Cluster] = []
    with AdminClient(config(kafka.bootstrap)) as admin:
        admin.describe_topics(())
        waiting = threading.Thread(
            target=lambda: found.append(
                admin.describe_topics([name], timeout_ms=60_000, allow_auto_topic_creation=False)
            )
        )
        waiting.start()
        kafka.create_topic(name, 2)
        waiting.join()
    assert [len(cluster.topics[name]) for cluster in found] == [2]


def test_one_client_answers_again_and_again_with_fresh_answers(kafka: RealKafka) -> None:
    with AdminClient(config(kafka.bootstrap)) as admin:
        first = kafka.unique_topic("first")
        assert set(admin.describe_topics([first]).topics) == {first}
        second = kafka.unique_topic("second")
        assert second in admin.describe_topics([second]).topics
        with pytest.raises(KafkaTimeoutError):
            admin.describe_topics(
                [new_name("missing")], timeout_ms=200, allow_auto_topic_creation=False
            )
        assert first in admin.describe_topics([first]).topics


def test_silence_is_not_believed_to_say_that_a_topic_is_missing() -> None:
    with closed_port() as port, pytest.raises(KafkaTimeoutError, match="after 900 ms"):
        describe_topics(
            config(f"127.0.0.1:{port}"), ["t"], timeout_ms=900, missing_topic_timeout_ms=100
        )


# --- who does not answer


def test_an_error_lists_every_tried_address_with_its_reason() -> None:
    with closed_port() as one, closed_port() as two:
        servers = f"127.0.0.1:{one},localhost:{two}"

        def is_told(limit_ms: int) -> None:
            with pytest.raises(KafkaTimeoutError) as caught:
                describe_topics(config(servers), ["t"], timeout_ms=limit_ms)
            said = caught.value.message
            assert said.startswith(f"no broker answered within {limit_ms} ms; tried ")
            not_found = f"Topic t not found: not present in metadata after {limit_ms} ms."
            assert said.endswith(f" ({not_found})")
            assert f"127.0.0.1:{one}: Connection refused" in said
            assert f"localhost:{two}" in said
            assert said.count("Connection refused") == 2
            assert caught.value.kind is Kind.NO_BROKER

        with_more_time(is_told, 1_500)


def test_without_topics_the_error_speaks_of_brokers() -> None:
    with closed_port() as port:

        def is_told(limit_ms: int) -> None:
            with pytest.raises(KafkaTimeoutError) as caught:
                describe_topics(config(f"127.0.0.1:{port}"), (), timeout_ms=limit_ms)
            assert caught.value.message == (
                f"no broker answered within {limit_ms} ms; tried 127.0.0.1:{port}:"
                " Connection refused (nothing is known of the cluster)"
            )

        with_more_time(is_told, 1_000)


def test_a_host_without_an_address_is_named() -> None:
    with pytest.raises(ConfigError, match="No resolvable bootstrap urls given in") as caught:
        describe_topics(config("no-such-host.invalid:9092"), ["t"], timeout_ms=500)
    assert str(caught.value.hint).startswith("no-such-host.invalid: ")


def test_an_unresolvable_host_is_named_beside_a_refused_one() -> None:
    with closed_port() as port:
        servers = config(f"no-such-host.invalid:9092,127.0.0.1:{port}")

        def is_named(limit_ms: int) -> None:
            with pytest.raises(KafkaTimeoutError) as caught:
                describe_topics(servers, ["t"], timeout_ms=limit_ms)
            assert "no-such-host.invalid:9092" in caught.value.message

        with_more_time(is_named, 500)


@pytest.mark.parametrize(
    ("answer", "guess"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "web server"),
        (b"\x00\x00\x00\x0a0123456789", "127.0.0.1"),
        (b"", "TLS or SASL listener"),
    ],
    ids=["HTTP", "garbage", "closed"],
)
def test_what_is_no_broker_is_guessed_at(answer: bytes, guess: str) -> None:
    with serving(lambda connection, _: connection.sendall(answer)) as (host, port):

        def is_guessed(limit_ms: int) -> None:
            with pytest.raises(KafkaTimeoutError) as caught:
                describe_topics(config(f"{host}:{port}"), ["t"], timeout_ms=limit_ms)
            assert guess in caught.value.message

        with_more_time(is_guessed, 1_500)


def test_a_tls_listener_is_recognized_without_waiting() -> None:
    alert = b"\x15\x03\x03\x00\x02\x02\x46"
    start = time.monotonic()
    with (
        serving(lambda connection, _: connection.sendall(alert)) as (host, port),
        pytest.raises(AuthenticationError, match=str(port)) as caught,
    ):
        describe_topics(config(f"{host}:{port}"), ["t"], timeout_ms=60_000)
    assert time.monotonic() - start < AT_ONCE_S
    assert "SASL_SSL" in str(caught.value.hint)


def test_a_listener_that_never_answers_does_not_hang_us() -> None:
    with serving(lambda _, over: over.wait(60)) as (host, port):
        start = time.monotonic()
        with pytest.raises(KafkaTimeoutError) as caught:
            describe_topics(config(f"{host}:{port}"), ["t"], timeout_ms=500)
        assert time.monotonic() - start < AT_ONCE_S
    assert f"{host}:{port}" in caught.value.message


# --- create


def test_a_created_topic_has_leaders_when_we_return(kafka: RealKafka) -> None:
    name = new_name("one")
    new = NewTopic(name, 3, 1, {"retention.ms": "60000"})
    cluster = create_topic(config(kafka.bootstrap), new)
    assert len(cluster.topics[name]) == 3
    assert all(p.leader in cluster.nodes for p in cluster.topics[name])


def test_a_topic_that_exists_is_left_as_it_is(kafka: RealKafka) -> None:
    name = kafka.unique_topic("there", partitions=2)
    cluster = create_topic(config(kafka.bootstrap), NewTopic(name, 5, 1))
    assert len(cluster.topics[name]) == 2


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("x", 1, 3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic("x", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (NewTopic("x", 1, 1, {"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic("not a topic", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_refused_topic_is_named_with_the_brokers_words(
    kafka: RealKafka, topic: NewTopic, code: ErrorCode
) -> None:
    if topic.name == "x":
        topic = dataclasses.replace(topic, name=new_name("refused"))
    with pytest.raises(ApiError) as caught:
        create_topic(config(kafka.bootstrap), topic)
    assert caught.value.code is code
    assert caught.value.message.startswith(f"topic {topic.name}: {code.name} ({code.value}): ")


def test_creating_a_topic_is_bounded_when_no_broker_answers() -> None:
    with closed_port() as port, pytest.raises(KafkaTimeoutError, match="within 300 ms"):
        create_topic(config(f"127.0.0.1:{port}"), NewTopic("t"), timeout_ms=300)


# --- any other request


def test_any_request_can_be_asked(kafka: RealKafka) -> None:
    with AdminClient(config(kafka.bootstrap)) as admin:
        cluster = admin.describe_topics(())
        node = next(iter(cluster.nodes.values()))
        # Right after its start a broker may still be fetching its ids.
        deadline = time.monotonic() + 60
        while True:
            call = Call(init_request(None, 60_000), node, "it")
            response = admin.loop.send_and_receive(call, admin.deadline())
            if not response.error_code.retriable or time.monotonic() > deadline:
                break
    assert response.error_code is ErrorCode.NONE
    assert response.producer_id >= 0


def test_a_call_without_an_answer_is_bounded() -> None:
    with closed_port() as port:

        def is_bounded(limit_ms: int) -> None:
            call = Call(init_request(None, 60_000), AnyBroker(), "InitProducerId")
            with (
                AdminClient(config(f"127.0.0.1:{port}")) as admin,
                pytest.raises(KafkaTimeoutError, match="InitProducerId got no answer") as caught,
            ):
                admin.loop.send_and_receive(call, admin.deadline(limit_ms))
            assert caught.value.kind is Kind.NO_BROKER
            assert re.match(
                rf"no broker answered within \d+ ms; tried 127.0.0.1:{port}: Connection refused",
                caught.value.message,
            )

        with_more_time(is_bounded, 300)
