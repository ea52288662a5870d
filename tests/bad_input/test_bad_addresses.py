"""Addresses where no broker is: found on the driver, in bounded time, each with its reason."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.bad_input.conftest import SLACK_S, Fails, Write, peer
from tests.network.loopback import closed_port
from tests.real_kafka import Consumed, RealKafka

Consume = Callable[..., Consumed]


@pytest.fixture
def one_row(spark: SparkSession) -> DataFrame:
    return spark.range(0, 1, 1, 1).selectExpr("'v' AS value")


def web_server(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.recv(4096)
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        connection.close()


def silent(connection: socket.socket) -> None:
    """Takes the connection and never says anything; the test closes it."""


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        (web_server, ("a web server answers there", "kafka.bootstrap.servers")),
        (silent, ("TLS or SASL listener, or not Kafka?",)),
    ],
)
def test_what_is_no_broker_is_named_with_a_guess(
    one_row: DataFrame,
    gives_up: Fails,
    serve: Callable[[socket.socket], None],
    words: tuple[str, ...],
) -> None:
    with peer(serve) as port:
        failure = gives_up(one_row, "t", bootstrap=f"127.0.0.1:{port}")
    assert failure.on_the_driver
    failure.says("not present in metadata after 1000 ms", f"127.0.0.1:{port}", *words)
    assert failure.seconds < 1 + SLACK_S


@pytest.mark.parametrize("preflight", [pytest.param("required", marks=pytest.mark.long), "off"])
def test_one_good_address_of_three_is_enough(
    one_row: DataFrame, write: Write, kafka: RealKafka, consume: Consume, preflight: str
) -> None:
    topic = kafka.unique_topic("one-of-three")
    with closed_port() as refused, peer(web_server) as web:
        servers = f"127.0.0.1:{refused},127.0.0.1:{web},{kafka.bootstrap}"
        write(one_row, topic, bootstrap=servers, preflight=preflight)
    assert consume(topic).values == [b"v"]


def test_a_silent_address_costs_a_request_timeout_at_most(
    one_row: DataFrame, write: Write, kafka: RealKafka, consume: Consume
) -> None:
    topic = kafka.unique_topic("one-of-two")
    start = time.monotonic()
    with peer(silent) as mute:
        servers = f"127.0.0.1:{mute},{kafka.bootstrap}"
        write(one_row, topic, bootstrap=servers, **{"kafka.request.timeout.ms": "1000"})
    assert time.monotonic() - start < 2 + SLACK_S, "driver and task: a second each"
    assert consume(topic).values == [b"v"]


def test_without_the_preflight_a_task_says_the_same(one_row: DataFrame, gives_up: Fails) -> None:
    with closed_port() as port:
        failure = gives_up(one_row, "t", bootstrap=f"127.0.0.1:{port}", preflight="off")
    assert failure.jobs == 1
    failure.says("Topic t not present", f"tried 127.0.0.1:{port}: Connection refused")
    assert failure.seconds < 1 + SLACK_S
