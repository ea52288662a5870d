"""Warm producers between the tasks of one worker process."""

from __future__ import annotations

import os

import pytest
from recording_producer import RecordingProducer

from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.datasource.write.producer_cache import (
    CachedProducers,
    ProducerCache,
    effective_config,
)
from spark_kafka_sink.protocol.cluster import Cluster


def config(**options):
    options = {name.replace("_", "."): str(value) for name, value in options.items()}
    return parse_producer_config({"bootstrap.servers": "127.0.0.1:9092"} | options)


class Factory:
    def __init__(self):
        self.made = []

    def __call__(self, config, cluster):
        self.made.append((config, cluster, RecordingProducer()))
        return self.made[-1][2]


@pytest.fixture
def factory():
    return Factory()


class Cache(ProducerCache):
    """With tasks that take from it, and give back."""

    def __init__(self, factory):
        super().__init__()
        self.factory = factory

    def acquire(self, config, cluster):
        return CachedProducers(self, config, cluster, self.factory).acquire()

    def release(self, config, producer):
        CachedProducers(self, config, None).release(producer)

    def discard(self, producer):
        CachedProducers(self, config(), None).discard(producer)


@pytest.fixture
def cache(factory):
    return Cache(factory)


def test_the_same_config_gets_the_same_producer_back(cache):
    first = cache.acquire(config(), None)
    cache.release(config(), first)
    assert first.events == ["park"]
    assert cache.acquire(config(), None) is first
    assert len(cache.factory.made) == 1


def test_a_config_with_one_other_option_has_its_own_producer(cache):
    first = cache.acquire(config(), None)
    cache.release(config(), first)
    assert cache.acquire(config(acks=1), None) is not first


def test_the_shipped_cluster_reaches_a_new_producer(factory):
    cluster = Cluster.bootstrap([("127.0.0.1", 9092)])
    CachedProducers(ProducerCache(), config(), cluster, factory).acquire()
    assert factory.made[0][1] is cluster


def test_two_are_kept_and_the_longest_idle_goes_first(cache):
    configs = [config(linger_ms=n) for n in range(3)]
    producers = [cache.acquire(c, None) for c in configs]
    for one, producer in zip(configs, producers, strict=True):
        cache.release(one, producer)
    assert [p.closed_with is not None for p in producers] == [True, False, False]
    assert len(cache) == 2
    assert cache.acquire(configs[2], None) is producers[2]


def test_being_used_makes_a_producer_young_again(cache):
    configs = [config(linger_ms=n) for n in range(3)]
    producers = [cache.acquire(c, None) for c in configs]
    cache.release(configs[0], producers[0])
    cache.release(configs[1], producers[1])
    cache.release(configs[0], cache.acquire(configs[0], None))
    cache.release(configs[2], producers[2])
    assert [p.closed_with is not None for p in producers] == [False, True, False]


@pytest.mark.parametrize("given", [{"reusable": False}, {"park_fails": True}], ids=str)
def test_a_producer_that_can_not_be_kept_is_closed_quietly(given):
    producer = RecordingProducer(**given)
    cache = Cache(lambda config, cluster: producer)
    cache.release(config(), cache.acquire(config(), None))
    assert producer.closed_with is not None
    assert len(cache) == 0


def test_a_producer_that_failed_while_it_was_idle_is_replaced(cache):
    first = cache.acquire(config(), None)
    cache.release(config(), first)
    first.reusable = False
    assert cache.acquire(config(), None) is not first
    assert first.closed_with == 0


def test_a_failed_attempts_producer_is_closed_without_waiting(cache):
    producer = cache.acquire(config(), None)
    cache.discard(producer)
    assert producer.closed_with == 0
    assert len(cache) == 0


def test_a_second_producer_of_a_config_closes_the_first(cache):
    first, second = cache.acquire(config(), None), cache.acquire(config(), None)
    cache.release(config(), first)
    cache.release(config(), second)
    assert (first.closed_with is None, second.closed_with is None) == (False, True)
    assert len(cache) == 1


def test_closing_closes_what_is_idle(cache):
    producer = cache.acquire(config(), None)
    cache.release(config(), producer)
    cache.close()
    assert producer.closed_with is not None


def test_a_forked_child_leaves_its_parents_producers_alone(factory):
    pid = [os.getpid()]
    cache = ProcessLocal(lambda: Cache(factory), pid=lambda: pid[0])
    parents = cache().acquire(config(), None)
    cache().release(config(), parents)
    pid[0] += 1  # what a fork looks like from in here
    assert cache().acquire(config(), None) is not parents
    assert parents.closed_with is None


def test_the_default_client_id_is_stable_between_tasks():
    named = effective_config(config(), "app-1")
    assert named.client_id == "spark-kafka-sink-app-1"
    assert effective_config(config(), "app-1") == named
    assert effective_config(config(), "").client_id == "spark-kafka-sink"


def test_a_client_id_that_the_user_gave_stays():
    assert effective_config(config(client_id="mine"), "app-1").client_id == "mine"
