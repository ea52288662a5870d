"""Three real nodes that are bounced, killed and frozen under load: every row arrives, once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from tests.faults.load import check, config, write

pytestmark = [pytest.mark.faults, pytest.mark.broker, pytest.mark.cluster, pytest.mark.timeout(600)]

ROWS = 200_000


def under_load(kafka3, fault: Callable[[], None]) -> ProduceReport:
    """Write while ``fault`` runs in another thread, from a third of the rows on, to its end."""
    topic = kafka3.unique_topic("replicated", 6)
    producer = KafkaProducer(
        config(
            kafka3.bootstrap,
            batch_size="32768",
            request_timeout_ms="10000",
            # A node's start takes long on a busy machine.
            max_block_ms="120000",
            delivery_timeout_ms="180000",
        )
    )
    done = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            fault()
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=run)

    def at(sent: int) -> None:
        # Before it has an identity nothing is sent, so no fault could hit what is in flight.
        identified = producer.producer_id_and_epoch[0] >= 0
        if sent >= ROWS // 3 and identified and thread.ident is None:
            thread.start()

    report = write(producer, topic, ROWS, at=at, until=done)
    thread.join()
    producer.close(20_000)
    assert not errors, errors
    check(kafka3.bootstrap, topic, report.rows)
    return report


def test_a_clean_restart_of_a_node_loses_and_doubles_nothing(kafka3):
    def bounce() -> None:
        kafka3.cluster.nodes[0].stop()
        kafka3.cluster.nodes[0].start()

    under_load(kafka3, bounce)


def test_a_killed_node_under_load_loses_and_doubles_nothing(kafka3):
    def kill() -> None:
        kafka3.cluster.nodes[1].kill()
        kafka3.cluster.nodes[1].start()

    under_load(kafka3, kill)


def test_two_frozen_nodes_stall_the_writer_and_lose_nothing(kafka3):
    def freeze() -> None:
        frozen = kafka3.cluster.nodes[1:]
        for node in frozen:
            node.freeze()
        # Longer than the producer's request.timeout.ms, so that what was in flight is resent.
        threading.Event().wait(12)
        for node in frozen:
            node.thaw()

    report = under_load(kafka3, freeze)
    assert report.retries > 0
