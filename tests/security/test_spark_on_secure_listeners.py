"""Spark writes with every mechanism: a batch job with exactly-once, and a stream.

That each mechanism works without TLS, too: ``sasl/test_sasl_on_a_broker.py``.
"""

from __future__ import annotations

import pytest

from tests.secure_kafka import properties

MECHANISMS = [
    "SCRAM-SHA-512",
    "a client's file",
    *(
        pytest.param(one, marks=pytest.mark.long)
        for one in ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "mutual TLS")
    ),
]
ROWS = 20


def options_of(secure, mechanism, directory):
    """A client's file holds its secret, as Kafka's own tools want it."""
    if mechanism == "mutual TLS":
        return {
            "kafka.bootstrap.servers": secure.bootstrap("MUTUAL"),
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(secure.ca),
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.location": str(secure.client_key),
        }
    if mechanism == "a client's file":
        options = secure.cluster.client_options("SASL_SSL", "SCRAM-SHA-256")
        return {"configFile": str(properties(directory / "client.properties", options))}
    options = secure.cluster.client_options("SASL_SSL", mechanism)
    return {f"kafka.{name}": value for name, value in options.items()}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_job_and_a_stream_reach_their_topic_exactly_once(
    secure_kafka, spark, consume, tmp_path, mechanism
):
    topic = secure_kafka.kafka.unique_topic("matrix")
    options = options_of(secure_kafka, mechanism, tmp_path) | {
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": topic,
    }
    frame = spark.range(ROWS).selectExpr("concat('job-', id) AS value")
    frame.write.format("kprod").options(**options).save()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "rows.json").write_text('{"value": "streamed"}\n')
    query = (
        spark.readStream.schema("value string")
        .json(str(tmp_path / "source"))
        .writeStream.format("kprod")
        .options(**options)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    values = consume(
        topic, bootstrap=secure_kafka.kafka.bootstrap, isolation="read_committed"
    ).values
    assert sorted(values) == sorted([*(b"job-%d" % i for i in range(ROWS)), b"streamed"])
