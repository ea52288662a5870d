"""What is known of a cluster is kept as columns, and reads as the objects that it represents."""

from __future__ import annotations

import pickle
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.protocol.cluster import (
    Cluster,
    Node,
    Nodes,
    NodesBuilder,
    PartitionInfo,
    PartitionInfos,
    TopicPartition,
)

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
TEXT = st.text(max_size=20)


@st.composite
def infos(draw: st.DrawFn) -> list[PartitionInfo]:
    return [
        PartitionInfo(
            TopicPartition("t", number),
            draw(st.integers(-1, 2**31 - 1)),
            draw(st.integers(-1, 2**31 - 1)),
            draw(IDS),
            draw(IDS),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


NODES = st.lists(
    st.builds(Node, st.integers(0, 2**31 - 1), TEXT, st.integers(0, 65535), st.none() | TEXT),
    max_size=8,
    unique_by=lambda node: node.id,
)


@given(infos())
def test_partitions_read_as_they_were_given(given_: list[PartitionInfo]) -> None:
    partitions = PartitionInfos.of("t", given_)
    assert list(partitions) == given_
    assert len(partitions) == len(given_)
    assert partitions[1:] == tuple(given_[1:])
    assert partitions == pickle.loads(pickle.dumps(partitions))
    assert [*partitions.available] == [i for i, info in enumerate(given_) if info.leader >= 0]
    assert list(partitions.leader_epochs()) == [info.leader_epoch for info in given_]
    for number, info in enumerate(given_):
        assert partitions[number] == partitions[number - len(given_)] == info
        assert partitions.tps[number] == info.tp
        assert partitions.leader(number) == info.leader
        assert partitions.leader_epochs()[number] == info.leader_epoch
    with pytest.raises(IndexError):
        partitions[len(given_)]


@given(infos(), infos())
def test_partitions_are_equal_when_they_say_the_same(
    one: list[PartitionInfo], other: list[PartitionInfo]
) -> None:
    assert (PartitionInfos.of("t", one) == PartitionInfos.of("t", other)) == (one == other)


def test_the_error_of_an_answer_is_not_part_of_what_is_known() -> None:
    given_ = [PartitionInfo(TopicPartition("t", n), 1) for n in range(3)]
    refused = PartitionInfos.of("t", given_, {1: 5, 2: -1})
    assert list(refused.errors()) == [(1, 5), (2, -1)]
    assert list(PartitionInfos.of("t", given_).errors()) == []
    assert refused == PartitionInfos.of("t", given_)
    assert refused != PartitionInfos("u", array("i"), array("i"))
    assert refused != given_


def test_another_leader_is_another_object() -> None:
    given_ = [PartitionInfo(TopicPartition("t", n), 1, 1, (1, 2)) for n in range(3)]
    before = PartitionInfos.of("t", given_)
    after = before.with_leader(1, 7, 9)
    assert after[1] == PartitionInfo(TopicPartition("t", 1), 7, 9, (1, 2))
    assert (after[0], after[2], before[1]) == (given_[0], given_[2], given_[1])
    assert before.with_leader(2, -1, 2).available == (0, 1)


def test_partitions_that_all_have_a_leader_are_a_range() -> None:
    """As numbers, those of a topic of 10 000 take more memory than all else that is known of it."""
    given_ = [PartitionInfo(TopicPartition("t", n), 1) for n in range(3)]
    assert PartitionInfos.of("t", given_).available == range(3)


def test_partitions_stand_in_the_order_of_their_numbers() -> None:
    for wrong in (TopicPartition("t", 1), TopicPartition("u", 0)):
        with pytest.raises(ValueError, match="is where t-0 belongs"):
            PartitionInfos.of("t", [PartitionInfo(wrong, 1)])


@given(NODES)
def test_nodes_read_as_they_were_given_in_the_order_of_their_ids(given_: list[Node]) -> None:
    nodes = Nodes.of(given_)
    expected = {node.id: node for node in sorted(given_, key=lambda node: node.id)}
    assert dict(nodes) == expected
    assert list(nodes) == list(expected)
    assert nodes == expected
    assert nodes == Nodes.of(reversed(given_)) == pickle.loads(pickle.dumps(nodes))
    assert list(nodes.in_order()) == list(nodes.values()) == list(expected.values())
    assert nodes.in_order()[1:] == tuple(expected.values())[1:]
    missing = next(n for n in range(10) if n not in expected)
    assert missing not in nodes
    assert nodes.get(missing) is None
    assert "one" not in nodes


@given(NODES, NODES)
def test_nodes_are_equal_when_they_say_the_same(one: list[Node], other: list[Node]) -> None:
    by_id = [{node.id: node for node in nodes} for nodes in (one, other)]
    assert (Nodes.of(one) == Nodes.of(other)) == (by_id[0] == by_id[1])


def test_a_node_added_twice_is_an_error_and_the_last_given_wins() -> None:
    builder = NodesBuilder()
    for port in (1, 2):
        builder.add(Node(7, "h", port))
    with pytest.raises(ValueError, match="broker 7 comes twice"):
        builder.build()
    assert Nodes.of((Node(7, "h", 1), Node(7, "h", 2)))[7].port == 2


def test_a_node_is_made_once_and_so_are_a_hundred_of_many() -> None:
    nodes = Nodes.of(Node(n, "h", n) for n in range(2000))
    assert nodes[5] is nodes[5]
    assert sum(nodes[n] is nodes[n] for n in range(2000)) == 128


def test_a_leader_is_known_or_is_not() -> None:
    given_ = [PartitionInfo(TopicPartition("t", n), leader) for n, leader in enumerate((1, -1, 9))]
    cluster = Cluster(nodes={1: Node(1, "h", 1)}, topics={"t": PartitionInfos.of("t", given_)})
    leaders = [cluster.leader_for(TopicPartition("t", n)) for n in range(-1, 4)]
    assert leaders == [None, Node(1, "h", 1), None, None, None]
    assert [cluster.leader(TopicPartition("t", n)) for n in range(-1, 4)] == [-1, 1, -1, 9, -1]
    assert cluster.leader_for(TopicPartition("u", 0)) is None
    assert cluster.partition(TopicPartition("t", 3)) is None
    assert len(cluster.topics["t"]) == 3
    assert "u" not in cluster.topics
