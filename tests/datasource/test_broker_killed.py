"""A broker that dies under load is seen: in a running task's line, and in the report."""

from __future__ import annotations

import logging
import threading
import uuid

import pyarrow as pa
import pytest

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.report.report_of_batch import report_of_batch
from spark_kafka_sink.datasource.report.write_report import WriteOutcome
from spark_kafka_sink.datasource.write.producer_cache import CachedProducers, ProducerCache
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.task_progress import EVERY_S
from spark_kafka_sink.datasource.write.write_task import WriteTask
from spark_kafka_sink.protocol.topic_requests import NewTopic
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.waiting import wait_for

#: The partition that each row names; nobody but its one leader can take it.
PARTITION = 1
LONGEST_S = 120


def rows(count):
    values = [pa.array([f"{n}" for n in range(count)]), pa.array([PARTITION] * count, pa.int32())]
    return pa.record_batch(values, names=["value", "partition"])


@pytest.mark.timeout(300)
def test_a_broker_killed_under_load_is_in_log_and_report(kafka3, caplog, request):
    """It is frozen first: so rows are on their way to it for certain when it is killed."""
    assert EVERY_S <= 30, "what is promised: a line tells of it within 30 s"
    options = {"kafka.bootstrap.servers": kafka3.bootstrap, "topic": f"k-{uuid.uuid4().hex[:8]}"}
    config = parse_sink_config(options)
    with AdminClient(config.producer) as admin:
        made = admin.create_topic(NewTopic(options["topic"], 3, 1, {}))
    leader = made.topics[options["topic"]][PARTITION].leader
    node = kafka3.node(leader)
    go_on, unread, end = threading.Event(), threading.Event(), threading.Event()
    written = 100 + 10_000

    def source():
        nonlocal written
        yield rows(100)
        assert go_on.wait(LONGEST_S)
        yield rows(10_000)
        while not unread.wait(0.02):  # rows that come fast are held back for others
            yield rows(1)
            written += 1
        assert end.wait(LONGEST_S)

    cache = ProducerCache()
    request.addfinalizer(cache.close)  # its warm producer has a thread
    producers = CachedProducers(cache, config.producer, None)
    plan = ColumnPlan(topic=config.topic, value_column=0, partition_column=1)
    task = WriteTask(plan, producers, TaskIdentity(batch_id=7))
    told = []

    def run():
        told.append(task.run(source()))

    def progress():
        return None if task._producer is None else task._producer.progress()

    def lines():
        return [r.getMessage() for r in caplog.records if "kprod writes" in r.getMessage()]

    thread = threading.Thread(target=run)
    with caplog.at_level(logging.INFO, "spark_kafka_sink.datasource"):
        thread.start()
        wait_for(lambda: (now := progress()) and now.report.rows == 100, LONGEST_S, pause=0.05)
        node.freeze()
        go_on.set()
        wait_for(lambda: leader in progress().on_wire, LONGEST_S, pause=0.05)
        unread.set()
        node.kill()
        before = len(lines())
        line = wait_for(lambda: lines()[before:], LONGEST_S, pause=0.05)[0]
    assert f"broker {leader}" in line, line
    assert "rows=100 " in line, line
    node.start()
    end.set()
    thread.join(LONGEST_S)
    (message,) = told
    report = report_of_batch(config, [message], WriteOutcome.ACKNOWLEDGED, batch_id=7)
    assert (report.rows, report.retries > 0) == (written, True)
    (seen,) = (one for one in report.brokers if one.id == leader)
    assert seen.last_answer, "the report says because of what batches were sent again"
