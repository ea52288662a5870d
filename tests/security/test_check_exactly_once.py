"""``kprod check --exactly-once``: it finds that a broker keeps the promises, or which one not, and
leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.checks.exactly_once_trial import OF_TRIAL, delete_topics
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.protocol.topic_requests import NewTopic
from tests.programs import ROOT
from tests.secure_kafka import acl
from tests.waiting import wait_for


@pytest.fixture
def log(request):
    """Of a commit log that does not exist; the trial's topic begins with it."""
    return f"log-{os.getpid()}-{time.monotonic_ns()}"


def check(bootstrap, log, *more, code=0):
    command = ["check", "--exactly-once", "-b", bootstrap, "-o", f"commitLogTopic={log}", "--json"]
    run = CliRunner().invoke(app, [*command, *more])
    assert run.exit_code == code, run.output
    found = json.loads(run.stdout)
    return found["exactlyOnce"], {step["name"]: step for step in found["steps"]}


def left_behind(bootstrap, log):
    """Topics, and open transactions of anybody."""
    from confluent_kafka.admin import AdminClient

    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    config = ProducerConfig.parse({"bootstrap.servers": bootstrap})
    with TransactionClient(config) as client:
        open_ = client.open_transactions("kprod~~check", client.deadline()).transactions
    return [t for t in topics if t.startswith(log)], [t.transactional_id for t in open_]


@pytest.mark.broker
@pytest.mark.parametrize("version", ["kafka", "kafka_v1", "kafka_3_9"])
def test_a_real_kafka_keeps_every_promise(request, version, log):
    kafka = request.getfixturevalue(version)
    verdict, steps = check(kafka.bootstrap, log)
    assert verdict == {"works": True, "because": None}
    assert {steps[name]["state"] for name in OF_TRIAL} == {"ok"}, steps
    assert "compacted" in steps["trial topic"]["said"]
    assert "is refused" in steps["fencing"]["said"]
    wait_for(lambda: left_behind(kafka.bootstrap, log) == ([], []), 30, "the end of the topic")
    text = CliRunner().invoke(app, ["check", "--exactly-once", "-b", kafka.bootstrap]).stdout
    assert text.splitlines()[-1] == "exactly-once works here"


def test_two_operators_at_once_do_not_disturb_each_other(kafka, log):
    """Each has a topic and an id of its own."""
    command = [sys.executable, "-m", "spark_kafka_sink.cli", "check", "--exactly-once", "--json"]
    command += ["-b", kafka.bootstrap, "-o", f"commitLogTopic={log}"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(2)]
    found = [json.loads(one.communicate(timeout=120)[0]) for one in both]
    assert [one["exactlyOnce"]["works"] for one in found] == [True, True]
    topics = {step["said"] for one in found for step in one["steps"] if step["name"] == OF_TRIAL[1]}
    assert len(topics) == 2
    wait_for(lambda: left_behind(kafka.bootstrap, log) == ([], []), 30, "the end of the topics")


@pytest.mark.long  # a broker of its own
@pytest.mark.broker
def test_a_service_without_a_coordinator_does_not_work(log):
    overrides = {"transaction.state.log.replication.factor": "3"}
    with KafkaCluster(overrides=overrides) as cluster:
        verdict, steps = check(cluster.bootstrap, log, "--timeout", "2", code=1)
        assert not verdict["works"]
        assert verdict["because"].startswith("coordinator: ")
        assert steps["trial topic"]["state"] == "skipped"


def test_a_time_out_that_does_not_fit_is_why(kafka, log):
    long = "kafka.transaction.timeout.ms=99999999"
    verdict, _ = check(kafka.bootstrap, log, "-o", long, code=1)
    assert "transaction.max.timeout.ms" in verdict["because"]


@pytest.mark.long  # a broker of its own
@pytest.mark.broker
def test_compaction_that_is_refused_is_why(log):
    """As a managed service's policy does; our broker refuses every topic with more than that."""
    with KafkaCluster(overrides={"default.replication.factor": "3"}) as cluster:
        verdict, steps = check(cluster.bootstrap, log, code=1)
        assert verdict["because"].startswith("commit log: ")
        assert "INVALID_REPLICATION_FACTOR" in verdict["because"]
        assert steps["clean-up"]["state"] == "skipped"


def test_a_topic_that_may_not_be_deleted_is_named(secure_kafka, log, tmp_path):
    """The verdict stands; the row has the command."""
    options = secure_kafka.cluster.client_options("SSL", user="bob")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    rights = [("TOPIC", f"{log}*", r) for r in ("CREATE", "WRITE", "READ", "DESCRIBE_CONFIGS")]
    rights += [("TRANSACTIONAL_ID", "kprod~*", right) for right in ("WRITE", "DESCRIBE")]
    bootstrap = options["bootstrap.servers"]
    with acl(secure_kafka, "bob", *rights):
        verdict, steps = check(bootstrap, log, "-c", str(file), code=1)
    assert verdict == {"works": True, "because": None}
    assert steps["clean-up"]["code"] == "KP0630"
    assert "kafka-topics.sh" in steps["clean-up"]["change"]
    topics, open_ = left_behind(secure_kafka.kafka.bootstrap, log)
    assert open_ == []
    assert steps["clean-up"]["change"].endswith(topics[0])


@pytest.mark.parametrize("missing", ["CREATE", "READ"])
def test_a_right_of_the_trial_is_no_fault_of_the_service(secure_kafka, log, tmp_path, missing):
    """Whether exactly-once works is not known then; a write needs neither right on this topic."""
    options = secure_kafka.cluster.client_options("SSL", user="bob")
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in options.items()))
    mine = {"CREATE", "WRITE", "READ", "DELETE"} - {missing}
    rights = [("TOPIC", f"{log}-check-*", right) for right in sorted(mine)]
    rights += [("TOPIC", log, right) for right in ("CREATE", "WRITE", "READ")]
    rights += [("TRANSACTIONAL_ID", "kprod~*", right) for right in ("WRITE", "DESCRIBE")]
    with acl(secure_kafka, "bob", *rights):
        verdict, steps = check(options["bootstrap.servers"], log, "-c", str(file), code=1)
    assert verdict["works"] is None
    row = {"CREATE": "trial topic", "READ": "aborted row"}[missing]
    assert verdict["because"].startswith(f"{row}: it can't be tried: ")
    assert missing in verdict["because"]
    assert "failed" not in {step["state"] for step in steps.values()}
    wait_for(lambda: left_behind(secure_kafka.kafka.bootstrap, log) == ([], []), 30, "the end")


def test_a_check_that_is_killed_is_named_by_the_next(kafka, log):
    """Nothing cleans up after SIGKILL; a topic of yesterday is deleted, one of today may be of a
    check that runs.
    """
    old = f"{log}-check-20240229T120000-0a1b2c"
    config = ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap})
    with TransactionClient(config) as client:
        client.create_topic(NewTopic(old, 1))
    program = [sys.executable, "-c", STOPPED, "transaction", kafka.bootstrap, log]
    with subprocess.Popen(program, stdout=subprocess.PIPE, cwd=ROOT, text=True) as killed:
        assert killed.stdout.readline() == "there\n"
        killed.kill()
    wait_for(lambda: old not in left_behind(kafka.bootstrap, log)[0], 30, "the end of the old one")
    (left,), open_ = left_behind(kafka.bootstrap, log)
    verdict, steps = check(kafka.bootstrap, log)
    assert verdict["works"]
    assert steps["earlier checks"]["state"] == "warning"
    assert left in steps["earlier checks"]["said"]
    assert steps["earlier checks"]["change"].startswith("if no other check runs: kafka-topics.sh")
    with TransactionClient(config) as client:
        client.fence(open_, client.deadline())
        delete_topics(client, [left], client.deadline())


@pytest.mark.parametrize(
    ("number", "row"),
    [
        (signal.SIGINT, "transaction"),
        (signal.SIGTERM, "committed row"),
        pytest.param(signal.SIGHUP, "transaction", marks=pytest.mark.long),
    ],
)
def test_an_interrupted_trial_cleans_up(kafka, log, number, row):
    """In the middle: the program is stopped at a row, and gets the signal there."""
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED, row, kafka.bootstrap, log],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        text=True,
    ) as program:
        assert program.stdout.readline() == "there\n"
        topics, open_ = left_behind(kafka.bootstrap, log)
        assert len(topics) == 1
        assert len(open_) == (row == "transaction")
        program.send_signal(number)
        assert program.wait(60) != 0
    wait_for(lambda: left_behind(kafka.bootstrap, log) == ([], []), 30, "the clean-up")


#: kprod check --exactly-once, which stops when it has the row.
STOPPED = """
import sys, time
from spark_kafka_sink.cli import check as command
from spark_kafka_sink.cli.app import app

row, bootstrap, log = sys.argv[1:]
trial = command.check_exactly_once

def stopping(*args, **more):
    for step in trial(*args, **more):
        if step.name == row:
            print("there", flush=True)
            time.sleep(600)
        yield step

command.check_exactly_once = stopping
app(["check", "--exactly-once", "--json", "-b", bootstrap, "-o", f"commitLogTopic={log}"])
"""
