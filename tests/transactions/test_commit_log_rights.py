"""Which right on the commit log is missing, before anything is written; on a broker with ACLs.

``bob`` may do nothing that no ACL allows.
"""

from __future__ import annotations

import time
import uuid

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import AuthorizationError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.driver_transactions import TopicRecord, write_record
from tests.real_kafka import AT_ONCE_S
from tests.secure_kafka import SecureKafka, acl

STATE = CommitState(generation=1, run_id="run", last_done=7)
Rights = tuple[tuple[str, str, str], ...]


def write(options: dict[str, str], topic: str, key: str) -> None:
    """Open, write, read."""
    deadline = SystemClock().now_ms() + 20_000
    with TransactionClient(parse_producer_config(options)) as client:
        log = CommitLog(client, topic)
        log.open(key, deadline).write(STATE, deadline)
        assert log.read(key, deadline).state == STATE


def test_each_missing_right_is_named(secure_kafka: SecureKafka) -> None:
    bob = secure_kafka.cluster.client_options("SSL", user="bob")
    topic = secure_kafka.kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    empty = secure_kafka.kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    missing = f"commits-{uuid.uuid4().hex[:12]}"
    key = f"k{uuid.uuid4().hex[:8]}"
    write({"bootstrap.servers": secure_kafka.kafka.bootstrap}, topic, key)
    read, put = ("TOPIC", topic, "READ"), ("TOPIC", topic, "WRITE")
    name = f"{key}~~log"
    describe_id, write_id = (("TRANSACTIONAL_ID", name, op) for op in ("DESCRIBE", "WRITE"))
    on_topic = f"DESCRIBE, READ and WRITE on the topic '{topic}' (commitLogTopic)"
    cases: tuple[tuple[str, Rights, str], ...] = (
        (topic, (write_id,), on_topic),
        (topic, (put, write_id), on_topic),
        (empty, (("TOPIC", empty, "WRITE"), write_id), f"READ and WRITE on the topic '{empty}'"),
        (topic, (read, write_id), on_topic),
        (topic, (read, put), "DESCRIBE on the transactional id"),
        (topic, (read, put, describe_id), "WRITE on the transactional id"),
        (missing, (("TOPIC", missing, "WRITE"), write_id), "and CREATE while it is missing"),
    )
    for log_topic, rights, needed in cases:
        with acl(secure_kafka, "bob", *rights):
            with pytest.raises(AuthorizationError) as refused:
                write(bob, log_topic, key)
            assert needed in str(refused.value), rights
            assert name in str(refused.value) or log_topic in str(refused.value)
    with acl(secure_kafka, "bob", read, put, write_id):
        write(bob, topic, key)  # he may not see the topic's settings, and need not


def test_a_topic_that_may_not_be_seen_is_named_at_once(secure_kafka: SecureKafka) -> None:
    """It is not in the metadata: a report waited for its leader, and named no right."""
    bob = secure_kafka.cluster.client_options("SSL", user="bob")
    topic = secure_kafka.kafka.unique_topic("reports")
    begun = time.monotonic()
    with (
        acl(secure_kafka, "bob"),
        TransactionClient(parse_producer_config(bob)) as client,
        pytest.raises(AuthorizationError, match=f"topic {topic}: TOPIC_AUTHORIZATION_FAILED"),
    ):
        write_record(client, TopicRecord(topic, b"{}"), client.deadline(60_000))
    assert time.monotonic() - begun < AT_ONCE_S
