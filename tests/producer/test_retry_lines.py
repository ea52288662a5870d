"""What a log has of batches that are sent again."""

from __future__ import annotations

import logging

import pytest

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.producer.metrics.produce_recorder import ProduceRecorder
from spark_kafka_sink.producer.metrics.producer_metrics import ProducerMetrics
from spark_kafka_sink.producer.metrics.retry_lines import QUIET_MS
from tests.fakes.accumulator_world import TP0, World
from tests.producer.test_produce_recorder import batch_of


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def recorder(world: World) -> ProduceRecorder:
    return ProduceRecorder(world.clock, ProducerMetrics(world.clock), world.accumulator)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line.getMessage() for line in caplog.records if line.levelno == logging.WARNING]


def test_a_cause_of_retries_is_a_line_each_half_a_minute(
    world: World, recorder: ProduceRecorder, caplog: pytest.LogCaptureFixture
):
    batch = batch_of(recorder, TP0, 5)
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER.error("test-0 on broker 1, attempt 1")
    for _ in range(1200):
        recorder.batch_retried(batch, moved, 1)
        world.clock.advance(QUIET_MS // 300)
    found = lines(caplog)
    assert len(found) == 4
    assert "KP1006" in found[0]
    assert "retrying test-0" in found[0]
    assert "more retries with this cause since the last line" in found[1]
    recorder.batch_retried(batch, ErrorCode.NOT_ENOUGH_REPLICAS.error("test-0"), 1)
    assert "KP1019" in lines(caplog)[-1]
    assert recorder.report().retries == 1201


def test_concurrent_additions_to_a_transaction_are_no_retry(
    recorder: ProduceRecorder, caplog: pytest.LogCaptureFixture
):
    """Each leader of a new transaction adds its partitions; the coordinator takes one at a time."""
    busy = ErrorCode.CONCURRENT_TRANSACTIONS.error("test-0 on broker 1, attempt 1")
    recorder.batch_retried(batch_of(recorder, TP0, 5), busy, 1)
    report = recorder.report()
    assert (report.retries, report.retried_rows, report.nodes) == (0, 0, {})
    assert lines(caplog) == []
