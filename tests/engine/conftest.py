"""A broker that belongs to the engine's tests: it takes huge requests, and it may be frozen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.local_kafka import KafkaCluster
from tests.real_kafka import RealKafka


@pytest.fixture(scope="package")
def own_kafka() -> Iterator[RealKafka]:
    overrides = {
        "socket.request.max.bytes": "256000000",
        "message.max.bytes": "200000000",
        "replica.fetch.max.bytes": "200000000",
    }
    with KafkaCluster(overrides=overrides, heap="2g") as cluster:
        yield RealKafka(cluster.bootstrap, cluster)
