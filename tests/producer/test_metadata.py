"""Metadata (Java: MetadataTest, ProducerMetadataTest)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import (
    AuthenticationError,
    AuthorizationError,
    ErrorCode,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
)
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.least_loaded_node import LeastLoadedNode
from spark_kafka_sink.network.client.metadata_updater import MetadataUpdater
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.metadata import Metadata
from spark_kafka_sink.protocol.cluster import (
    Cluster,
    Node,
    Nodes,
    PartitionInfo,
    PartitionInfos,
    TopicPartition,
)
from spark_kafka_sink.protocol.control_messages import InitProducerIdRequest, MetadataRequest
from spark_kafka_sink.protocol.metadata_response import MetadataResponse, TopicMetadata
from spark_kafka_sink.protocol.responses import InitProducerIdResponse
from tests.fakes.answering_client import AnsweringClient
from tests.fakes.clock import FakeClock
from tests.fakes.sender_world import SenderWorld, cluster_of

NODES = (Node(1, "one", 9092), Node(2, "two", 9092))
TP = TopicPartition("t", 0)
MAX_AGE, MAX_IDLE, MAX_BLOCK, BACKOFF = 300_000, 60_000, 5_000, 100
ID1, ID2 = bytes(15) + b"\1", bytes(15) + b"\2"


def topic(
    name: str,
    leaders: tuple[int, ...] = (1,),
    epoch: int = 1,
    error: ErrorCode = ErrorCode.NONE,
    topic_id: bytes | None = ID1,
) -> TopicMetadata:
    partitions = PartitionInfos.of(
        name,
        (
            PartitionInfo(TopicPartition(name, i), leader, epoch, (1, 2))
            for i, leader in enumerate(() if error else leaders)
        ),
    )
    return TopicMetadata(error, name, topic_id, False, partitions)


def answer(*topics: TopicMetadata, nodes: tuple[Node, ...] = NODES) -> MetadataResponse:
    return MetadataResponse(Nodes.of(nodes), "cluster", 1, topics)


def config(**options: object) -> ProducerConfig:
    given = {
        "bootstrap.servers": "boot:9092,boot2:9093",
        "metadata.max.age.ms": str(MAX_AGE),
        "metadata.max.idle.ms": str(MAX_IDLE),
        "max.block.ms": str(MAX_BLOCK),
        "retry.backoff.ms": str(BACKOFF),
        "retry.backoff.max.ms": "1000",
    }
    return ProducerConfig.parse(given | {k.replace("_", "."): str(v) for k, v in options.items()})


SEED = Cluster(
    "cluster",
    {n.id: n for n in NODES},
    {"t": PartitionInfos.of("t", [PartitionInfo(TP, 1, 5)])},
    {"t": ID1},
    1,
)


class World:
    def __init__(self, seed: Cluster | None = None, clock: FakeClock | None = None) -> None:
        self.clock = FakeClock() if clock is None else clock
        # 0.5 is the middle of the spread: backoff is exactly 100, 200, 400, ...
        self.metadata = Metadata(config(), self.clock, seed, random=lambda: 0.5)

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    @property
    def due(self) -> int:
        return self.metadata.time_to_next_update(self.now)

    def ask(self) -> tuple[tuple[str, ...] | None, int]:
        assert self.due == 0
        request, token = self.metadata.new_request(self.now)
        return request.topics, token

    def update(self, *topics: TopicMetadata, nodes: tuple[Node, ...] = NODES) -> None:
        _, token = self.ask()
        self.metadata.update(token, answer(*topics, nodes=nodes), self.now)


# ---- when an update is due -----------------------------------------------------------------------


def test_nothing_is_asked_before_a_topic_is_used() -> None:
    world = World()
    assert world.due == NEVER
    assert [(n.id, n.host, n.port) for n in world.metadata.nodes()] == [
        (-1, "boot", 9092),
        (-2, "boot2", 9093),
    ]
    world.metadata.add_topics(["t"], world.now)
    assert world.ask()[0] == ("t",)


def test_a_shipped_cluster_asks_nothing_at_start() -> None:
    world = World(SEED)
    assert world.metadata.await_topics(["t"], world.now) is SEED
    assert world.due == MAX_AGE


def test_metadata_is_asked_again_at_max_age_and_not_before() -> None:
    """MetadataTest#testTimeToNextUpdate."""
    world = World(SEED)
    world.clock.advance(MAX_IDLE - 1)
    world.metadata.add_topics(["t"], world.now)
    world.clock.advance(MAX_AGE - MAX_IDLE)
    assert world.due == 1
    world.metadata.add_topics(["t"], world.now)
    world.clock.advance(1)
    world.update(topic("t", epoch=6))
    assert world.due == MAX_AGE


def test_topics_that_are_not_used_are_dropped_from_the_next_full_update() -> None:
    """MetadataTest#testTimeToNextUpdate, max.idle."""
    world = World(SEED)
    world.clock.advance(MAX_IDLE - 1)
    world.metadata.add_topics(["u"], world.now)
    assert world.ask()[0] == ("u",)
    world.metadata.update(world.ask()[1], answer(topic("u")), world.now)
    world.clock.advance(1)
    world.metadata.request_update()
    world.clock.advance(BACKOFF)
    topics, token = world.ask()
    assert topics == ("u",)
    assert set(world.metadata.fetch().topics) == {"u"}
    world.metadata.update(token, answer(topic("u")), world.now)
    assert set(world.metadata.fetch().topics) == {"u"}


def test_a_topic_that_was_never_fetched_is_not_dropped_for_idleness() -> None:
    """MetadataTest#testTimeToNextUpdate: max.idle is not honoured before the first fetch."""
    world = World()
    world.metadata.add_topics(["t"], world.now)
    world.clock.advance(MAX_IDLE + 1)
    assert world.ask()[0] == ("t",)


def test_failed_updates_back_off_exponentially_and_a_new_topic_does_not_wait() -> None:
    """MetadataTest#testTimeToNextUpdate."""
    world = World(SEED)
    world.metadata.request_update()
    for wait in (100, 200, 400, 800, 1000, 1000):
        world.ask()
        world.metadata.failed_update(world.now, None)
        assert world.due == wait
        world.clock.advance(wait)
    world.ask()
    world.metadata.failed_update(world.now, None)
    world.metadata.add_topics(["new"], world.now)
    assert world.due == 0


def test_answers_that_change_nothing_back_off_exponentially() -> None:
    """MetadataTest#testTimeToNextUpdate."""
    world = World(SEED)
    world.metadata.request_update()
    world.update(topic("t", epoch=6))
    for wait in (100, 100, 200, 400):
        world.metadata.request_update()
        assert world.due == wait
        world.clock.advance(wait)
        world.update(topic("t", epoch=6))
    world.metadata.request_update()
    assert world.due == 800
    world.clock.advance(800)
    world.update(topic("t", epoch=7))
    world.metadata.request_update()
    assert world.due == BACKOFF


def test_a_reply_without_nodes_is_a_failed_update() -> None:
    world = World(SEED)
    world.metadata.request_update()
    world.update(topic("t"), nodes=())
    assert world.metadata.fetch() is SEED
    assert world.due == BACKOFF


def test_a_partial_update_does_not_satisfy_a_full_request() -> None:
    """ProducerMetadataTest#testMetadataPartialUpdate."""
    world = World(SEED)
    world.metadata.add_topics(["u"], world.now)
    topics, token = world.ask()
    assert topics == ("u",)
    world.metadata.request_update()
    world.metadata.update(token, answer(topic("u")), world.now)
    assert set(world.metadata.fetch().topics) == {"t", "u"}
    assert world.due == BACKOFF
    world.clock.advance(BACKOFF)
    assert world.ask()[0] == ("t", "u")


def test_a_reply_to_an_outdated_request_leaves_the_wish_standing() -> None:
    """ProducerMetadataTest#testMetadataPartialUpdate."""
    world = World(SEED)
    world.metadata.request_update()
    _, token = world.ask()
    world.metadata.request_update()
    world.metadata.update(token, answer(topic("t", epoch=6)), world.now)
    assert world.due == BACKOFF
    world.clock.advance(BACKOFF)
    world.update(topic("t", epoch=6))
    assert world.due == MAX_AGE


def test_a_topic_added_while_a_request_is_under_way_is_asked_for_at_once() -> None:
    """ProducerMetadataTest#testMetadataPartialUpdate, MetadataTest#testTimeToNextUpdate."""
    world = World()
    world.metadata.add_topics(["a"], world.now)
    _, token = world.ask()
    world.metadata.add_topics(["b"], world.now)
    world.metadata.update(token, answer(topic("a")), world.now)
    assert world.ask()[0] == ("b",)


def test_while_parked_nothing_is_due() -> None:
    """Rule R4."""
    world = World(SEED)
    world.metadata.set_parked(parked=True)
    world.metadata.request_update()
    world.clock.advance(10 * MAX_AGE)
    assert world.due == NEVER
    world.metadata.set_parked(parked=False)
    assert world.due == 0


# ---- what an answer changes ----------------------------------------------------------------------


def test_an_older_leader_epoch_never_replaces_a_newer() -> None:
    """MetadataTest#testUpdateLastEpoch."""
    world = World(SEED)
    for leader, epoch, expected in ((2, 4, (1, 5)), (2, 5, (2, 5)), (1, 6, (1, 6)), (2, 3, (1, 6))):
        world.metadata.request_update()
        world.clock.advance(1_000)
        world.update(topic("t", (leader,), epoch))
        info = world.metadata.fetch().partition(TP)
        assert info is not None
        assert (info.leader, info.leader_epoch) == expected


def test_a_new_topic_id_resets_the_epoch_and_no_epoch_clears_it() -> None:
    """MetadataTest#testUpdateLastEpoch."""
    world = World(SEED)
    world.metadata.request_update()
    world.update(topic("t", (2,), epoch=0, topic_id=ID2))
    assert world.metadata.fetch().partition(TP) == PartitionInfo(TP, 2, 0, (1, 2))
    world.metadata.request_update()
    world.clock.advance(1_000)
    world.update(topic("t", (1,), epoch=-1, topic_id=ID2))
    assert world.metadata.fetch().partition(TP) == PartitionInfo(TP, 1, -1, (1, 2))


def test_a_partition_that_is_left_out_or_leaderless_has_no_leader() -> None:
    world = World(SEED)
    world.metadata.request_update()
    # As the decoder gives it: only partition 2 was named, and that without a leader.
    infos = [PartitionInfo(TopicPartition("t", p), -1) for p in range(3)]
    found = PartitionInfos.of("t", infos, {2: ErrorCode.LEADER_NOT_AVAILABLE})
    world.update(TopicMetadata(ErrorCode.NONE, "t", ID1, False, found))
    cluster = world.metadata.fetch()
    assert len(cluster.topics["t"]) == 3
    assert all(cluster.leader_for(TopicPartition("t", p)) is None for p in range(3))
    assert world.due == BACKOFF, "an election is under way: ask again"


def test_topics_that_nobody_uses_are_not_taken_from_an_answer() -> None:
    world = World(SEED)
    world.metadata.request_update()
    world.update(topic("t"), topic("stranger"))
    assert set(world.metadata.fetch().topics) == {"t"}


@pytest.mark.parametrize(
    ("tp", "leader", "epoch", "nodes", "taken"),
    [
        (TP, 2, 6, (), True),
        (TP, 3, 6, (Node(3, "three", 9092),), True),
        (TP, 2, 5, (), False),
        (TP, 3, 6, (), False),
        (TopicPartition("t", 1), 2, 6, (), False),
        (TopicPartition("u", 0), 2, 6, (), False),
    ],
    ids=["known node", "node in the hint", "same epoch", "unknown node", "partition", "topic"],
)
def test_a_leadership_hint_counts_only_when_it_is_news(
    tp: TopicPartition, leader: int, epoch: int, nodes: tuple[Node, ...], taken: bool
) -> None:
    """MetadataTest#testTopicMetadataOnUpdatePartitionLeadership."""
    world = World(SEED)
    assert world.metadata.update_leader(tp, leader, epoch, nodes) is taken
    found = world.metadata.fetch().leader_for(TP)
    assert found is not None
    assert found.id == (leader if taken else 1)


def test_rebootstrap_forgets_the_brokers_but_not_the_partitions() -> None:
    world = World(SEED)
    world.metadata.rebootstrap(world.now)
    assert [n.id for n in world.metadata.nodes()] == [-1, -2]
    assert len(world.metadata.fetch().topics["t"]) == 1
    assert world.metadata.fetch().leader_for(TP) is None
    world.update(topic("t", epoch=6))
    assert world.metadata.fetch().leader_for(TP) == NODES[0]


# ---- waiting -------------------------------------------------------------------------------------


class Wait:
    """await_topics on a thread of its own; the test answers on this one."""

    def __init__(self, world: World, *topics: str, until: int | None = None) -> None:
        self.world = world
        self.outcome: object = None
        deadline = world.now + MAX_BLOCK if until is None else until
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


def two_threads() -> World:
    return World(clock=FakeClock(threads=2))


def test_a_wait_ends_with_the_answer_that_brings_the_topic() -> None:
    world = two_threads()
    wait = Wait(world, "t", "u")
    wait.respond(topic("t"), topic("u", error=ErrorCode.LEADER_NOT_AVAILABLE))
    assert world.metadata.has_waiters
    wait.respond(topic("t"), topic("u"))
    assert wait.end() is world.metadata.fetch()
    assert not world.metadata.has_waiters


def test_a_topic_without_partitions_is_not_there_yet() -> None:
    """As in Java, whose Cluster knows a topic by its partitions: nothing can be sent to none."""
    world = two_threads()
    wait = Wait(world, "t")
    none = TopicMetadata(ErrorCode.NONE, "t", ID1, False, PartitionInfos.of("t", []))
    wait.respond(none)
    assert world.metadata.has_waiters
    wait.respond(topic("t"))
    assert len(wait.end().topics["t"]) == 1  # type: ignore[attr-defined]


def test_a_wait_unparks() -> None:
    world = World(clock=FakeClock(threads=2))
    world.metadata.set_parked(parked=True)
    wait = Wait(world, "t")
    wait.respond(topic("t"))
    assert isinstance(wait.end(), Cluster)


def test_an_unknown_topic_is_waited_for_and_the_error_tells_what_the_brokers_said() -> None:
    """KafkaProducerTest#testMetadataTimeoutWithMissingTopic; the text is Spark's sink's."""
    world = two_threads()
    wait = Wait(world, "t")
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
    world = two_threads()
    wait = Wait(world, "t")
    wait.step(lambda: world.metadata.failed_update(world.now, None))
    world.clock.advance(MAX_BLOCK)
    error = wait.end()
    assert isinstance(error, KafkaTimeoutError)
    assert error.message.startswith("no broker answered within 5000 ms; tried boot:9092: ")
    assert error.message.endswith("(Topic t not present in metadata after 5000 ms.)")
    assert "boot:9092: connection refused" in error.message


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
    """KafkaProducerTest#testMetadataTimeoutWithMissingTopic,
    MetadataTest#testTopicMetadataOnUpdatePartitionLeadership.
    """
    world = two_threads()
    wait = Wait(world, "bad")
    wait.respond(topic("bad", error=code))
    error = wait.end()
    assert isinstance(error, kind)
    assert "topic bad" in str(error)
    assert world.now < 1_000_000 + MAX_BLOCK
    wait = Wait(world, "t")
    wait.respond(topic("t"))
    assert isinstance(wait.end(), Cluster)


def test_a_refusal_that_was_mended_does_not_fail_a_later_wait() -> None:
    world = two_threads()
    wait = Wait(world, "t")
    wait.respond(topic("t", error=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    assert isinstance(wait.end(), AuthorizationError)
    wait = Wait(world, "t")
    wait.respond(topic("t"))
    assert isinstance(wait.end(), Cluster)


def test_a_failure_for_good_ends_all_waits() -> None:
    world = two_threads()
    wait = Wait(world, "t")
    refused = AuthenticationError("wrong password")
    wait.step(lambda: world.metadata.failed_update(world.now, refused))
    assert wait.end() is refused


def test_closing_ends_all_waits_and_refuses_new_ones() -> None:
    world = two_threads()
    wait = Wait(world, "t")
    closed = KafkaError("closed")
    wait.step(lambda: world.metadata.close(closed))
    assert wait.end() is closed
    with pytest.raises(KafkaError, match="closed"):
        world.metadata.await_topics(["t"], world.now + 1)
    assert world.due == NEVER


def test_an_address_that_stays_silent_is_told_next_to_those_that_failed() -> None:
    """A peer that accepts and never answers fails nothing until request.timeout.ms is over."""
    world = World()
    world.metadata.attach(lambda: None, lambda: {"boot:9092 (192.0.2.1)": "refused"})
    with pytest.raises(KafkaTimeoutError) as caught:
        world.metadata.await_topics(["t"], world.now)
    assert "tried boot:9092 (192.0.2.1): refused; boot2:9093: no answer (" in str(caught.value)


def test_a_broker_that_has_answered_is_not_called_silent() -> None:
    world = World(SEED)
    world.metadata.attach(lambda: None, lambda: {"one:9092": "refused"})
    assert world.metadata.addresses_tried() == "tried one:9092: refused"


def test_a_topic_of_a_row_cannot_break_the_message_into_lines() -> None:
    world = World()
    with pytest.raises(KafkaTimeoutError, match=r"\(Topic a\\nb not present"):
        world.metadata.await_topics(["a\nb"], world.now)


def test_a_deadline_that_has_come_does_not_block() -> None:
    world = World()
    with pytest.raises(KafkaTimeoutError):
        world.metadata.await_topics(["t"], world.now)


# ---- topics made anew, clusters, and what is told ------------------------------------------------


def test_a_topic_deleted_and_made_anew_begins_with_its_own_epochs() -> None:
    """MetadataTest#testUpdateLastEpoch."""
    world = World(SEED)
    world.metadata.request_update()
    world.update(topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert "t" not in world.metadata.fetch().topics
    world.clock.advance(1_000)
    world.update(topic("t", (2,), epoch=0, topic_id=ID2))
    cluster = world.metadata.fetch()
    assert cluster.partition(TP) == PartitionInfo(TP, 2, 0, (1, 2))
    assert cluster.topic_ids == {"t": ID2}
    assert world.metadata.update_leader(TP, 1, 1), "epoch 1 is news of the new topic"


def test_an_answer_without_topic_ids_keeps_to_the_epochs_that_were_seen() -> None:
    """MetadataTest#testUpdateLastEpoch: only another id says that it is another topic."""
    world = World(SEED)
    world.metadata.request_update()
    world.update(topic("t", (2,), epoch=3, topic_id=None))
    assert world.metadata.fetch().partition(TP) == SEED.partition(TP)


class Listener:
    def __init__(self, error: Exception | None = None) -> None:
        self.told: list[str] = []
        self._error = error

    def on_update(self, cluster_id: str) -> None:
        self.told.append(cluster_id)
        if self._error is not None:
            raise self._error


def answer_of(cluster_id: str | None) -> MetadataResponse:
    return MetadataResponse(NODES, cluster_id, 1, (topic("t"),))


def test_listeners_hear_of_each_cluster_id_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
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


def test_a_listener_is_told_of_the_cluster_that_was_shipped() -> None:
    listener = Listener()
    World(SEED).metadata.add_cluster_listener(listener)
    assert listener.told == ["cluster"]


def test_what_is_known_of_a_leader_is_said_and_no_more() -> None:
    world = World(SEED)
    known = world.metadata.leader_known
    assert known(TP) == "its leader is one:9092 (id 1)"
    assert known(TopicPartition("u", 0)) == "nothing is known of the partition now"
    world.metadata.request_update()
    world.update(topic("t", (1,), epoch=6), nodes=(NODES[1],))
    assert known(TP) == "its leader was broker 1, which is no longer in the metadata"
    world.metadata.rebootstrap(world.now)
    assert known(TP).startswith("its leader was broker 1; since then no known broker responded")
    world.clock.advance(1_000)
    world.update(topic("t", (-1,), epoch=7))
    assert known(TP) == "the partition has no leader in the last metadata response"


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


class UpdaterWorld(World):
    """The store with the updater that asks for it."""

    def __init__(self, seed: Cluster | None = None) -> None:
        super().__init__(seed)
        self.updater = MetadataUpdater(
            self.metadata, Carrier(), retry_ms=50, rebootstrap_trigger_ms=10_000
        )

    def respond(self, response: MetadataResponse) -> None:
        self.metadata.request_update()
        self.clock.advance(1_000)
        assert self.updater.maybe_update(self.now) == NEVER
        self.updater.handle_response(response, self.now)


def test_a_missing_listener_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    world = UpdaterWorld(SEED)

    def without_listener(*partitions: int) -> MetadataResponse:
        infos = [PartitionInfo(TopicPartition("t", p), -1, 6, (1,)) for p in range(2)]
        errors = dict.fromkeys(partitions, ErrorCode.LISTENER_NOT_FOUND)
        found = PartitionInfos.of("t", infos, errors)
        return answer(TopicMetadata(ErrorCode.NONE, "t", ID1, False, found))

    for partitions in ((0,), (0,), (), (0,), (0, 1)):
        world.respond(without_listener(*partitions))
    warnings = [r.getMessage() for r in caplog.records if "no listener" in r.getMessage()]
    assert len(warnings) == 2
    assert "t-0" in warnings[0]
    assert "t-1" in warnings[1]


def test_a_broker_that_asks_for_it_sends_the_store_back_to_the_bootstrap_servers() -> None:
    """NetworkClientTest#testRebootstrap, error 129 (KIP-1102)."""
    world = UpdaterWorld(SEED)
    required = ErrorCode.REBOOTSTRAP_REQUIRED
    world.respond(MetadataResponse(Nodes.of(()), None, -1, (), error=required))
    assert world.updater.time_to_rebootstrap(world.now) == 0
    world.updater.rebootstrap(world.now)
    assert [n.id for n in world.metadata.nodes()] == [-1, -2]
    assert world.updater.time_to_rebootstrap(world.now) > 0


def test_metadata_in_vain_for_the_triggers_time_starts_again_from_bootstrap() -> None:
    """NetworkClientTest#testRebootstrap, metadata.recovery.rebootstrap.trigger.ms (KIP-1102)."""
    world = UpdaterWorld(SEED)
    world.metadata.request_update()
    assert world.updater.maybe_update(world.now) == NEVER
    world.clock.advance(10_000)
    assert world.updater.time_to_rebootstrap(world.now) > 0
    world.clock.advance(1)
    assert world.updater.time_to_rebootstrap(world.now) == 0


def test_a_reply_without_nodes_is_no_answer_to_the_triggers_clock() -> None:
    """NetworkClientTest#testRebootstrap: a failed update does not start the time anew."""
    world = UpdaterWorld(SEED)
    for _ in range(10):
        world.respond(answer(topic("t"), nodes=()))
    assert world.metadata.fetch() is SEED
    world.clock.advance(2_000)
    assert world.updater.time_to_rebootstrap(world.now) == 0


def test_an_interceptor_that_wants_the_clusters_id_is_told_it() -> None:
    class Asking(Listener):
        def on_acknowledgement(self, metadata: object, error: object) -> None:
            """Makes it an interceptor."""

    asking = Asking()
    options = {"bootstrap.servers": "one:9092", "interceptor.classes": [asking]}
    producer = KafkaProducer(options, cluster=SEED, client=AnsweringClient(SEED))
    producer.close(0)
    assert asking.told == ["cluster"]


# ---- the words of the sender ---------------------------------------------------------------------


def test_a_batch_that_expires_after_its_broker_died_does_not_say_that_it_has_no_leader() -> None:
    with SenderWorld(cluster=cluster_of([1, 1, 2])) as world:
        world.metadata.rebootstrap(world.clock.now_ms())
        batch = world.append()
        world.clock.advance(120_000)
        world.sender.run()
        assert batch.error is not None
        assert (
            "its leader was broker 1; since then no known broker responded" in batch.error.message
        )
        assert "no leader" not in batch.error.message


def test_a_broker_that_refuses_an_id_is_named_also_after_a_rebootstrap() -> None:
    with SenderWorld(with_id=False) as world:
        world.client.prepare(
            InitProducerIdRequest,
            InitProducerIdResponse(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, -1, -1),
        )
        asked = world.client.poll

        def poll(timeout_ms: int, now: int) -> Sequence[ClientResponse]:
            world.metadata.rebootstrap(now)  # between the request and its answer
            return asked(timeout_ms, now)

        world.client.poll = poll  # type: ignore[method-assign]
        world.append()
        world.round(2)
        assert world.sender.fatal_error is not None
        assert "InitProducerId on broker one:9092 (id 1)" in str(world.sender.fatal_error)
