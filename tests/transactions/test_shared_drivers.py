"""The drivers that a process keeps: one for each set of options, and a few of them."""

from __future__ import annotations

import pytest

from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.transactions import exactly_once
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver, shared_driver


def config_of(client: int) -> ProducerConfig:
    return parse_producer_config(
        {"bootstrap.servers": "127.0.0.1:1", "client.id": f"client-{client}"}
    )


def used(client: int) -> ExactlyOnceDriver:
    with shared_driver(config_of(client), "log") as driver:
        return driver


def test_a_few_drivers_are_kept_and_the_oldest_goes() -> None:
    """A foreachBatch function may write with the options of many topics."""
    most = exactly_once._KEPT
    first = used(0)
    others = [used(client) for client in range(1, most)]
    assert used(0) is first
    assert used(most) is not first
    assert used(0) is first, "it was used later than the others"
    assert used(1) is not others[0], "it was closed"


def test_a_driver_is_not_kept_after_an_error() -> None:
    """Its connections may be in the middle of a request."""
    failed = used(0)
    with pytest.raises(KeyError), shared_driver(config_of(0), "log"):
        raise KeyError
    assert used(0) is not failed
