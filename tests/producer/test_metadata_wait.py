"""Metadata.await_topics: what ends the wait for a topic, and the errors that tell why."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    AuthenticationError,
    AuthorizationError,
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
)
from spark_kafka_sink.protocol.cluster import Cluster, PartitionInfos
from spark_kafka_sink.protocol.metadata import TopicMetadata
from tests.fakes.clock import FakeClock
from tests.producer.metadata_world import ID1, MAX_BLOCK, SEED, MetadataWorld, topic


class Wait:
    """await_topics on a thread of its own; the test answers on this one."""

    def __init__(self, world: MetadataWorld, *topics: str) -> None:
        self.world = world
        self.outcome: object = None
        deadline = world.now + MAX_BLOCK
        self.woken = threading.Event()
        world.metadata.attach(self.woken.set, lambda: {"boot:9092": "connection refused"})

        def wait() -> None:
            try:
                self.outcome = world.metadata.await_topics(topics, deadline)
            except BaseException as error:
                self.outcome = error

        self.thread = threading.Thread(target=wait, daemon=True)
        self.thread.start()

    def respond(self, *topics: TopicMetadata) -> None:
        self.step(lambda: self.world.update(*topics))

    def step(self, change: Callable[[], None]) -> None:
        assert self.woken.wait(60), "the sender was not woken"
        self.world.clock.await_waiters(1)
        self.woken.clear()
        self.world.clock.advance(self.world.due)
        change()

    def end(self) -> object:
        self.thread.join(60)
        assert not self.thread.is_alive()
        return self.outcome


def waiting(*topics: str) -> tuple[MetadataWorld, Wait]:
    world = MetadataWorld(clock=FakeClock(threads=2))
    return world, Wait(world, *topics)


def test_a_wait_ends_with_the_answer_that_brings_the_topic() -> None:
    world, wait = waiting("t", "u")
    wait.respond(topic("t"), topic("u", error=ErrorCode.LEADER_NOT_AVAILABLE))
    assert world.metadata.has_waiters
    wait.respond(topic("t"), topic("u"))
    assert wait.end() is world.metadata.cluster
    assert not world.metadata.has_waiters


def test_a_topic_without_partitions_is_not_there_yet() -> None:
    """As in Java, whose Cluster knows a topic by its partitions: nothing can be sent to none."""
    world, wait = waiting("t")
    none = TopicMetadata(ErrorCode.NONE, "t", ID1, False, PartitionInfos.of("t", []))
    wait.respond(none)
    assert world.metadata.has_waiters
    wait.respond(topic("t"))
    assert len(wait.end().topics["t"]) == 1  # type: ignore[attr-defined]


def test_a_wait_unparks() -> None:
    world = MetadataWorld(clock=FakeClock(threads=2))
    world.metadata.set_parked(parked=True)
    wait = Wait(world, "t")
    wait.respond(topic("t"))
    assert isinstance(wait.end(), Cluster)


def test_an_unknown_topic_is_awaited_and_has_a_reason() -> None:
    """KafkaProducerTest#testMetadataTimeoutWithMissingTopic; the text is Spark's sink's."""
    world, wait = waiting("t")
    missing = topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for _ in range(3):
        wait.respond(missing)
    world.clock.await_waiters(1)
    world.clock.advance(MAX_BLOCK)
    error = wait.end()
    assert isinstance(error, KafkaTimeoutError)
    assert error.message == "Topic t not present in metadata after 5000 ms."
    assert "UNKNOWN_TOPIC_OR_PARTITION" in (error.hint or "")
    assert isinstance(error.__cause__, KafkaError)


def test_without_any_answer_the_error_lists_each_address_and_why() -> None:
    world, wait = waiting("t")
    wait.step(lambda: world.metadata.failed_update(world.now, None))
    world.clock.advance(MAX_BLOCK)
    error = wait.end()
    assert isinstance(error, KafkaTimeoutError)
    assert error.message.startswith("no broker answered within 5000 ms; tried boot:9092: ")
    assert error.message.endswith("(Topic t not present in metadata after 5000 ms.)")
    assert "boot:9092: connection refused" in error.message


def test_a_long_list_of_addresses_is_cut() -> None:
    world = MetadataWorld()
    refused = {f"b{number}:9092": "connection refused" for number in range(40)}
    world.metadata.attach(lambda: None, lambda: refused)
    said = world.metadata.addresses_tried()
    assert said.startswith("tried b0:9092: connection refused; b1:9092: ")
    assert said.count("; ") == 12
    assert said.endswith(" more")


def test_an_answer_that_leaves_the_topic_out_is_an_answer() -> None:
    """Of a broker that hides it: the brokers are there, and no error of theirs is known."""
    world, wait = waiting("t")
    wait.respond(topic("another"))
    assert wait.woken.wait(60), "it asks again"
    world.clock.await_waiters(1)
    world.clock.advance(MAX_BLOCK)
    error = wait.end()
    assert isinstance(error, KafkaTimeoutError)
    assert error.message == "Topic t not present in metadata after 5000 ms."
    assert (error.kind, error.__cause__) == (Kind.TOPIC_NOT_PRESENT, None)


def test_the_first_reason_of_an_end_stays() -> None:
    """The producer that failed is closed afterwards."""
    world = MetadataWorld()
    failed, closed = KafkaError("it failed"), KafkaError("it is closed")
    world.metadata.close(failed)
    world.metadata.close(closed)
    for wait in (
        lambda: world.metadata.await_topics(["t"], NEVER),
        lambda: world.metadata.refresh(NEVER),
    ):
        with pytest.raises(KafkaError) as caught:
            wait()
        assert caught.value is failed


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopicError),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_a_hopeless_topic_fails_at_once_and_only_for_its_users(
    code: ErrorCode, kind: type[KafkaError]
) -> None:
    """MetadataTest#testInvalidTopicError, MetadataTest#testTopicAuthorizationError."""
    world, wait = waiting("bad")
    wait.respond(topic("bad", error=code))
    error = wait.end()
    assert isinstance(error, kind)
    assert "topic bad" in str(error)
    assert world.now < 1_000_000 + MAX_BLOCK
    wait = Wait(world, "t")
    wait.respond(topic("t"))
    assert isinstance(wait.end(), Cluster)


def test_a_refusal_that_was_mended_does_not_fail_a_later_wait() -> None:
    world, wait = waiting("t")
    wait.respond(topic("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(wait.end(), AuthorizationError)
    wait = Wait(world, "t")
    wait.respond(topic("t"))
    assert isinstance(wait.end(), Cluster)


def test_a_failure_for_good_ends_all_waits() -> None:
    """ProducerMetadataTest#testMetadataWaitAbortedOnFatalException."""
    world, wait = waiting("t")
    refused = AuthenticationError("wrong password")
    wait.step(lambda: world.metadata.failed_update(world.now, refused))
    assert wait.end() is refused


def test_closing_ends_all_waits_and_refuses_new_ones() -> None:
    """ProducerMetadataTest#testMetadataAwaitAfterClose,
    KafkaProducerTest#testCloseWhenWaitingForMetadataUpdate.
    """
    world, wait = waiting("t")
    closed = KafkaError("closed")
    wait.step(lambda: world.metadata.close(closed))
    assert wait.end() is closed
    with pytest.raises(KafkaError, match="closed"):
        world.metadata.await_topics(["t"], world.now + 1)
    assert world.due == NEVER


def test_a_silent_address_is_listed_beside_the_failed_ones() -> None:
    """A peer that accepts and never answers fails nothing until request.timeout.ms is over."""
    world = MetadataWorld()
    world.metadata.attach(lambda: None, lambda: {"boot:9092 (192.0.2.1)": "refused"})
    with pytest.raises(KafkaTimeoutError) as caught:
        world.metadata.await_topics(["t"], world.now)
    assert "tried boot:9092 (192.0.2.1): refused; boot2:9093: no answer (" in str(caught.value)


def test_a_broker_that_has_answered_is_not_called_silent() -> None:
    world = MetadataWorld(SEED)
    world.metadata.attach(lambda: None, lambda: {"one:9092": "refused"})
    assert world.metadata.addresses_tried() == "tried one:9092: refused"


def test_a_topic_of_a_row_cannot_break_the_message_into_lines() -> None:
    world = MetadataWorld()
    with pytest.raises(KafkaTimeoutError, match=r"\(Topic a\\nb not present"):
        world.metadata.await_topics(["a\nb"], world.now)
