"""Which partition rows go to: sticky pieces, missing numbers, Java's class names.

Keys are in ``test_records_key_rules.py``.
"""

import random
from collections import Counter
from itertools import count

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.protocol.cluster import (
    Cluster,
    Node,
    PartitionInfo,
    PartitionInfos,
    TopicPartition,
)
from spark_kafka_sink.records.encoded_slice import OpenPosition
from spark_kafka_sink.records.partitioning.partitioners import (
    BuiltInPartitioner,
    RoundRobinPartitioner,
    partitioner,
)
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_columns import RecordColumns
from spark_kafka_sink.records.record_encoder import encode_groups, group_rows

LIMIT = 1000


class InTurn(random.Random):
    """Each partition once before one comes again: two pieces in one look like a longer one."""

    def __init__(self):
        super().__init__()
        self._turns = count()

    def choice(self, among):
        return among[next(self._turns) % len(among)]


def no_batches(tp):
    return None


def view(count=4, available=None, limit=LIMIT):
    return TopicView(count, tuple(range(count)) if available is None else available, limit)


def rows(n, size=90, **columns):
    return RecordColumns(n, "t", value=pa.array([b"v" * size] * n), **columns)


def runs(partitions):
    """(partition, length) of each stretch of equal partitions."""
    cuts = np.flatnonzero(np.diff(partitions)) + 1
    return [(int(p[0]), len(p)) for p in np.split(partitions, cuts)]


# ---- explicit partitions -----------------------------------------------------------------------


def test_a_missing_partition_names_count_topic_and_row():
    names = pa.array(["a", "b", "b"]).dictionary_encode()
    columns = RecordColumns(3, names, partition=np.array([3, -1, 3], np.int32), first_row=10)
    with pytest.raises(DataError) as caught:
        BuiltInPartitioner().assign(columns, {"a": view(4), "b": view(3)}, no_batches)
    assert caught.value.message == (
        "Partition 3 of topic b with partition count 3 is not present in metadata"
        " (row 12 of the Arrow batch)."
    )


# ---- sticky --------------------------------------------------------------------------------------


def test_null_keys_go_in_pieces_of_a_batch_each():
    got = BuiltInPartitioner(rng=InTurn()).assign(rows(100), {"t": view(1000)}, no_batches)
    # A record has 90 bytes and 8 to 9 around them: ten fill a batch of 1000.
    assert {length for _, length in runs(got)[:-1]} == {10}


def test_pieces_go_on_over_calls():
    sticky = BuiltInPartitioner(rng=InTurn())
    appended = Counter()

    def open_room(tp):
        return LIMIT - 98 * appended[tp.partition] if appended[tp.partition] else None

    parts = []
    for _ in range(25):
        parts.append(sticky.assign(rows(4), {"t": view(1000)}, open_room))
        appended.update(parts[-1].tolist())
    assert {length for _, length in runs(np.concatenate(parts))[:-1]} == {10}


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 400), min_size=1, max_size=60))
def test_no_piece_cuts_a_batch_into_fractions(lengths):
    columns = RecordColumns(len(lengths), "t", value=pa.array([b"v" * n for n in lengths]))
    got = BuiltInPartitioner(rng=InTurn()).assign(columns, {"t": view(10_000)}, no_batches)
    groups = group_rows(columns, got)
    slices = encode_groups(
        columns,
        groups,
        [OpenPosition(0, 0, 0, 0)] * len(groups.tps),
        LIMIT,
        10**12,
        max_request_size=2**31 - 1,
    )
    assert len(slices) == len(runs(got))
    for piece in slices:
        assert len(piece.data) <= LIMIT or piece.record_count == 1


def test_a_piece_fills_the_open_batch_then_a_whole_one():
    sticky = BuiltInPartitioner(rng=InTurn())
    # 300 of 1000 bytes are left in the open batch, filled by keyed rows: after 300 bytes the batch
    # is full, but batch.size is not produced; so the next batch is filled too.
    got = sticky.assign(rows(40), {"t": view(1000)}, lambda tp: 300)
    assert runs(got)[0][1] == 13


def test_a_partition_gets_at_most_twice_batch_size():
    sticky = BuiltInPartitioner(rng=InTurn())
    sticky.assign(rows(9), {"t": view(1000)}, no_batches)  # about 890 bytes
    got = sticky.assign(rows(40), {"t": view(1000)}, lambda tp: 900)
    # Full at 890 + 900; twice batch.size is 2000.
    assert runs(got)[0][1] == 9


def test_one_partition_takes_everything():
    got = BuiltInPartitioner().assign(rows(500), {"t": view(1)}, no_batches)
    assert set(got.tolist()) == {0}


def test_leaderless_partitions_are_chosen_only_when_all_are():
    for _ in range(20):
        sticky = BuiltInPartitioner()
        got = sticky.assign(rows(200), {"t": view(10, available=(3, 7))}, no_batches)
        assert set(got.tolist()) <= {3, 7}
    got = BuiltInPartitioner().assign(rows(2000), {"t": view(4, available=())}, no_batches)
    assert set(got.tolist()) == {0, 1, 2, 3}


def test_a_sticky_partition_that_lost_its_leader_is_left():
    sticky = BuiltInPartitioner()
    first = int(sticky.assign(rows(1), {"t": view(2)}, no_batches)[0])
    other = 1 - first
    got = sticky.assign(rows(3), {"t": view(2, available=(other,))}, no_batches)
    assert got.tolist() == [other] * 3


def test_tasks_start_anywhere():
    starts = Counter(
        int(BuiltInPartitioner().assign(rows(1), {"t": view(8)}, no_batches)[0]) for _ in range(400)
    )
    assert len(starts) == 8


def test_the_choice_follows_the_weights():
    weigh = BuiltInPartitioner(candidates=lambda topic, available: (available, [0, 1, 0, 0]))
    got = weigh.assign(rows(100), {"t": view()}, no_batches)
    assert set(got.tolist()) == {1}


def test_null_keys_of_several_topics_stick_each_on_their_own():
    names = pa.array(["a", "b"] * 30).dictionary_encode()
    columns = RecordColumns(60, names, value=pa.array([b"v" * 90] * 60))
    views = {"a": view(1000), "b": view(1000)}
    got = BuiltInPartitioner(rng=InTurn()).assign(columns, views, no_batches)
    for of_topic in (got[::2], got[1::2]):
        assert {length for _, length in runs(of_topic)} == {10}


def test_ignored_keys_stick():
    columns = rows(30, key=pa.array([str(i).encode() for i in range(30)]))
    got = partitioner(None, ignore_keys=True).assign(columns, {"t": view(1000)}, no_batches)
    assert len(runs(got)) <= 4


def test_only_rows_without_a_key_are_cut_into_pieces():
    n = 100
    keys = [b"21" if i % 2 else None for i in range(n)]
    columns = rows(n, key=pa.array(keys))
    got = BuiltInPartitioner().assign(columns, {"t": view(1000)}, no_batches)
    assert set(got[1::2].tolist()) == {1173551340 % 1000}
    assert len(runs(got[::2])) <= 6


# ---- the others ----------------------------------------------------------------------------------


def test_round_robin_continues_over_available_partitions():
    robin = RoundRobinPartitioner()
    views = {"t": view(10, available=(2, 5, 9))}
    keys = pa.array([b"same"] * 7)
    calls = [robin.assign(rows(7, key=keys), views, no_batches)]
    calls.append(robin.assign(rows(5), views, no_batches))
    got = np.concatenate(calls).tolist()
    assert Counter(got) == {2: 4, 5: 4, 9: 4}
    assert all({*got[i : i + 3]} == {2, 5, 9} for i in range(10))


def test_round_robin_respects_explicit_partitions():
    columns = rows(4, partition=np.array([-1, 1, -1, 1], np.int32))
    got = RoundRobinPartitioner().assign(columns, {"t": view(2)}, no_batches)
    assert got[[1, 3]].tolist() == [1, 1]
    assert sorted(got[[0, 2]].tolist()) == [0, 1]


def test_a_partitioner_is_made_by_its_name_in_a_configuration():
    assert isinstance(partitioner(None), BuiltInPartitioner)
    assert isinstance(partitioner("RoundRobinPartitioner"), RoundRobinPartitioner)


def test_a_view_knows_who_has_a_leader():
    infos = [PartitionInfo(TopicPartition("t", i), leader) for i, leader in enumerate((1, -1, 1))]
    topics = {"t": PartitionInfos.of("t", infos)}
    cluster = Cluster(nodes={1: Node(1, "h", 1)}, topics=topics)
    assert TopicView.of(cluster, "t", 5) == TopicView(3, (0, 2), 5)


def test_no_rows_have_no_partitions():
    assert len(BuiltInPartitioner().assign(RecordColumns(0, "t"), {"t": view()}, no_batches)) == 0
