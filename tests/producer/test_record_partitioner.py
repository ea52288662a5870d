"""The partition of a single record: keys as by columns, sticky as KIP-794 says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.producer.send.record_partitioner import (
    ColumnsPartitioner,
    RecordPartitioner,
    StickyPartition,
)
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.records.partitioning.key_rules import IGNORED, KEY_RULES, Choice
from spark_kafka_sink.records.partitioning.partitioners import RoundRobinPartitioner
from spark_kafka_sink.records.partitioning.partitioners import partitioner as by_name
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.fakes.accumulator_world import World, cluster_of


def partitioner_of(cluster: Cluster, size: int = 3, **options: object) -> RecordPartitioner:
    return RecordPartitioner(lambda: cluster, lambda topic: size, **options)  # type: ignore[arg-type]


def choice(partitioner: RecordPartitioner, cluster: Cluster, key: bytes | None = None) -> object:
    return partitioner.partition("test", key, b"v", cluster.topics["test"])


@pytest.mark.parametrize("name", sorted(KEY_RULES))
@settings(max_examples=40, deadline=None)
@given(key=st.one_of(st.none(), st.just(b""), st.binary(max_size=80)))
def test_a_single_record_goes_where_its_column_would(name: str, key: bytes | None):
    """DefaultPartitionerTest#testKeyPartitionIsStable. Only partition 5 has a leader, so that load
    and chance have no choice either.
    """
    cluster = cluster_of([-1, -1, -1, -1, -1, 1, -1])
    alone = partitioner_of(cluster, rule=KEY_RULES[name])
    columns = RecordColumns(1, "test", key=pa.array([key], pa.binary()))
    views = {"test": TopicView.of(cluster, "test", 3)}
    try:
        by_columns = by_name(name).assign(columns, views, lambda tp: None).tolist()
    except DataError:
        with pytest.raises(DataError):
            choice(alone, cluster, key)
        return
    found = choice(alone, cluster, key)
    assert [found.partition if isinstance(found, StickyPartition) else found] == by_columns
    assert isinstance(found, StickyPartition) == (KEY_RULES[name].choice(key) is Choice.STICKY)


def test_random_rolls_the_dice_for_each_record():
    cluster = cluster_of([1, -1, 2, 1])
    anywhere = partitioner_of(cluster, rule=KEY_RULES["random"])
    assert {choice(anywhere, cluster, b"same") for _ in range(200)} == {0, 2, 3}


def appended(partitioner: RecordPartitioner, cluster: Cluster, size: int = 1) -> int:
    """One record without a key into a queue whose batches are all full."""
    sticky = choice(partitioner, cluster)
    assert isinstance(sticky, StickyPartition)
    assert not sticky.changed(all_full=False)
    sticky.appended(size, all_full=True)
    return sticky.partition


def test_a_sticky_partition_stays_until_it_has_had_enough():
    """BuiltInPartitionerTest#testStickyPartitioning."""
    cluster = cluster_of([1, 2, 1])
    partitioner = partitioner_of(cluster)
    chosen = [appended(partitioner, cluster) for _ in range(300)]
    for first in range(0, 300, 3):
        assert len(set(chosen[first : first + 3])) == 1
    assert set(chosen) == {0, 1, 2}
    single = cluster_of([1])
    assert {appended(partitioner_of(single), single) for _ in range(9)} == {0}


def test_an_open_batch_puts_the_switch_off_until_twice_the_size():
    cluster = cluster_of([1] * 50)
    partitioner = partitioner_of(cluster)
    sticky = choice(partitioner, cluster)
    assert isinstance(sticky, StickyPartition)
    for _ in range(5):
        sticky.appended(1, all_full=False)
        assert not sticky.changed(all_full=False)
    sticky.appended(1, all_full=False)
    assert sticky.changed(all_full=False)


def test_a_delayed_switch_happens_once_when_all_batches_are_full():
    """The next record notices it before it is appended, and asks again (partitionChanged)."""
    cluster = cluster_of([1] * 50)
    partitioner = partitioner_of(cluster)
    sticky = choice(partitioner, cluster)
    assert isinstance(sticky, StickyPartition)
    sticky.appended(3, all_full=False)
    assert not sticky.changed(all_full=False)
    assert sticky.changed(all_full=True)
    assert choice(partitioner, cluster) is not sticky


def test_leaderless_partitions_are_avoided_if_others_have_one():
    """BuiltInPartitionerTest#unavailablePartitionsTest."""
    some = cluster_of([1, -1, 2, -1])
    assert set(Counter(appended(partitioner_of(some), some) for _ in range(200))) == {0, 2}
    none = cluster_of([-1, -1])
    assert set(Counter(appended(partitioner_of(none), none) for _ in range(200))) == {0, 1}


def test_keys_can_be_ignored():
    cluster = cluster_of([1, 2, 1])
    found = choice(partitioner_of(cluster, rule=IGNORED), cluster, b"key")
    assert isinstance(found, StickyPartition)


class LastByte:
    """A user's own partitioner."""

    def partition(
        self, topic: str, keys: pa.Array, values: pa.Array, count: int, available: Sequence[int]
    ) -> list[int]:
        return [key[-1] % count for key in keys.to_pylist()]


def test_a_partitioner_for_columns_only_is_called_row_by_row():
    cluster = cluster_of([1, 2, 1])
    own = ColumnsPartitioner(by_name(f"{__name__}:LastByte"), World().filler)
    partitioner = partitioner_of(cluster, own=own)
    assert [choice(partitioner, cluster, b"key %d" % n) for n in range(6)] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("leaders", [[1, 2, 1, 2], [1, -1, 2, 1], [-1, -1, -1]])
def test_records_and_columns_take_the_same_turns(leaders: list[int]):
    cluster = cluster_of(leaders)
    turns = RoundRobinPartitioner()
    alone = partitioner_of(cluster, own=ColumnsPartitioner(turns, World().filler))
    views = {"test": TopicView.of(cluster, "test", 3)}
    found: list[object] = [choice(alone, cluster, b"key") for _ in range(5)]
    found += turns.assign(RecordColumns(7, "test"), views, lambda tp: None).tolist()
    found += [choice(alone, cluster, None) for _ in range(4)]
    among = [i for i, leader in enumerate(leaders) if leader >= 0] or list(range(len(leaders)))
    start = among.index(found[0])  # type: ignore[arg-type]
    assert found == [among[(start + n) % len(among)] for n in range(16)]


def test_hashes_of_keys_are_remembered_within_a_bound():
    """A hash is the same whether it was remembered, forgotten or never kept."""
    cluster = cluster_of([1] * 7)
    partitioner = partitioner_of(cluster)
    long = b"x" * 65
    first = [partitioner.number(key) for key in (b"a", long)]
    assert partitioner.numbers is not None
    assert set(partitioner.numbers) == {b"a"}
    for n in range(66_000):
        partitioner.number(b"%d" % n)
    assert 0 < len(partitioner.numbers) < 66_000
    assert b"a" not in partitioner.numbers
    assert [partitioner.number(key) for key in (b"a", long)] == first


def test_a_topic_without_metadata_begins_with_partition_0():
    """The other partitions are not known yet."""
    nowhere = partitioner_of(cluster_of([1] * 9), rule=KEY_RULES["random"])
    known = cluster_of([1] * 9).topics["test"]
    assert nowhere.partition("other", b"k", b"v", known) == 0
