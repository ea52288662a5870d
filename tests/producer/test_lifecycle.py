"""Lifecycle: what a producer that has failed or is closed raises."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import (
    AuthenticationError,
    DeliveryError,
    IllegalStateError,
    KafkaError,
)
from spark_kafka_sink.producer.lifecycle import ForkCounter, Lifecycle
from tests.fakes.accumulator_world import TP0, World
from tests.fakes.clock import FakeClock


def test_the_first_failure_is_what_every_method_raises():
    life = Lifecycle()
    first = KafkaError("first")
    life.fail(first)
    life.fail(KafkaError("second"))
    life.stop(KafkaError("third"))
    with pytest.raises(KafkaError) as caught:
        life.check()
    assert caught.value is first
    assert not life.is_open


def test_only_a_fatal_error_stops_the_network_thread():
    """What is in flight still gets its response, so that its futures tell the truth."""
    life = Lifecycle()
    life.fail(KafkaError("flush was interrupted"))
    assert life.fatal is None
    fatal = KafkaError("fenced")
    life.stop(fatal)
    life.stop(KafkaError("a consequence"))
    assert life.fatal is fatal


def test_a_fatal_error_is_the_cause_of_what_is_raised():
    life = Lifecycle()
    fatal = KafkaError("fenced", hint="somebody else has the id")
    life.stop(fatal)
    with pytest.raises(DeliveryError, match="the producer failed: fenced") as caught:
        life.check()
    assert caught.value.__cause__ is fatal
    assert caught.value.hint == fatal.hint


def test_an_authentication_error_is_raised_as_it_is():
    """A wait of the writer may raise it before the sender does: it is the same either way."""
    life = Lifecycle()
    refused = AuthenticationError("wrong password")
    life.stop(refused)
    with pytest.raises(AuthenticationError) as caught:
        life.check()
    assert caught.value is refused


def test_a_closed_producer_says_so_also_when_it_has_failed():
    life = Lifecycle()
    life.fail(KafkaError("failed"))
    life.close()
    with pytest.raises(IllegalStateError, match="the producer is closed"):
        life.check()


def test_a_fork_is_told_before_anything_else(monkeypatch: pytest.MonkeyPatch):
    life = Lifecycle()
    life.close()
    monkeypatch.setattr(ForkCounter, "count", ForkCounter.count + 1)
    assert life.is_forked
    with pytest.raises(IllegalStateError, match="was made in process"):
        life.check()


def test_a_failed_or_closed_producer_sends_what_is_open():
    """No more rows come: a batch that is not full is as good as a full one."""
    for end in (lambda life: life.fail(KafkaError("x")), lambda life: life.close()):
        world = World(clock=FakeClock())
        world.append(TP0)
        assert world.ready_nodes() == set()
        end(world.accumulator.lifecycle)
        assert world.ready_nodes() == {1}
