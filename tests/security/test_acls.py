"""What a broker's ACLs forbid is an error at once: the operation, and the missing right.

``bob`` comes by his certificate, so that only the ACL is against him.
"""

from __future__ import annotations

import time
import uuid

import pytest

from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.records.record_columns import ColumnPlan
from tests.engine.rows import attempt, config, values_batch
from tests.real_kafka import AT_ONCE_S
from tests.secure_kafka import acl


@pytest.fixture
def bob(secure_kafka):
    """The options of bob, who may do nothing that no ACL allows."""
    options = secure_kafka.cluster.client_options("SSL", user="bob")
    return {n: v for n, v in options.items() if n != "bootstrap.servers"}


def write(secure, user, topic, more=None, transactional=False):
    producer = KafkaProducer(
        config(secure.bootstrap("SSL"), user | {"max.block.ms": 60_000} | (more or {}))
    )
    try:
        if transactional:
            producer.init_transactions()
            producer.begin_transaction()
        attempt(producer, ColumnPlan(topic, value_column=0), [values_batch([b"c4nary-row"])])
        if transactional:
            producer.commit_transaction()
    finally:
        producer.close(0)


def refused(*arguments, **options):
    began = time.monotonic()
    with pytest.raises(KafkaError) as raised:  # no wait for what only an administrator can give
        write(*arguments, **options)
    assert time.monotonic() - began < AT_ONCE_S
    text = str(raised.value)
    assert "the SASL user, or the client certificate's subject" in text or "abort" in text
    assert "c4nary" not in text
    cause = raised.value.__cause__ if raised.value.__cause__ is not None else raised.value
    return cause, text


def test_a_missing_right_is_named(secure_kafka, bob):
    topic = secure_kafka.kafka.unique_topic("acl")
    with acl(secure_kafka, "bob"):  # none
        error, text = refused(secure_kafka, bob, topic)
    assert "needs the ACL WRITE on the topic" in text
    if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return  # metadata and identity are asked for at once, and metadata were answered first
    assert error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "InitProducerId on broker 127.0.0.1" in text
    assert "IDEMPOTENT_WRITE" in text
    assert "enable.idempotence=false" in text


def test_no_describe_names_the_topic_and_not_whether_it_exists(secure_kafka, bob):
    topic, other = (secure_kafka.kafka.unique_topic("acl") for _ in range(2))
    with acl(secure_kafka, "bob", ("TOPIC", other, "WRITE")):
        there = refused(secure_kafka, bob, topic)[1]
        absent = refused(secure_kafka, bob, "acl-nowhere")[1]
    assert f"topic {topic}: TOPIC_AUTHORIZATION_FAILED" in there
    assert "WRITE on the topic, which includes DESCRIBE" in there
    assert absent == there.replace(topic, "acl-nowhere")


def test_describe_without_write_names_the_refused_partition(secure_kafka, bob):
    topic, other = (secure_kafka.kafka.unique_topic("acl") for _ in range(2))
    with acl(secure_kafka, "bob", ("TOPIC", topic, "DESCRIBE"), ("TOPIC", other, "WRITE")):
        error, text = refused(secure_kafka, bob, topic)
        write(secure_kafka, bob, other)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert f"{topic}-0" in text
    assert "on broker 127.0.0.1" in text
    assert "attempts: 1" in text


def test_without_idempotence_no_cluster_right_is_needed(secure_kafka, bob, consume):
    topic = secure_kafka.kafka.unique_topic("acl")
    off = {"enable.idempotence": "false"}
    with acl(secure_kafka, "bob", ("TOPIC", topic, "DESCRIBE")):
        error, _ = refused(secure_kafka, bob, topic, off)
        assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED, "and not the cluster's"
    with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE")):
        write(secure_kafka, bob, topic, off)
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"c4nary-row"]


@pytest.mark.parametrize(
    ("rights", "asked"),
    [((), "FindCoordinator of "), (("DESCRIBE",), "InitProducerId of ")],
    ids=["none", "describe only"],
)
def test_no_right_to_a_transactional_id_names_it(secure_kafka, bob, rights, asked):
    topic = secure_kafka.kafka.unique_topic("acl")
    name = f"txn-{uuid.uuid4().hex[:8]}"
    given = [("TRANSACTIONAL_ID", name, right) for right in rights]
    with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE"), *given):
        error, text = refused(
            secure_kafka, bob, topic, {"transactional.id": name}, transactional=True
        )
    assert error.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert f"{asked}{name} on broker" in text
    assert "the principal may not use the transactional id" in text
    assert "WRITE on the transactional id" in text


def test_a_transaction_on_a_topic_without_write_names_both(secure_kafka, bob):
    topic, other = (secure_kafka.kafka.unique_topic("acl") for _ in range(2))
    name = f"txn-{uuid.uuid4().hex[:8]}"
    rights = ("TRANSACTIONAL_ID", name, "WRITE"), ("TOPIC", other, "WRITE")
    with acl(secure_kafka, "bob", *rights, ("TOPIC", topic, "DESCRIBE")):
        _, text = refused(secure_kafka, bob, topic, {"transactional.id": name}, transactional=True)
    assert name in text
    assert f"{topic}-0" in text
    assert "TOPIC_AUTHORIZATION_FAILED" in text


def test_a_revoked_right_stops_a_writing_producer(secure_kafka, bob, consume):
    """The revoked row of the certificate matrix: the certificate is good, the user is not."""
    topic = secure_kafka.kafka.unique_topic("acl")
    options = config(secure_kafka.bootstrap("SSL"), bob)
    plan = ColumnPlan(topic, value_column=0)
    with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE")):
        # Not before: a producer asks for its id as soon as it is made.
        producer = KafkaProducer(options)
        attempt(producer, plan, [values_batch([b"before"])])
    with pytest.raises(KafkaError) as raised:
        attempt(producer, plan, [values_batch([b"after"])])
    producer.close(0)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(raised.value)
    assert consume(topic, bootstrap=secure_kafka.kafka.bootstrap).values == [b"before"]


def test_a_job_without_the_right_fails_before_any_task(secure_kafka, bob, spark):
    topic = secure_kafka.kafka.unique_topic("acl")
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED") as raised:
        (
            spark.range(10)
            .selectExpr("cast(id AS string) AS value")
            .write.format("kprod")
            .option("kafka.bootstrap.servers", secure_kafka.bootstrap("SSL"))
            .option("topic", topic)
            .options(**{f"kafka.{name}": value for name, value in bob.items()})
            .save()
        )
    assert "Failed to initialize Python data source writer" in str(raised.value)
    assert "needs the ACL WRITE on the topic" in str(raised.value)
