"""``kprod check`` while brokers are down, die, or have no coordinator: each is named, and no other
reason is.
"""

from __future__ import annotations

import json
import socket
import uuid
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.check_steps import StepState
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.topic_requests import NewTopic
from spark_kafka_sink.transactions.transactional_ids import check_id
from tests.faults.proxy import Action, Proxy, Side
from tests.real_kafka import RealKafka
from tests.secure_kafka import acl
from tests.security.check_rows import assert_named, assert_no_red, first_red, row, steps_of
from tests.transactions.operator_stage import Stage
from tests.waiting import wait_for, with_more_time


def topic_of(kafka3, partitions, replicas, least, policy="delete"):
    """A new topic, and the replicas of each partition."""
    topic = f"check-{uuid.uuid4().hex[:8]}"
    configs = {"min.insync.replicas": str(least), "cleanup.policy": policy}
    new = NewTopic(topic, partitions, replicas, configs)
    config = parse_sink_config({"kafka.bootstrap.servers": kafka3.bootstrap})
    with AdminClient(config.producer) as admin:
        return topic, [p.replicas for p in admin.create_topic(new).topics[topic]]


def log_of(kafka3, node):
    """A new commit log of one partition, on that node alone."""
    while True:
        log, replicas = topic_of(kafka3, 1, 1, 1, "compact")
        if list(replicas[0]) == [node]:
            return log


def row_when(bootstrap, name, condition, **options):
    """The row ``name`` once it is as expected: brokers notice the end of one after a while."""

    def found():
        one = row(steps_of(bootstrap, options, 20_000), name)
        return one if condition(one) else None

    return wait_for(found, 90, f"the row {name}")


def is_failed(one):
    return one.state is StepState.FAILED


def names_a_dead_broker(one):
    return "down:" in one.said


@pytest.mark.cluster
def test_partitions_with_too_few_replicas_in_sync_are_named(kafka3):
    """One of three nodes is down: of four partitions, those with a replica there."""
    topic, replicas = topic_of(kafka3, 4, 2, 2)
    kafka3.node(3).stop()
    hit = [p for p, ids in enumerate(replicas) if 3 in ids]
    assert 0 < len(hit) < 4
    found = row_when(kafka3.bootstrap, "replicas", is_failed, topic=topic)
    assert f"{len(hit)} of 4 partitions" in found.said
    assert ", ".join(f"{p} (1)" for p in hit) in found.said
    assert "every write to these partitions is rejected" in found.said


@pytest.mark.cluster
def test_one_dead_broker_of_three_is_named(kafka3):
    """Writes go on, and the next broker that stops ends them."""
    topic, _ = topic_of(kafka3, 3, 3, 2)
    assert row(steps_of(kafka3.bootstrap, {"topic": topic}), "replicas").state is StepState.OK
    kafka3.node(3).stop()
    found = row_when(kafka3.bootstrap, "replicas", names_a_dead_broker, topic=topic)
    assert found.state is StepState.WARNING
    assert "replicas of 3 of 3 partitions are not in sync" in found.said
    assert "down: broker 3" in found.said
    assert "with one broker less, every write to these partitions is rejected" in found.said
    assert_no_red(steps_of(kafka3.bootstrap, {"topic": topic}))


@pytest.mark.cluster
def test_replicas_at_the_minimum_are_a_warning(kafka3):
    topic, _ = topic_of(kafka3, 3, 2, 2)
    found = row(steps_of(kafka3.bootstrap, {"topic": topic}), "replicas")
    assert found.state is StepState.WARNING
    assert (
        "3 of 3 partitions have no more replicas in sync than min.insync.replicas=2" in found.said
    )
    assert found.change == "give the topic more replicas than min.insync.replicas"
    topic, _ = topic_of(kafka3, 3, 3, 2)
    assert row(steps_of(kafka3.bootstrap, {"topic": topic}), "replicas").state is StepState.OK


OF_ROWS = {
    "commit log": {"deliveryGuarantee": "exactly-once", "commitLogTopic": "{}"},
    "reportTopic": {"deliveryGuarantee": "exactly-once", "reportTopic": "{}"},
    "dead letter queue": {
        "errors.tolerance": "all", "errors.deadletterqueue.topic.name": "{}",
    },
}  # fmt: skip


@pytest.mark.cluster
@pytest.mark.parametrize("name", OF_ROWS)
def test_other_topics_of_a_write_need_their_replicas(kafka3, name):
    """A batch fails by each of them, and its topic is whole."""
    other, _ = topic_of(kafka3, 1, 3, 3, "compact" if name == "commit log" else "delete")
    topic, _ = topic_of(kafka3, 1, 1, 1)
    options = {n: value.format(other) for n, value in OF_ROWS[name].items()}
    assert row(steps_of(kafka3.bootstrap, options), name).state is StepState.OK
    kafka3.node(3).stop()
    said = row_when(kafka3.bootstrap, name, is_failed, topic=topic, **options).said
    assert other in said
    assert "1 of 1 partitions have fewer replicas in sync than min.insync.replicas=3" in said
    assert "down: broker 3" in said


@pytest.mark.long
@pytest.mark.broker
def test_lacking_replicas_are_named_without_a_right_to_configs():
    """Who may only write does not see min.insync.replicas, and rows may be rejected."""
    with KafkaCluster(3, secure=True) as cluster:
        kafka = RealKafka(cluster.bootstrap, cluster)
        topic, _ = topic_of(kafka, 2, 3, 2)
        user = cluster.client_options("SASL_PLAINTEXT", user="bob")
        bootstrap = user.pop("bootstrap.servers")
        with acl(SimpleNamespace(kafka=kafka), "bob", ("TOPIC", topic, "WRITE")):
            options = {"topic": topic, **user}
            assert row(steps_of(bootstrap, options), "replicas").state is StepState.SKIPPED
            kafka.node(3).stop()
            found = row_when(bootstrap, "replicas", names_a_dead_broker, **options)
    assert found.state is StepState.WARNING
    assert "2 of 2 partitions are not in sync" in found.said
    assert "down: broker 3; whether writes are rejected is not known" in found.said
    assert "DESCRIBE_CONFIGS" in found.said


@pytest.mark.cluster
def test_a_broker_that_has_just_died_is_not_a_wrong_address(kafka3):
    """It is in the metadata until its session times out."""
    topic, _ = topic_of(kafka3, 3, 3, 1)
    for _ in range(3):  # on a slow machine the session may be over before the check asks
        kafka3.node(3).kill()
        found = row(steps_of(kafka3.bootstrap, {"topic": topic}), "brokers")
        if found.state is StepState.WARNING:
            break
        kafka3.node(3).start()
        kafka3.wait_until_in_sync()
    assert found.state is StepState.WARNING, found
    assert "broker 3 at " in found.said
    assert "has just died" in found.said
    assert "advertised.listeners" not in f"{found.said} {found.change}"


@pytest.mark.cluster
def test_a_frozen_broker_is_named(kafka3):
    """Its operating system accepts connections for it. The cluster loses it after a while."""
    topic, _ = topic_of(kafka3, 3, 1, 1)
    frozen = kafka3.bootstrap.split(",")[2]
    kafka3.node(3).freeze()
    for options in ({}, {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": topic}):
        steps = steps_of(kafka3.bootstrap, {"topic": topic, **options})
        silent = row(steps, "ApiVersions")
        assert silent.state is StepState.WARNING, steps
        assert f"1 of 3 bootstrap servers can't be reached: {frozen}: no answer" in silent.said
    row_when(kafka3.bootstrap, "partitions", lambda one: "have no leader" in one.said, topic=topic)
    row_when(kafka3.bootstrap, "brokers", lambda one: "2 of 2 reached" in one.said, topic=topic)
    kafka3.node(3).thaw()
    row_when(kafka3.bootstrap, "ApiVersions", lambda one: one.state is StepState.OK, topic=topic)


@pytest.mark.long  # a broker of its own
@pytest.mark.broker
def test_a_coordinator_that_is_not_there_is_named():
    """The topic of transactions can't be created: one broker, three replicas wanted."""
    overrides = {"transaction.state.log.replication.factor": "3"}
    with KafkaCluster(overrides=overrides) as cluster:
        options = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": "check"}

        def is_named(limit_ms):
            found = first_red(steps_of(cluster.bootstrap, options, limit_ms))
            assert (found.name, found.code) == ("coordinator", "KP1015")
            assert "COORDINATOR_NOT_AVAILABLE" in found.said
            assert "transaction.state.log.replication.factor" in found.change
            assert "firewall" not in found.change
            command = ["check", "--exactly-once", "-b", cluster.bootstrap, "--json"]
            command += ["--timeout", str(limit_ms // 1000)]
            tried = json.loads(CliRunner().invoke(app, command).stdout)
            assert not tried["exactlyOnce"]["works"]
            assert tried["exactlyOnce"]["because"].startswith("coordinator: ")
            steps = {(one["name"], one["state"]) for one in tried["steps"]}
            assert ("trial topic", "skipped") in steps

        with_more_time(is_named, 2_000)


def test_a_dead_bootstrap_server_is_named(secure_kafka):
    good = secure_kafka.kafka.bootstrap
    steps = steps_of(f"127.0.0.1:1,no.such.host.invalid:9092,{good}", {})
    assert_no_red(steps)
    for stage, address in (("name", "no.such.host.invalid:9092"), ("TCP", "127.0.0.1:1")):
        found = row(steps, stage)
        assert found.state is StepState.WARNING
        assert f"{good}; 1 of 3 bootstrap servers can't be reached: {address}" in found.said
        assert "out of kafka.bootstrap.servers" in found.change
    assert_named(steps_of("127.0.0.1:1,127.0.0.1:2", {}), "TCP", "Connection refused")


def test_commands_turn_away_from_silent_servers(secure_kafka):
    """Which server is asked first is by chance."""
    good = secure_kafka.kafka.bootstrap
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for _ in range(3)
        ]
        servers = ",".join([*(f"127.0.0.1:{port}" for port in silent), good])
        done = CliRunner().invoke(app, ["txn", "list", "-b", servers])
    assert done.exit_code == 0, done.output


def test_a_silent_bootstrap_server_is_named(secure_kafka):
    """A connection is none yet: an operating system accepts it for a process that is frozen."""
    good = secure_kafka.kafka.bootstrap
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        steps = steps_of(f"{address},{good}", {})
        assert_no_red(steps)
        found = row(steps, "ApiVersions")
        assert found.state is StepState.WARNING
        assert f"{good} speaks Kafka; 1 of 2 bootstrap servers can't be reached" in found.said
        assert f"{address}: no answer within" in found.said


def test_a_slow_broker_is_no_dead_one(secure_kafka):
    """Two answers take longer than the limit of a listener that gives none."""
    host, port = secure_kafka.kafka.bootstrap.split(":")
    with Proxy((host, int(port))) as proxy:
        for api in (ApiKey.API_VERSIONS, ApiKey.METADATA):
            slow = proxy.add(api, Action.DELAY, Side.RESPONSE, times=100)
            slow.delay_s = 2.6
        steps = steps_of(f"127.0.0.1:{proxy.port}", {})
        assert_no_red(steps)
        proxy.assert_all_fired()


def test_a_broker_that_knows_no_cluster_is_named(secure_kafka):
    """It speaks Kafka, and answers nothing to Metadata: none of its requests is done."""
    host, port = secure_kafka.kafka.bootstrap.split(":")
    with Proxy((host, int(port))) as proxy:
        proxy.add(ApiKey.METADATA, Action.SWALLOW, Side.REQUEST, times=100)

        def is_named(limit_ms):
            steps = steps_of(f"127.0.0.1:{proxy.port}", {}, limit_ms)
            assert_named(steps, "ApiVersions", "nothing is known of the cluster")
            assert row(steps, "TCP").state is StepState.OK
            later = {row(steps, name).said for name in ("cluster", "brokers")}
            assert later == {"an earlier step failed"}

        with_more_time(is_named, 1_000)
        proxy.assert_all_fired()


@pytest.mark.cluster
def test_a_list_without_every_brokers_answer_is_a_failure(kafka3):
    """What the two coordinate may be open. Without a majority they stay in the metadata."""
    config = parse_sink_config({"kafka.bootstrap.servers": kafka3.bootstrap})
    ids = {check_id(prefix): prefix for prefix in (f"orders{number}" for number in range(60))}
    with TransactionClient(config.producer) as client:
        found = client.loop.coordinators(ids, client.deadline(60_000))
    prefix = next(ids[one] for one, node in found.items() if node.id == 1)
    log = log_of(kafka3, 1)
    with TransactionClient(config.producer) as client:
        stage = Stage(kafka3, client, (log, log))
        stage.write(stage.state(), prefix)
        wait_for(lambda: stage.operator.inspector.keys(prefix), 30, "the key, by its marker")
    for number in (2, 3):
        kafka3.node(number).kill()
    words = ["txn", "list", prefix, "-b", kafka3.bootstrap, "--timeout", "10"]
    words += ["--log-topic", log]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["open"] == []
    assert [one.split(" ")[1:] for one in found["silent"]] == [["(id", "2)"], ["(id", "3)"]]
    shown = CliRunner().invoke(app, words).output
    assert "the list lacks its transactions" in shown
    assert "is open" not in shown
    for command, *more in (["sweep", prefix], ["abort", "--prefix", prefix, "--run", "dead"]):
        other = ["txn", command, *more, *words[3:], "--yes"]
        done = CliRunner().invoke(app, [*other, "--json"])
        assert done.exit_code == 1, done.output
        found = json.loads(done.stdout)
        assert (found["changed"], len(found["silent"])) == (False, 2)
        shown = CliRunner().invoke(app, other).output
        assert "the list lacks its transactions" in shown
        assert "nothing to abort on the others" in shown
    done = CliRunner().invoke(app, ["txn", "reset", prefix, *words[3:], "--yes"])
    assert done.exit_code == 1, done.output
    assert "whether transactions of the owner" in done.output
