"""Addresses where no broker is: found on the driver, in bounded time, each with its reason.

What is guessed of a peer that is no broker is in tests/admin, without a Spark.
"""

from __future__ import annotations

import socket
import threading
import time

import pytest
from pyspark.sql import DataFrame

from tests.bad_input.conftest import BLOCK_MS, SLACK_S, Consume, Fails, Write
from tests.network.loopback import closed_port, serving
from tests.real_kafka import RealKafka


def web_server(connection: socket.socket, over: threading.Event) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def silent(connection: socket.socket, over: threading.Event) -> None:
    over.wait(60)


def test_what_is_no_broker_is_named_with_a_guess(one_row: DataFrame, gives_up: Fails) -> None:
    with serving(web_server) as (_, port):
        failure = gives_up(one_row, "t", bootstrap=f"127.0.0.1:{port}")
    assert failure.on_the_driver
    failure.says(f"127.0.0.1:{port}", "a web server answers there", "kafka.bootstrap.servers")
    assert failure.seconds < BLOCK_MS / 1000 + SLACK_S


@pytest.mark.parametrize("preflight", [pytest.param("required", marks=pytest.mark.long), "off"])
def test_one_good_address_of_four_is_enough(
    one_row: DataFrame, write: Write, kafka: RealKafka, consume: Consume, preflight: str
) -> None:
    """A silent one costs the driver and the task a request's time-out each at most."""
    topic = kafka.unique_topic("one-of-four")
    start = time.monotonic()
    with closed_port() as refused, serving(web_server) as (_, web), serving(silent) as (_, mute):
        others = ",".join(f"127.0.0.1:{port}" for port in (refused, web, mute))
        options = {"kafka.request.timeout.ms": f"{BLOCK_MS}", "preflight": preflight}
        write(one_row, topic, bootstrap=f"{others},{kafka.bootstrap}", **options)
    assert time.monotonic() - start < 2 * BLOCK_MS / 1000 + SLACK_S
    assert consume(topic).values == [b"v"]


def test_without_the_preflight_a_task_says_the_same(one_row: DataFrame, gives_up: Fails) -> None:
    with closed_port() as port:
        failure = gives_up(one_row, "t", bootstrap=f"127.0.0.1:{port}", preflight="off")
    assert failure.jobs == 1
    failure.says("Topic t not present", f"tried 127.0.0.1:{port}: Connection refused")
    assert failure.seconds < BLOCK_MS / 1000 + SLACK_S
