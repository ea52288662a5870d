"""Secrets by reference and configFile where Spark runs: driver, tasks, commit."""

from __future__ import annotations

import pickle
import re

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.datasource.source import KprodDataSource
from tests.secure_kafka import acl, properties

VALUE = StructType([StructField("value", StringType())])


def rows(spark, count=10):
    return spark.range(count).selectExpr("cast(id AS string) AS value")


def test_a_commit_does_not_depend_on_a_file_that_is_gone(tmp_path):
    """Spark makes the writer that commits from a data source that it pickled once per run."""
    path = tmp_path / "client.properties"
    path.write_text(
        "bootstrap.servers=b:9092\nsecurity.protocol=SSL\n"
        "ssl.keystore.location=/k.pem\nssl.key.password=c4nary\n"
    )
    options = CaseInsensitiveDict({"configFile": str(path), "topic": "t", "preflight": "off"})
    pickled = pickle.dumps(KprodDataSource(options))
    assert b"c4nary" not in pickled
    path.unlink()
    writer = pickle.loads(pickled).streamWriter(VALUE, overwrite=False)
    writer.commit([], 0)
    assert writer.plan.config.producer.bootstrap_servers == (("b", 9092),)


@pytest.mark.parametrize(("preflight", "who"), [("required", "the driver"), ("off", "an executor")])
def test_a_missing_secret_names_the_process_that_lacks_it(secure_kafka, spark, preflight, who):
    options = {
        "kafka.bootstrap.servers": secure_kafka.bootstrap("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.location": str(secure_kafka.cluster.security.ca),
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": "${file:/nowhere/password}",
        "topic": "t",
        "preflight": preflight,
    }
    with pytest.raises(Exception, match=r"\$\{file:/nowhere/password\}") as raised:
        rows(spark, 1).coalesce(1).write.format("kprod").options(**options).save()
    (line,) = {
        found.group() for found in re.finditer(r"sasl\.password: .*\)(?=\n)", str(raised.value))
    }
    assert "can't be read: No such file or directory, on host " in line
    assert line.endswith(f"({who})")


#: What docs/security.md lists, but for the transactional ids.
LOG = "__kprod_commits"
OF_THE_LOG = [("TOPIC", LOG, right) for right in ("CREATE", "READ", "WRITE")]


def exactly_once(secure, spark, path, topic):
    bob = secure.cluster.client_options("SASL_SSL", "SCRAM-SHA-256", "bob")
    (
        rows(spark, 3)
        .coalesce(1)
        .write.format("kprod")
        .option("configFile", str(properties(path, bob)))
        .option("topic", topic)
        .option("deliveryGuarantee", "exactly-once")
        .save()
    )


def test_exactly_once_with_the_rights_that_the_page_lists(secure_kafka, spark, consume, tmp_path):
    topic = secure_kafka.kafka.unique_topic("acl")
    given = [("TOPIC", topic, "WRITE"), ("TRANSACTIONAL_ID", "kprod~*", "WRITE"), *OF_THE_LOG]
    with acl(secure_kafka, "bob", *given):
        exactly_once(secure_kafka, spark, tmp_path / "client.properties", topic)
    read = {"bootstrap": secure_kafka.kafka.bootstrap, "isolation": "read_committed"}
    assert sorted(consume(topic, **read).values) == [b"0", b"1", b"2"]


def test_exactly_once_without_its_rights_fails_at_planning(secure_kafka, spark, tmp_path):
    topic = secure_kafka.kafka.unique_topic("acl")
    given = [("TOPIC", topic, "WRITE"), ("TRANSACTIONAL_ID", "kprod~*", "DESCRIBE"), *OF_THE_LOG]
    with (
        acl(secure_kafka, "bob", *given),
        pytest.raises(Exception, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED") as raised,
    ):
        exactly_once(secure_kafka, spark, tmp_path / "client.properties", topic)
    text = str(raised.value)
    assert "Failed to initialize Python data source writer" in text
    assert "WRITE and DESCRIBE on transactional ids that begin with 'kprod~'" in text
