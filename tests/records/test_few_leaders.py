"""The leaders of a task: few, fair over a job, and replaced while they are gone or slow."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.protocol.cluster import PartitionInfo, PartitionInfos, TopicPartition
from spark_kafka_sink.records.partitioning.few_leaders import FewLeaders

NONE: frozenset[int] = frozenset()


def infos_of(leaders: list[int], topic: str = "t") -> PartitionInfos:
    numbered = enumerate(leaders)
    return PartitionInfos.of(
        topic, (PartitionInfo(TopicPartition(topic, n), leader, 1) for n, leader in numbered)
    )


def leaders_used(few: FewLeaders, leaders: list[int], **how: object) -> set[int]:
    """The leaders that a task may write to."""
    infos = infos_of(leaders)
    among, _ = few.candidates(infos, infos.available, how.get("slow", NONE), how.get("is_near"))
    return {leaders[number] for number in among}


def shares(tasks: int, leaders: list[int], most: int) -> tuple[np.ndarray, Counter[int]]:
    """The share of each partition in the rows of equal tasks, 1 is fair; tasks of each leader."""
    infos = infos_of(leaders)
    got, connected = np.zeros(len(leaders)), Counter[int]()
    for task in range(tasks):
        among, weights = FewLeaders(most, task).candidates(infos, infos.available, NONE)
        parts = np.ones(len(among)) if weights is None else np.array(weights)
        got[list(among)] += parts / parts.sum()
        connected.update({leaders[number] for number in among})
    return got * len(leaders) / tasks, connected


@pytest.mark.parametrize(
    ("tasks", "brokers", "partitions", "most"),
    [(2000, 200, 10_000, 1), (2000, 30, 3000, 2), (200, 12, 120, 1), (50, 12, 120, 2)],
)
def test_each_broker_gets_its_share_of_a_job(tasks, brokers, partitions, most):
    got, connected = shares(tasks, [n % brokers for n in range(partitions)], most)
    assert sum(connected.values()) <= tasks * most
    assert len(connected) == brokers
    assert 0.7 < got.min() <= got.max() < 1.3


def test_a_broker_with_more_partitions_gets_more_tasks():
    leaders = [1] * 10 + [2] * 20 + [3] * 70
    got, connected = shares(1000, leaders, 1)
    assert [round(connected[node], -1) for node in (1, 2, 3)] == [100, 200, 700]
    assert 0.95 < got.min() <= got.max() < 1.05


@given(
    st.lists(st.integers(-1, 40), min_size=1, max_size=200),
    st.integers(1, 5),
    st.integers(0, 10_000),
    st.sets(st.integers(0, 40)),
)
def test_a_task_never_has_too_many_leaders_or_none(leaders, most, task, slow):
    infos = infos_of(leaders)
    available = infos.available or range(len(infos))
    among, weights = FewLeaders(most, task).candidates(infos, available, slow)
    assert among
    assert list(among) == sorted(set(among) & set(available))
    used = {leaders[number] for number in among}
    assert len(used) <= most
    assert weights is None or (len(weights) == len(among) and min(weights) > 0)
    others = {leaders[number] for number in available} - slow
    assert not others or used <= others


def test_all_partitions_of_few_leaders_are_candidates():
    leaders = [n % 7 for n in range(7)]
    assert leaders_used(FewLeaders(7, 3), leaders) == set(leaders)
    assert len(leaders_used(FewLeaders(6, 3), leaders)) <= 6


def test_tasks_with_few_leaders_are_the_same_each_time():
    leaders = [n % 12 for n in range(120)]
    for task in range(20):
        assert leaders_used(FewLeaders(2, task), leaders) == leaders_used(
            FewLeaders(2, task), leaders
        )


def test_a_leader_that_is_gone_is_replaced_until_it_is_back():
    leaders = [n % 12 for n in range(120)]
    few = FewLeaders(2, 5)
    first, second = sorted(leaders_used(few, leaders))
    moved = [(leader + 1) % 12 if leader == first else leader for leader in leaders]
    meanwhile = leaders_used(few, moved)
    assert first not in meanwhile
    assert second in meanwhile, "the task is connected to it"
    assert len(meanwhile) <= 2
    assert leaders_used(few, leaders) == {first, second}


def test_a_partition_without_leader_is_no_candidate():
    leaders = [n % 4 for n in range(40)]
    few = FewLeaders(1, 5)
    (only,) = leaders_used(few, leaders)
    gone = [-1 if leader == only else leader for leader in leaders]
    (other,) = leaders_used(few, gone)
    assert other not in (only, -1)


def test_a_slow_leader_is_replaced_while_others_are_not():
    leaders = [n % 12 for n in range(120)]
    few = FewLeaders(1, 5)
    used = leaders_used(few, leaders)
    assert leaders_used(few, leaders, slow=used).isdisjoint(used)
    assert leaders_used(few, leaders) == used
    assert leaders_used(few, leaders, slow=set(range(12))) == used, "all are as good"


def test_leaders_are_chosen_among_those_that_are_near():
    leaders = [n % 12 for n in range(120)]
    near = {3, 4, 5, 6}
    tasks = [FewLeaders(2, task) for task in range(40)]
    used = [leaders_used(few, leaders, is_near=near.__contains__) for few in tasks]
    assert set().union(*used) == near
    assert max(map(len, used)) == 2
    assert leaders_used(FewLeaders(2, 0), leaders, is_near=NONE.__contains__)


def test_a_second_topic_has_the_leaders_of_the_first():
    first, second = infos_of([n % 12 for n in range(120)], "a"), infos_of([0, 4, 8], "b")
    few = FewLeaders(4, 3)
    among, _ = few.candidates(first, first.available, NONE)
    own = {first.leader(number) for number in among}
    assert own & {0, 4, 8}
    everywhere, _ = few.candidates(second, second.available, NONE)
    assert len(everywhere) == 3, "it has fewer leaders than a task may have"
    larger = infos_of([n % 24 for n in range(120)], "c")
    among, _ = few.candidates(larger, larger.available, NONE)
    assert {larger.leader(number) for number in among} == own
