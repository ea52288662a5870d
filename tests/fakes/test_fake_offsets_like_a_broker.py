"""A group's offsets in transactions: the fake cluster answers as Kafka 4.x and 3.9 do."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from spark_kafka_sink.local_kafka import (
    KAFKA_3_VERSION,
    KAFKA_VERSION,
    KafkaCluster,
    LocalKafkaError,
    prepare,
)
from tests.fakes import offset_scripts as scripts
from tests.fakes.fake_cluster import FakeCluster
from tests.fakes.script_worlds import FakeWorld, RealWorld
from tests.fakes.test_fake_cluster_like_a_broker import compare

pytestmark = [pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture(
    scope="module", params=[(KAFKA_VERSION, 2), (KAFKA_VERSION, 1), (KAFKA_3_VERSION, 1)]
)
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[str, int, RealWorld]]:
    """Kafka's version, the cluster's transaction.version, a connection."""
    version, level = request.param
    options: tuple[str, ...] = ("--feature", f"transaction.version={level}")
    if version == KAFKA_3_VERSION:
        options = ()
        try:
            prepare(version)
        except LocalKafkaError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(error.message)
    with KafkaCluster(version=version, format_options=options) as cluster:
        world = RealWorld(cluster.bootstrap)
        yield version, level, world
        world.close()


def test_offsets_of_protocol_1_are_as_a_brokers(broker: tuple[str, int, RealWorld]) -> None:
    _, level, world = broker
    fake = FakeWorld(FakeCluster(1, transaction_version=level, abort_scan_ms=200))
    compare(scripts.offsets_of_protocol_1, world, fake, 45)


def test_offsets_of_protocol_2_are_as_a_brokers(broker: tuple[str, int, RealWorld]) -> None:
    version, level, world = broker
    if version == KAFKA_3_VERSION:
        return  # it has no TxnOffsetCommit 5 and no EndTxn 5
    fake = FakeWorld(FakeCluster(1, transaction_version=level, abort_scan_ms=200))
    compare(scripts.offsets_of_protocol_2, world, fake, 30)
