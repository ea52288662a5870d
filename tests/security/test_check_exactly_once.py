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
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.datasource.checks.exactly_once_trial import OF_TRIAL
from tests.programs import ROOT
from tests.secure_kafka import acl, properties
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
    config = parse_producer_config({"bootstrap.servers": bootstrap})
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


def test_a_time_out_that_does_not_fit_is_why(kafka, log):
    long = "kafka.transaction.timeout.ms=99999999"
    verdict, _ = check(kafka.bootstrap, log, "-o", long, code=1)
    assert "transaction.max.timeout.ms" in verdict["because"]


@pytest.mark.parametrize(
    ("missing", "row"),
    [("CREATE", "trial topic"), ("READ", "aborted row"), ("DELETE", "clean-up")],
)
def test_a_right_of_the_trial_is_no_fault_of_the_service(secure_kafka, log, tmp_path, missing, row):
    """Whether exactly-once works is not known without the first two, which a write does not need
    on this topic; without the last it is, and the row has the command that deletes the topic.
    """
    options = secure_kafka.cluster.client_options("SSL", user="bob")
    file = properties(tmp_path / "client.properties", options)
    mine = {"CREATE", "WRITE", "READ", "DELETE"} - {missing}
    rights = [("TOPIC", f"{log}-check-*", right) for right in sorted(mine)]
    rights += [("TOPIC", log, right) for right in ("CREATE", "WRITE", "READ")]
    rights += [("TRANSACTIONAL_ID", "kprod~*", right) for right in ("WRITE", "DESCRIBE")]
    with acl(secure_kafka, "bob", *rights):
        verdict, steps = check(options["bootstrap.servers"], log, "-c", str(file), code=1)
    if missing == "DELETE":
        assert verdict == {"works": True, "because": None}
        assert steps[row]["code"] == "KP0630"
        (topic,), open_ = left_behind(secure_kafka.kafka.bootstrap, log)
        assert open_ == []
        assert "kafka-topics.sh" in steps[row]["change"]
        assert steps[row]["change"].endswith(topic)
        return
    assert verdict["works"] is None
    assert verdict["because"].startswith(f"{row}: it can't be tried: ")
    assert missing in verdict["because"]
    assert "failed" not in {step["state"] for step in steps.values()}
    wait_for(lambda: left_behind(secure_kafka.kafka.bootstrap, log) == ([], []), 30, "the end")


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
