"""Metadata: when an update is due, and what a response changes (Java: MetadataTest)."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import Node, PartitionInfo, PartitionInfos, TopicPartition
from spark_kafka_sink.protocol.metadata import TopicMetadata
from tests.producer.metadata_world import (
    BACKOFF,
    ID1,
    ID2,
    MAX_AGE,
    MAX_IDLE,
    SEED,
    TP,
    MetadataWorld,
    answer,
    topic,
)


def test_nothing_is_asked_before_a_topic_is_used() -> None:
    world = MetadataWorld()
    assert world.due == NEVER
    assert [(n.id, n.host, n.port) for n in world.metadata.nodes()] == [
        (-1, "boot", 9092),
        (-2, "boot2", 9093),
    ]
    world.metadata.add_topics(["t"], world.now)
    assert world.ask()[0] == ("t",)


def test_a_shipped_cluster_asks_nothing_at_start() -> None:
    world = MetadataWorld(SEED)
    assert world.metadata.await_topics(["t"], world.now) is SEED
    assert world.due == MAX_AGE


def test_metadata_is_asked_again_at_max_age_and_not_before() -> None:
    """MetadataTest#testTimeToNextUpdate."""
    world = MetadataWorld(SEED)
    world.clock.advance(MAX_IDLE - 1)
    world.metadata.add_topics(["t"], world.now)
    world.clock.advance(MAX_AGE - MAX_IDLE)
    assert world.due == 1
    world.metadata.add_topics(["t"], world.now)
    world.clock.advance(1)
    world.update(topic("t", epoch=6))
    assert world.due == MAX_AGE


def test_unused_topics_are_dropped_by_the_next_full_update() -> None:
    """ProducerMetadataTest#testTopicExpiry."""
    world = MetadataWorld(SEED)
    world.clock.advance(MAX_IDLE - 1)
    world.metadata.add_topics(["u"], world.now)
    assert world.ask()[0] == ("u",)
    world.metadata.update(world.ask()[1], answer(topic("u")), world.now)
    world.clock.advance(1)
    world.metadata.request_update()
    world.clock.advance(BACKOFF)
    topics, token = world.ask()
    assert topics == ("u",)
    assert set(world.metadata.cluster.topics) == {"u"}
    world.metadata.update(token, answer(topic("u")), world.now)
    assert set(world.metadata.cluster.topics) == {"u"}


def test_a_topic_never_fetched_is_not_dropped_as_idle() -> None:
    """ProducerMetadataTest#testTopicExpiry: max.idle is not honoured before the first fetch."""
    world = MetadataWorld()
    world.metadata.add_topics(["t"], world.now)
    world.clock.advance(MAX_IDLE + 1)
    assert world.ask()[0] == ("t",)


def test_failed_updates_back_off_and_a_new_topic_does_not() -> None:
    """MetadataTest#testTimeToNextUpdateRetryBackoff,
    ProducerMetadataTest#testTimeToNextUpdateOverwriteBackoff.
    """
    world = MetadataWorld(SEED)
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
    """ProducerMetadataTest#testMetadataEquivalentResponsesBackoff."""
    world = MetadataWorld(SEED)
    world.refresh(topic("t", epoch=6))
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
    """MetadataTest#testFailedUpdate."""
    world = MetadataWorld(SEED)
    world.refresh(topic("t"), nodes=())
    assert world.metadata.cluster is SEED
    assert world.due == BACKOFF


def test_a_partial_update_does_not_satisfy_a_full_request() -> None:
    """ProducerMetadataTest#testMetadataPartialUpdate."""
    world = MetadataWorld(SEED)
    world.metadata.add_topics(["u"], world.now)
    topics, token = world.ask()
    assert topics == ("u",)
    world.metadata.request_update()
    world.metadata.update(token, answer(topic("u")), world.now)
    assert set(world.metadata.cluster.topics) == {"t", "u"}
    assert world.due == BACKOFF
    world.clock.advance(BACKOFF)
    assert world.ask()[0] == ("t", "u")


def test_a_reply_to_an_outdated_request_leaves_the_wish_standing() -> None:
    """ProducerMetadataTest#testMetadataPartialUpdate."""
    world = MetadataWorld(SEED)
    world.metadata.request_update()
    _, token = world.ask()
    world.metadata.request_update()
    world.metadata.update(token, answer(topic("t", epoch=6)), world.now)
    assert world.due == BACKOFF
    world.clock.advance(BACKOFF)
    world.update(topic("t", epoch=6))
    assert world.due == MAX_AGE


def test_a_topic_added_during_a_request_is_requested_at_once() -> None:
    """ProducerMetadataTest#testMetadataPartialUpdate,
    ProducerMetadataTest#testRequestUpdateForTopic.
    """
    world = MetadataWorld()
    world.metadata.add_topics(["a"], world.now)
    _, token = world.ask()
    world.metadata.add_topics(["b"], world.now)
    world.metadata.update(token, answer(topic("a")), world.now)
    assert world.ask()[0] == ("b",)


def test_while_parked_nothing_is_due() -> None:
    """Rule R4."""
    world = MetadataWorld(SEED)
    world.metadata.set_parked(parked=True)
    world.metadata.request_update()
    world.clock.advance(10 * MAX_AGE)
    assert world.due == NEVER
    world.metadata.set_parked(parked=False)
    assert world.due == 0


# ---- what a response changes ---------------------------------------------------------------------


def test_an_older_leader_epoch_never_replaces_a_newer() -> None:
    """MetadataTest#testUpdateLastEpoch, MetadataTest#testRejectOldMetadata."""
    world = MetadataWorld(SEED)
    for leader, epoch, expected in ((2, 4, (1, 5)), (2, 5, (2, 5)), (1, 6, (1, 6)), (2, 3, (1, 6))):
        world.metadata.request_update()
        world.clock.advance(1_000)
        world.update(topic("t", (leader,), epoch))
        info = world.metadata.cluster.partition(TP)
        assert info is not None
        assert (info.leader, info.leader_epoch) == expected


def test_a_new_topic_id_resets_the_epoch_and_no_epoch_clears_it() -> None:
    """MetadataTest#testEpochUpdateOnChangedTopicIds, MetadataTest#testNoEpoch."""
    world = MetadataWorld(SEED)
    world.refresh(topic("t", (2,), epoch=0, topic_id=ID2))
    assert world.metadata.cluster.partition(TP) == PartitionInfo(TP, 2, 0, (1, 2))
    world.metadata.request_update()
    world.clock.advance(1_000)
    world.update(topic("t", (1,), epoch=-1, topic_id=ID2))
    assert world.metadata.cluster.partition(TP) == PartitionInfo(TP, 1, -1, (1, 2))


def test_a_recreated_topic_has_its_own_epochs() -> None:
    """MetadataTest#testEpochUpdateAfterTopicDeletion."""
    world = MetadataWorld(SEED)
    world.refresh(topic("t", error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert "t" not in world.metadata.cluster.topics
    world.clock.advance(1_000)
    world.update(topic("t", (2,), epoch=0, topic_id=ID2))
    cluster = world.metadata.cluster
    assert cluster.partition(TP) == PartitionInfo(TP, 2, 0, (1, 2))
    assert cluster.topic_ids == {"t": ID2}
    assert world.metadata.update_leader(TP, 1, 1), "epoch 1 is news of the new topic"


def test_without_topic_ids_the_seen_epochs_are_kept() -> None:
    """MetadataTest#testMetadataMergeOnIdDowngrade: only another id makes it another topic."""
    world = MetadataWorld(SEED)
    world.refresh(topic("t", (2,), epoch=3, topic_id=None))
    assert world.metadata.cluster.partition(TP) == SEED.partition(TP)


def test_an_omitted_or_leaderless_partition_has_no_leader() -> None:
    world = MetadataWorld(SEED)
    world.metadata.request_update()
    # As the decoder gives it: only partition 2 was named, and that without a leader.
    infos = [PartitionInfo(TopicPartition("t", p), -1) for p in range(3)]
    found = PartitionInfos.of("t", infos, {2: ErrorCode.LEADER_NOT_AVAILABLE})
    world.update(TopicMetadata(ErrorCode.NONE, "t", ID1, False, found))
    cluster = world.metadata.cluster
    assert len(cluster.topics["t"]) == 3
    assert all(cluster.leader_for(TopicPartition("t", p)) is None for p in range(3))
    assert world.due == BACKOFF, "an election is under way: ask again"


def test_unused_topics_of_an_answer_are_ignored() -> None:
    world = MetadataWorld(SEED)
    world.refresh(topic("t"), topic("stranger"))
    assert set(world.metadata.cluster.topics) == {"t"}


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
    world = MetadataWorld(SEED)
    assert world.metadata.update_leader(tp, leader, epoch, nodes) is taken
    found = world.metadata.cluster.leader_for(TP)
    assert found is not None
    assert found.id == (leader if taken else 1)
