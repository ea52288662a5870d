"""``twoPhaseCommit=auto`` on real brokers: what is asked, and that nothing times out."""

from __future__ import annotations

import contextlib
import logging
import uuid
from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import KafkaTimeoutError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.exactly_once.two_phase_commit import allows_two_phase_commit
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog, LogSession
from spark_kafka_sink.transactions.commit_state import CommitState, Payload
from spark_kafka_sink.transactions.committer import Batch, Commit, Committer
from spark_kafka_sink.transactions.driver_transactions import TopicRecord
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.lease import NEVER_TIMES_OUT_MS
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from spark_kafka_sink.transactions.ownership import Owner
from tests.real_kafka import RealKafka, consume_topic

pytestmark = pytest.mark.broker


def config(kafka: RealKafka, **changes: object) -> ProducerConfig:
    return ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap} | changes)


def test_brokers_without_it_are_logged_and_used_without_it(
    kafka: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        ExactlyOnceDriver(config(kafka), "__kprod_commits") as driver,
        caplog.at_level(logging.INFO),
    ):
        assert allows_two_phase_commit(driver.client, "two-phases") is False
        assert allows_two_phase_commit(driver.client, "two-phases") is False
    assert caplog.text.count("twoPhaseCommit=auto is off: brokers don't support") == 1


def test_a_two_phase_transaction_outlives_every_timeout(
    kafka_2pc: RealKafka, caplog: pytest.LogCaptureFixture
) -> None:
    topic, key = kafka_2pc.unique_topic("rows", 1), f"k{uuid.uuid4().hex[:8]}"
    short = config(kafka_2pc, **{"transaction.timeout.ms": "1000"})
    with ExactlyOnceDriver(short, "__kprod_commits") as driver, caplog.at_level(logging.INFO):
        assert allows_two_phase_commit(driver.client, key) is True
        assert "twoPhaseCommit=auto is on" in caplog.text
        state = driver.plan(key)
        prepared = [write(kafka_2pc, topic, f"{key}~run~w~{k}", on=k == 0) for k in range(2)]
        timed_out = prepared[1].transactional_id
        with TransactionClient(config(kafka_2pc)) as client:
            deadline = client.clock.now_ms() + 30_000
            while (d := client.describe([timed_out], deadline)[timed_out]).state.value == "Ongoing":
                client.loop.pause(5, deadline)
            assert d.state.value in ("PrepareAbort", "CompleteAbort")
            lives = prepared[0].transactional_id
            found = client.describe([lives], deadline)[lives]
        assert (found.state.value, found.timeout_ms) == ("Ongoing", NEVER_TIMES_OUT_MS)
        owner = Owner(key, "run", "query", state.generation)
        batch = Batch(0, (prepared[0],), Payload(1, 1))
        assert commit_in_time(driver, owner, batch) is Commit.COMMITTED
    assert consume_topic(kafka_2pc.bootstrap, topic, isolation="read_committed").by_partition() == {
        0: [b"0"]
    }


def test_offsets_and_report_never_time_out_when_the_rows_do_not(kafka_2pc: RealKafka) -> None:
    """Else a driver that dies between two of its ends, and stays away, leaves a partial batch."""
    key, reports = f"k{uuid.uuid4().hex[:8]}", kafka_2pc.unique_topic("reports", 1)
    topic = kafka_2pc.unique_topic("rows", 1)
    offsets = GroupOffsets(f"{key}-group", {TopicPartition(topic, 0): OffsetAndMetadata(7)})
    seen: dict[str, int] = {}
    with ExactlyOnceDriver(config(kafka_2pc), "__kprod_commits") as driver:

        class Looks(CommitLog):
            """Looks at what is open when the decision is made."""

            def open(self, key: str, deadline_ms: int) -> LogSession:
                session = super().open(key, deadline_ms)
                write_ = session.write

                def write(state: CommitState | None, *given: Any, **named: Any) -> None:
                    if state is not None and state.decision is not None and not seen:
                        found = driver.client.describe(state.decision.ids, deadline_ms)
                        seen.update({i: d.timeout_ms for i, d in found.items()})
                    write_(state, *given, **named)

                session.write = write  # type: ignore[method-assign]
                return session

        committer = Committer(Looks(driver.client, "__kprod_commits"), driver.client)
        state = driver.plan(key)
        row = write(kafka_2pc, topic, f"{key}~run~w~0", on=True)
        owner = Owner(key, "run", "query", state.generation)
        batch = Batch(
            0, (row,), Payload(1, 1), two_phase_commit=True,
            offsets=offsets, report=TopicRecord(reports, b"{}"),
        )  # fmt: skip
        assert committer.commit(owner, batch) is Commit.COMMITTED
    assert len(seen) == 3
    assert set(seen.values()) == {NEVER_TIMES_OUT_MS}


def commit_in_time(driver: ExactlyOnceDriver, owner: Owner, batch: Batch) -> Commit:
    """Next to a time-out of a second a decision has a lease of a second, which a busy machine may
    miss: nothing is decided then, and it may be tried again.
    """
    for _ in range(4):
        with contextlib.suppress(KafkaTimeoutError):
            return driver.commit(owner, batch)
    return driver.commit(owner, batch)


def write(kafka: RealKafka, topic: str, transactional_id: str, *, on: bool) -> PreparedTransaction:
    """One row in a prepared transaction, with two-phase commit or with a time-out of a second."""
    options = {"transactional.id": transactional_id, "transaction.timeout.ms": "1000"}
    given = config(kafka, **options)
    with KafkaProducer(replace(given, two_phase_commit=on)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord(topic, value=b"0"))
        producer.flush()
        return producer.prepare()
