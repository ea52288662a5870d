"""by_leader: each row's partition as the write would choose it, and a task for each partition."""

from __future__ import annotations

from collections import defaultdict

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.named_columns import JsonOptions
from spark_kafka_sink.config.option_table import KEY_PARTITIONERS
from spark_kafka_sink.datasource.jobs.by_leader import Places, with_partitions
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns, NamedColumn
from spark_kafka_sink.records.partitioning.murmur2 import murmur2_of
from spark_kafka_sink.records.partitioning.partitioners import partitioner
from spark_kafka_sink.records.partitioning.topic_view import TopicView
from spark_kafka_sink.records.record_columns import RecordColumns

PLAN = ColumnPlan(topic="t", key_column=0)
#: By keys of eight bytes, which all of them take.
BY_KEY = sorted(set(KEY_PARTITIONERS) - {"random"})


def placed(batch, leaders, tasks, plan=PLAN, name=None, *, ignore_keys=False):
    """The partitions and the tasks of the rows."""
    places = Places(plan.key, plan.key_column, plan.partition_column, "t", tuple(leaders), name,
                    ignore_keys)  # fmt: skip
    assert Places.decode(places.encode()) == places
    (found,) = with_partitions(iter([hashed(batch)]), places.encode(), tasks)
    return found.column("partition").to_pylist(), found.column("__kprod_task").to_pylist()


def hashed(batch):
    """With a hash of each row, as Spark appends it."""
    hashes = [hash(str(row)) for row in batch.to_pylist()]
    return batch.append_column("__kprod_hash", pa.array(hashes, pa.int64()))


def keyed(keys):
    return pa.record_batch([pa.array(keys, pa.binary()), pa.array(range(len(keys)))], ["key", "v"])


@pytest.mark.parametrize("name", [None, *BY_KEY])
def test_rows_get_the_partition_that_the_write_would_choose(name):
    keys = [number.to_bytes(8, "big") for number in range(500)]
    chosen, _ = placed(keyed(keys), [n % 7 for n in range(40)], 10, name=name)
    columns = RecordColumns(500, "t", key=pa.array(keys))
    view = TopicView(40, range(40), 1000)
    assert chosen == partitioner(name).assign(columns, {"t": view}, lambda tp: None).tolist()


@given(
    st.lists(st.integers(-1, 12), min_size=1, max_size=60),
    st.integers(1, 60),
)
def test_partitions_are_cut_into_tasks_in_the_order_of_leaders(leaders, tasks):
    tasks = min(tasks, len(leaders))
    plan = ColumnPlan(topic="t", partition_column=0)
    everyone = pa.record_batch([pa.array(range(len(leaders)), pa.int32())], ["partition"])
    chosen, task_of = placed(everyone, leaders, tasks, plan)
    assert chosen == list(range(len(leaders)))
    leaders_of, partitions_of = defaultdict(set), defaultdict(set)
    for partition, task in zip(chosen, task_of, strict=True):
        leaders_of[task].add(leaders[partition])
        partitions_of[task].add(partition)
    assert set(partitions_of) == set(range(tasks)), "no task is empty"
    sizes = [len(found) for found in partitions_of.values()]
    assert max(sizes) - min(sizes) <= 1
    # A leader more than one in a task is a cut less: each leader begins in one task.
    assert sum(map(len, leaders_of.values())) <= tasks + len(set(leaders)) - 1


def test_two_thousand_tasks_have_a_leader_or_two():
    leaders = [n * 7 % 200 for n in range(10_000)]
    plan = ColumnPlan(topic="t", partition_column=0)
    everyone = pa.record_batch([pa.array(range(10_000), pa.int32())], ["partition"])
    _, task_of = placed(everyone, leaders, 2000, plan)
    connections = {(task, leaders[n]) for n, task in enumerate(task_of)}
    assert len(connections) == 2000


def test_null_partitions_are_filled_and_given_ones_stay():
    keys = [b"a", b"b", None, b"c"]
    given_ = pa.array([3, None, 2, None], pa.int32())
    batch = pa.record_batch([pa.array(keys), given_, pa.array("wxyz")], ["key", "Partition", "v"])
    plan = ColumnPlan(topic="t", key_column=0, partition_column=1)
    chosen, _ = placed(batch, [1] * 8, 2, plan)
    hashed, _ = placed(keyed(keys), [1] * 8, 2)
    assert chosen == [3, hashed[1], 2, hashed[3]]


def test_rows_without_keys_go_to_all_partitions():
    # That none of the rows goes to one of the partitions has a chance of 1e-20.
    chosen, task_of = placed(keyed([None] * 1_000), [n % 5 for n in range(20)], 5)
    assert set(chosen) == set(range(20))
    assert set(task_of) == set(range(5))


@pytest.mark.parametrize("name", [None, *KEY_PARTITIONERS, "RoundRobinPartitioner"])
@pytest.mark.parametrize("ignore_keys", [False, True])
def test_a_row_has_the_same_partition_in_each_run(name, ignore_keys):
    """Spark computes a part of the shuffle again if an executor is lost, and then its rows may come
    in another order. A row in another task than before is lost, or written twice.
    """
    keys = [None if n % 3 else n.to_bytes(8, "big") for n in range(300)]
    batch = keyed(keys)
    order = sorted(range(300), key=lambda n: n * 7 % 300)
    first, _ = placed(batch, range(8), 4, name=name, ignore_keys=ignore_keys)
    again, _ = placed(batch.take(pa.array(order)), range(8), 4, name=name, ignore_keys=ignore_keys)
    assert again == [first[n] for n in order]


def test_the_columns_of_a_row_stay_and_an_empty_batch_passes():
    batch = pa.record_batch(
        [pa.array([b"a", b"b"]), pa.array([1, 2], pa.int32()), pa.array(["x", None])],
        ["key", "partition", "value"],
    )
    text = Places(None, 0, None, "t", (1, 2), None, ignore_keys=False).encode()
    batch = hashed(batch)
    full, empty = with_partitions(iter([batch, batch.slice(0, 0)]), text, 1)
    assert full.schema.names == ["key", "value", "partition", "__kprod_task"]
    assert full.column("value").to_pylist() == ["x", None]
    assert empty.num_rows == 0
    assert empty.schema == full.schema


def test_a_key_of_columns_is_composed_as_the_write_would():
    columns = NamedColumn("id", 0), NamedColumn("span", 1, "DAY TO SECOND")
    key = ComposedColumns(columns, nulls_are_null=True, json=JsonOptions(ignore_null_fields=False))
    batch = pa.record_batch(
        [pa.array([7, None]), pa.array([None, None], pa.duration("us"))], ["id", "span"]
    )
    chosen, _ = placed(batch, [1] * 64, 4, ColumnPlan(topic="t", key=key))
    assert chosen[0] == murmur2_of(b'{"id":7,"span":null}') % 2**31 % 64
