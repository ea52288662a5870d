"""Fixtures of the driver's room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.config.parsing import parse_producer_config
from tests.real_kafka import RealKafka
from tests.simulation.conftest import marked
from tests.simulation.scene import Scene, scene_of
from tests.transactions.operator_stage import Stage, set_stage, topics_of


@pytest.fixture
def version() -> int:
    """Of the cluster's transactions; parametrize it to have both."""
    return 2


@pytest.fixture
def scene(request: pytest.FixtureRequest, version: int) -> Scene:
    """Three brokers with a topic ``t``; a mark ``life`` changes that."""
    return scene_of(version, **marked(request))


@pytest.fixture(scope="module")
def operators_kafka(kafka: RealKafka) -> RealKafka:
    return kafka


@pytest.fixture(scope="module")
def client(operators_kafka: RealKafka) -> Iterator[TransactionClient]:
    config = parse_producer_config({"bootstrap.servers": operators_kafka.bootstrap})
    with TransactionClient(config) as found:
        yield found


@pytest.fixture(scope="module")
def operator_topics(operators_kafka: RealKafka) -> tuple[str, str]:
    return topics_of(operators_kafka)


@pytest.fixture
def stage(
    operators_kafka: RealKafka, client: TransactionClient, operator_topics: tuple[str, str]
) -> Iterator[Stage]:
    with set_stage(operators_kafka, client, operator_topics) as found:
        yield found
