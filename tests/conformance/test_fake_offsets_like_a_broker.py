"""A group's offsets in transactions: the fake cluster answers as Kafka 4.x and 3.9 do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance import offset_scripts as scripts
from tests.conformance.script import compare
from tests.conformance.worlds import FakeWorld, RealWorld
from tests.fakes.fake_cluster import FakeCluster
from tests.real_kafka import RealKafka

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture(params=["kafka", "kafka_v1", "kafka_3_9"])
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[str, int, RealWorld]]:
    """The fixture's name, the cluster's transaction.version, a connection."""
    kafka: RealKafka = request.getfixturevalue(request.param)
    with RealWorld(kafka.bootstrap) as world:
        yield request.param, kafka.transaction_version, world


def test_offsets_of_protocol_1_are_as_a_brokers(broker: tuple[str, int, RealWorld]) -> None:
    _, level, world = broker
    fake = FakeWorld(FakeCluster(1, transaction_version=level, abort_scan_ms=200))
    compare(scripts.offsets_of_protocol_1, world, fake, 45)


def test_offsets_of_protocol_2_are_as_a_brokers(broker: tuple[str, int, RealWorld]) -> None:
    fixture, level, world = broker
    if fixture == "kafka_3_9":
        return  # it has no TxnOffsetCommit 5 and no EndTxn 5
    fake = FakeWorld(FakeCluster(1, transaction_version=level, abort_scan_ms=200))
    compare(scripts.offsets_of_protocol_2, world, fake, 30)
