"""Dead letters and ACLs: rows for topics that may not be written, and a queue that may not."""

from __future__ import annotations

import uuid

import pytest

from spark_kafka_sink import last_report
from tests.real_kafka import consume_topic
from tests.secure_kafka import acl

pytestmark = pytest.mark.long


@pytest.fixture
def topics(secure_kafka):
    """For rows, for rows that may not be sent, and for letters."""
    return [secure_kafka.kafka.unique_topic(name) for name in ("rows", "forbidden", "dlq")]


@pytest.fixture
def save(secure_kafka):
    """Writes a frame as bob."""
    options = secure_kafka.cluster.client_options("SSL", user="bob")

    def write(frame, queue, **more):
        writer = frame.write.format("kprod").option("errors.tolerance", "all")
        writer = writer.options(**{f"kafka.{name}": value for name, value in options.items()})
        writer.option("errors.deadletterqueue.topic.name", queue).options(**more).save()

    return write


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("operation", [None, "DESCRIBE"])
def test_rows_for_a_forbidden_topic_are_letters(
    spark, secure_kafka, topics, save, operation, guarantee
):
    """Whether brokers show it or not."""
    topic, forbidden, queue = topics
    rights = [("TOPIC", topic, "WRITE"), ("TOPIC", queue, "WRITE")]
    rights += [] if operation is None else [("TOPIC", forbidden, operation)]
    if guarantee == "exactly-once":
        rights += [("TRANSACTIONAL_ID", "kprod*", "WRITE"), ("TOPIC", "__kprod_commits", "CREATE")]
        rights += [("TOPIC", "__kprod_commits", one) for one in ("READ", "WRITE")]
    frame = spark.range(0, 3, 1, 1).selectExpr(
        "CAST(id AS STRING) AS value", f"IF(id = 1, '{forbidden}', '{topic}') AS topic"
    )
    with acl(secure_kafka, "bob", *rights):
        save(frame, queue, deliveryGuarantee=guarantee)
    bootstrap = secure_kafka.kafka.bootstrap
    found = {name: consume_topic(bootstrap, name).values for name in topics}
    assert found == {topic: [b"0", b"2"], forbidden: [], queue: [b"1"]}
    (reason,) = last_report(spark).dead_letters.by_reason
    assert (reason.code, reason.rows) == ("KP1029", 1)


def test_a_queue_that_may_not_be_written_fails_before_tasks(spark, secure_kafka, topics, save):
    topic, _, queue = topics
    frame = spark.range(1).selectExpr("'v' AS value", "-7 AS partition")
    with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE"), ("TOPIC", queue, "DESCRIBE")):
        with pytest.raises(Exception, match=f"topic {queue}: TOPIC_AUTHORIZATION_FAILED"):
            save(frame, queue, topic=topic)
        # Without that look its task fails, and the error has both causes.
        with pytest.raises(Exception, match="KP1029") as caught:
            save(frame, queue, topic=topic, preflight="off")
        assert f"for the dead letter queue {queue}: 1 partition does not exist" in str(caught.value)
    assert len(consume_topic(secure_kafka.kafka.bootstrap, queue)) == 0


def test_a_queue_that_may_not_be_created_says_which_right(spark, secure_kafka, topics, save):
    topic, _, _ = topics
    missing = f"dlq.{uuid.uuid4().hex}"
    frame = spark.range(1).selectExpr("'v' AS value")
    hidden, shown = [("TOPIC", topic, "WRITE")], [("TOPIC", missing, "DESCRIBE")]
    for rights in (hidden, hidden + shown):
        with acl(secure_kafka, "bob", *rights), pytest.raises(Exception, match=missing) as caught:
            save(frame, missing, topic=topic)
        assert "AUTHORIZATION_FAILED" in str(caught.value)
    assert "needs CREATE" in str(caught.value)
    with acl(
        secure_kafka, "bob", *hidden, ("TOPIC", missing, "CREATE"), ("TOPIC", missing, "WRITE")
    ):
        save(frame, missing, topic=topic)
