"""What an operator sees of a Spark Connect session: interrupted writes, queries, checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.config.parsing import parse_sink_config
from tests.notebooks.connect_server import told_by

pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def topic(kafka):
    return kafka.unique_topic("connect", partitions=2)


@pytest.fixture(scope="module")
def told(kafka, topic, tmp_path_factory):
    home = tmp_path_factory.mktemp("connect")
    program = Path(__file__).with_name("connect_session.py")
    return told_by(program, home, kafka.bootstrap, home, topic)


@pytest.mark.parametrize("how", ["all", "tag"])
def test_an_interrupted_write_leaves_a_report(told, how):
    one = told[how]
    assert "OPERATION_CANCELED" in one["error"][0]
    report = one["report"]
    assert (report["outcome"], report["error"]["code"]) == ("aborted", "KP0505")
    assert report["unfinished"] == [0, 1]
    assert report["applicationId"]
    assert one["last_report"]


def test_an_interrupted_write_leaves_no_transaction(told, kafka, topic):
    assert told["tag"]["report"]["deliveryGuarantee"] == "exactly-once"
    config = parse_sink_config({"kafka.bootstrap.servers": kafka.bootstrap})
    with TransactionClient(config.producer) as client:
        found, silent = client.open_transactions(topic, client.deadline(30_000))
    assert (list(found), list(silent)) == ([], [])


def test_a_listener_of_connect_joins_reports(told):
    found = told["listened"]
    assert found["warned"] == []
    assert ["orders", ["acknowledged"]] in found["seen"]
    assert "KP0213" in found["failed"]
    assert [bool(one) for one in found["ended"]] == [False, True]
    assert "KP0213" in found["ended"][1]


def test_a_check_of_connect_runs_in_a_task(told):
    assert told["checked"] == []
    (missing,) = told["missing"]
    assert missing[0] == "topic"
    (refused,) = told["refused"]
    assert refused == ["TCP", "127.0.0.1:1: Connection refused"]
