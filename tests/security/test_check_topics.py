"""``kprod check`` of topics: brokers refuse what it calls red, and not what it calls green."""

from __future__ import annotations

import os

import pytest

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.datasource.checks.preflight import process_preflight
from spark_kafka_sink.datasource.checks.topic_checks import forbidden_topics
from spark_kafka_sink.datasource.report.report_file import lacks
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from tests.secure_kafka import acl
from tests.security.check_rows import (
    IDS,
    assert_named,
    assert_no_red,
    exactly_once,
    row,
    steps_of,
    steps_of_bob,
)


def is_written(kafka, topic, key=b"key"):
    with KafkaProducer({"bootstrap.servers": kafka.bootstrap}) as producer:
        try:
            producer.send(ProducerRecord(topic, b"row", key=key)).result(60)
        except KafkaError:
            return False
    return True


@pytest.mark.parametrize("version", ["kafka", "kafka_3_9"])
def test_one_replica_is_enough_since_kafka_3_7(request, version):
    """The leader takes the number of replicas for a larger min.insync.replicas."""
    kafka = request.getfixturevalue(version)
    topic = kafka.unique_topic("check", configs={"min.insync.replicas": "2"})
    assert is_written(kafka, topic)
    steps = steps_of(kafka.bootstrap, {"topic": topic})
    assert_no_red(steps)
    found = row(steps, "replicas")
    assert found.state is StepState.OK
    assert "need no more than there are replicas (1)" in found.said


def test_a_compacted_topic_is_named(secure_kafka):
    """Whether rows have keys is not known here, unless an option says so."""
    kafka = secure_kafka.kafka
    topic = kafka.unique_topic("check", configs={"cleanup.policy": "compact"})
    assert not is_written(kafka, topic, key=None)
    found = row(steps_of(kafka.bootstrap, {"topic": topic}), "cleanup.policy")
    assert (found.state, found.code) == (StepState.WARNING, "KP0215")
    keyed = {"topic": topic, "keyColumns": "id", "valueColumns": "id"}
    found = row(steps_of(kafka.bootstrap, keyed), "cleanup.policy")
    assert (found.state, found.said) == (StepState.OK, "compact")


def test_a_missing_topic_of_reports_is_red(secure_kafka):
    kafka = secure_kafka.kafka
    topic, reports = kafka.unique_topic("check"), kafka.unique_topic("reports")
    missing = {"topic": topic, "reportTopic": "check.nobody-made-it"}
    assert_named(steps_of(kafka.bootstrap, missing), "reportTopic", "UNKNOWN_TOPIC_OR_PARTITION")
    rights = (("TOPIC", topic, "WRITE"), ("TOPIC", reports, "DESCRIBE"))
    with acl(secure_kafka, "bob", *rights):
        steps = steps_of_bob(secure_kafka, {"topic": topic, "reportTopic": reports})
        assert_named(steps, "reportTopic", "the ACL WRITE")
    compacted = kafka.unique_topic("reports", configs={"cleanup.policy": "compact"})
    steps = steps_of(kafka.bootstrap, {"topic": topic, "reportTopic": compacted})
    assert_named(steps, "reportTopic", "have no key")
    small = kafka.unique_topic("reports", configs={"max.message.bytes": "1000"})
    steps = steps_of(kafka.bootstrap, {"topic": topic, "reportTopic": small})
    assert row(steps, "reportTopic").state is StepState.WARNING
    fine = steps_of(kafka.bootstrap, {"topic": topic, "reportTopic": reports})
    assert row(fine, "reportTopic").state is StepState.OK


@pytest.mark.long
@pytest.mark.broker
def test_a_topic_that_brokers_create_is_a_warning():
    """A write asks for its topic and that of its reports; nothing asks for that of progress."""
    named = {"topic": "rows", "reportTopic": "reports", "progressTopic": "progress"}
    with KafkaCluster(overrides={"auto.create.topics.enable": "true"}) as cluster:
        steps = steps_of(cluster.bootstrap, named)
        assert_no_red(steps)
        for name in ("topic", "reportTopic"):
            assert row(steps, name).code == "KP0302"
            assert "the first write creates it" in row(steps, name).said
        assert row(steps, "progressTopic").code == "KP0703"
        config = parse_sink_config({"kafka.bootstrap.servers": cluster.bootstrap} | named)
        with AdminClient(config.producer) as admin:
            assert not set(named.values()) & set(admin.topic_names(admin.deadline()))
        assert process_preflight().check(config, streaming=False) is not None
        states = {one.name: one.state for one in steps_of(cluster.bootstrap, named)}
        assert (states["topic"], states["reportTopic"]) == (StepState.OK, StepState.OK)


def test_a_missing_topic_of_progress_is_a_warning(secure_kafka):
    """A write goes on without it; what is watched for is not seen."""
    kafka = secure_kafka.kafka
    topic = kafka.unique_topic("check")
    progress = kafka.unique_topic("progress", configs={"cleanup.policy": "compact"})
    steps = steps_of(kafka.bootstrap, {"topic": topic, "progressTopic": "check.nobody-made-it"})
    found = row(steps, "progressTopic")
    assert (found.state, found.code) == (StepState.WARNING, "KP0703")
    assert "check.nobody-made-it" in found.said
    assert "create check.nobody-made-it" in found.change
    with acl(secure_kafka, "bob", ("TOPIC", topic, "WRITE"), ("TOPIC", progress, "DESCRIBE")):
        steps = steps_of_bob(secure_kafka, {"topic": topic, "progressTopic": progress})
        found = row(steps, "progressTopic")
        assert (found.state, found.code) == (StepState.WARNING, "KP0703")
        assert "not authorised to write to it" in found.said
    fine = row(steps_of(kafka.bootstrap, {"progressTopic": progress}), "progressTopic")
    assert (fine.state, fine.said) == (StepState.OK, progress)


def test_a_commit_log_that_may_not_be_created_is_red(secure_kafka):
    topic = secure_kafka.kafka.unique_topic("check")
    log = f"{topic}-log"
    options = exactly_once(topic, log)
    rights = [("TOPIC", topic, "WRITE"), *IDS]
    rights += [("TOPIC", log, right) for right in ("DESCRIBE", "READ", "WRITE")]
    with acl(secure_kafka, "bob", *rights):
        steps = steps_of_bob(secure_kafka, options)
        assert_named(steps, "commit log", "and CREATE while it is missing")
    with acl(secure_kafka, "bob", *rights, ("TOPIC", log, "CREATE")):
        for _ in range(2):  # the second time, too: nothing was created
            found = row(steps_of_bob(secure_kafka, options), "commit log")
            assert found.state is StepState.OK
            assert "does not exist yet" in found.said


OWN = "tests.security.test_check_topics:"


def on_report(report):
    """Of reportListeners and progressListeners."""


def test_a_queue_that_can_not_be_created_has_its_own_advice(secure_kafka):
    """The commit log has another number of partitions, and is compacted."""
    options = {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "no-such-queue",
        "errors.deadletterqueue.topic.replication.factor": "3",
    }
    found = row(steps_of(secure_kafka.kafka.bootstrap, options), "dead letter queue")
    assert found.state is StepState.FAILED
    assert found.change == (
        "the principal needs CREATE on it, and the cluster as many brokers as "
        "errors.deadletterqueue.topic.replication.factor says; or create it yourself, with one "
        "partition"
    )


@pytest.mark.parametrize(
    ("option", "path", "said"),
    [
        ("interceptor.classes", "nowhere.at:All", "interceptor.classes"),
        ("interceptor.classes", f"{OWN}on_report", "interceptor.classes"),
        ("partitioner.class", f"{OWN}missing", "partitioner.class"),
        ("reportListeners", f"{OWN}missing", "reportListeners"),
        ("progressListeners", "nowhere:function", "progressListeners"),
        ("reportListeners", f"{OWN}on_report", "1 imported"),
    ],
)
def test_a_class_that_a_write_refuses_is_red(secure_kafka, option, path, said):
    steps = steps_of(secure_kafka.kafka.bootstrap, {option: path})
    found = row(steps, "classes")
    assert said in found.said
    assert found.state is (StepState.OK if said == "1 imported" else StepState.FAILED), found
    assert row(steps, "brokers").state is StepState.OK, "the other steps are done all the same"


def test_a_report_path_that_a_write_refuses_is_red(secure_kafka, tmp_path):
    bootstrap = secure_kafka.kafka.bootstrap
    os.mkfifo(tmp_path / "pipe")
    steps = steps_of(bootstrap, {"reportPath": str(tmp_path / "pipe")})
    assert_named(steps, "reportPath", "can't be written")
    fine = steps_of(bootstrap, {"reportPath": str(tmp_path / "reports.jsonl")})
    assert row(fine, "reportPath").state is StepState.OK


def test_a_report_path_that_leads_nowhere_is_a_warning(secure_kafka, tmp_path):
    """The write goes on without a report; a directory of reports is made."""
    for place, missing in (
        (f"{tmp_path}/nowhere/reports.jsonl", f"the directory {tmp_path}/nowhere does not exist"),
        ("x" * 5_000, "it is no name that a file can have"),
    ):
        found = row(steps_of(secure_kafka.kafka.bootstrap, {"reportPath": place}), "reportPath")
        assert (found.state, found.code) == (StepState.WARNING, "KP0703")
        assert missing in found.said
    made = {"reportPath": f"{tmp_path}/nowhere/reports/"}
    assert row(steps_of(secure_kafka.kafka.bootstrap, made), "reportPath").state is StepState.OK
    assert lacks(str(tmp_path)) is None
    tmp_path.chmod(0o500)
    # (root may.)
    refused = None if os.access(tmp_path, os.W_OK) else "this user may not write it"
    assert lacks(str(tmp_path)) == lacks(f"{tmp_path}/r.jsonl") == refused


def test_only_topics_that_are_seen_without_write_are_forbidden(secure_kafka):
    """A task with a dead letter queue makes letters of the rows that name these topics."""
    kafka = secure_kafka.kafka
    seen, written, hidden = (kafka.unique_topic(name) for name in ("seen", "written", "hidden"))
    config = parse_producer_config(secure_kafka.cluster.client_options("SSL", user="bob"))
    with acl(secure_kafka, "bob", ("TOPIC", seen, "DESCRIBE"), ("TOPIC", written, "WRITE")):
        found = forbidden_topics(config, {seen, written, hidden})
    assert found == {seen: ErrorCode.TOPIC_AUTHORIZATION_FAILED}


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "no-such-host.invalid:9092"])
def test_rights_that_are_unknown_are_a_warning_of_the_task(servers, caplog):
    """A row for a forbidden topic fails at the broker then. Without a topic, it asks for none."""
    config = parse_producer_config({"bootstrap.servers": servers, "max.block.ms": 500})
    assert forbidden_topics(config, {"rows"}) == {}
    assert any("the rights on rows are unknown" in message for message in caplog.messages)
    assert forbidden_topics(config, ()) == {}
