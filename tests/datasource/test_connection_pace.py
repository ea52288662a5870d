"""connectionsPerSecond: when the tasks of a write begin to connect."""

from __future__ import annotations

from collections import Counter

import pytest

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.connection_pace import paced, wait_ms
from spark_kafka_sink.datasource.write.producer_cache import CachedProducers, ProducerCache
from spark_kafka_sink.datasource.write.rate_limit import tasks_at_once
from tests.datasource.recording_producer import RecordingProducer
from tests.fakes.clock import FakeClock

OPTIONS = {"kafka.bootstrap.servers": "b:9092", "topic": "t"}


@pytest.mark.parametrize(("tasks", "rate"), [(2000, 100), (200, 7), (3, 100), (2000, 3000)])
def test_no_second_has_more_new_connections_to_a_broker(tasks, rate):
    """Each task opens one to it as soon as it begins."""
    begun = sorted(wait_ms(number, tasks, rate) for number in range(tasks))
    in_second = [sum(1 for one in begun if at <= one < at + 1000) for at in set(begun)]
    assert max(in_second) <= rate
    assert begun[-1] <= 1000 * tasks // rate


def test_tasks_beyond_those_that_run_at_once_take_turns_again():
    waits = Counter(wait_ms(number, 10, 2) for number in range(30))
    assert waits == dict.fromkeys(range(0, 5000, 500), 3)


def test_a_new_producer_waits_and_a_kept_one_does_not():
    clock, config = FakeClock(1000), parse_sink_config(OPTIONS).producer
    made = RecordingProducer()
    cache = ProducerCache()
    for wanted in (1700, 1700):
        factory = paced(lambda config, cluster: made, 700, clock)
        producers = CachedProducers(cache, config, None, factory)
        assert producers.acquire() is made
        assert clock.now_ms() == wanted
        producers.release(made)


def test_a_second_producer_of_a_task_waits_no_more():
    clock = FakeClock(0)
    factory = paced(lambda config, cluster: RecordingProducer(), 500, clock)
    config = parse_sink_config(OPTIONS).producer
    factory(config, None)
    factory(config, None)
    assert clock.now_ms() == 500


def test_the_number_of_tasks_is_asked_for_where_it_is_unknown():
    config = parse_sink_config(OPTIONS | {"connectionsPerSecond": 100})
    with pytest.raises(ConfigError, match="connectionsPerSecond=100 is for all tasks") as raised:
        tasks_at_once(config, lambda name: "")
    assert "set tasksAtOnce" in raised.value.hint
