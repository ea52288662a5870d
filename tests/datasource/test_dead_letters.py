"""A task's dead letters on a stand-in producer: the log, the limit, replays."""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from recording_producer import OneProducer, RecordingProducer

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.base.errors import CommitError, DataError, DeliveryError, KafkaTimeoutError
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.datasource.checks.dead_letter_checks import create_if_missing
from spark_kafka_sink.datasource.report.report_of_batch import report_of_attempt
from spark_kafka_sink.datasource.write.letter_counts import LetterCount, check_letters
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_task import WriteTask
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.records.bad_rows.bad_rows import BadRows
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.record_columns import from_record_batch
from tests.datasource.commit_messages import message
from tests.fakes.dead_letter_options import dead_letters, letter_options

CONFIG = parse_producer_config({"bootstrap.servers": "b:1"})
PLAN = ColumnPlan(topic="t", key_column=0, value_column=1, timestamp_column=2)
CANARY = "canary-of-a-row"


def noted(rows=5):
    """A batch of ``rows`` bad rows, their columns, and what is noted of them."""
    batch = pa.RecordBatch.from_pydict(
        {
            "key": [f"{CANARY}-key"] * rows,
            "value": [f"{CANARY}-value"] * rows,
            "timestamp": [-1] * rows,
        }
    )
    bad = BadRows(rows)
    return batch, from_record_batch(batch, PLAN, 1000, bad), bad


def letters_of(**options):
    return dead_letters("dlq", CONFIG, **options)


def test_letters_of_one_send_are_in_order_by_their_time():
    """The first row has no timestamp, the second an invalid one: both get the time of sending."""
    clock, producer = itertools.count(1_000_000), RecordingProducer()
    rows = pa.RecordBatch.from_pydict(
        {"key": ["a", "b"], "value": ["a", "b"], "timestamp": [None, -1], "partition": [-7, 0]}
    )
    task = WriteTask(
        replace(PLAN, partition_column=3),
        OneProducer(producer),
        TaskIdentity(partition_id=7),
        dead_letters=letters_of(),
        wall_ms=lambda: next(clock),
    )
    with pytest.raises(DeliveryError, match="0 of 2 dead letters"):
        task.run(iter([rows]))  # the stand-in does not count by partition
    (letters,) = producer.sent
    assert letters.topic == "dlq"
    assert len(set(letters.timestamp.tolist())) == 1


def log_of(caplog, **options):
    with caplog.at_level(logging.WARNING):
        letters = letters_of(**options)
        letters.note(*noted(), np.arange(100, 105))
    return caplog.text, letters


def test_nothing_of_a_row_is_logged_unless_asked(caplog):
    text, letters = log_of(caplog, log=True)
    assert "KP0235" in text
    assert "rows became dead letters in dlq: 5 invalid timestamp (KP0231: row 100 of task 7" in text
    assert "row 102 of task 7): Invalid timestamp: it lies before" in text
    assert CANARY not in text
    assert CANARY not in letters.said


def test_messages_are_logged_when_asked(caplog):
    text, _ = log_of(caplog, log=True, log_messages=True)
    keys, values = ([f"{CANARY}-{name}"] * 3 for name in ("key", "value"))
    assert f"(topic t, key {keys}, value {values})" in text


def test_nothing_is_logged_by_default(caplog):
    assert log_of(caplog)[0] == ""


def test_a_task_past_the_limit_alone_stops_early():
    letters = letters_of(max_records=4, max_fraction=0.1)
    letters.note(*noted(4), np.arange(4))
    told = r"5 of 6 rows can't be sent, and errors\.max\.records is 4, so partition 7 .*: 5 invalid"
    with pytest.raises(DataError, match=told):
        letters.note(*noted(1), np.array([5]))


def test_an_error_does_not_say_that_letters_were_written():
    """Some are held, and with exactly-once those that were sent are aborted."""
    letters = letters_of()
    letters.note(*noted(), np.arange(5))
    assert "went to" not in letters.said
    assert "5 rows of partition 7 of the DataFrame can't be sent" in letters.said


@pytest.mark.parametrize("percent", [0, 29, 57, 58, 100])
def test_a_fraction_that_is_reached_is_not_exceeded(percent):
    """0.29 * 100 is less than 29."""
    options = replace(letter_options("dlq"), max_fraction=float(f"{percent}e-2"))
    check_letters(options, percent, 100, "so the batch fails")
    if percent < 100:
        with pytest.raises(CommitError, match=f"{percent + 1} of 100 rows can't be sent"):
            check_letters(options, percent + 1, 100, "so the batch fails")


def test_counts_keep_the_first_three_rows():
    letters = letters_of()
    for first in (10, 20, 30):
        letters.note(*noted(2), np.arange(first, first + 2))
    (count,) = letters.counts
    assert count.rows == 6
    assert [(one.task, one.row) for one in count.samples] == [(7, 10), (7, 11), (7, 20)]


def test_the_rows_of_a_failed_attempt_are_not_less_than_none():
    """Its letters were noted, and some or none of them were acknowledged."""
    given = {"kafka.bootstrap.servers": "b:1", "errors.tolerance": "all"}
    config = parse_sink_config(given | {"errors.deadletterqueue.topic.name": "dlq"})
    noted = (LetterCount("KP0231", "invalid timestamp", 5),)
    for sent in (0, 2):
        there = {TopicPartition("t", 0): (3, 30, 1), TopicPartition("dlq", 0): (sent, 20, 1)}
        attempt = message(letters=noted, rows=3 + sent, by_partition=there)
        assert report_of_attempt(config, attempt, DataError("no")).rows == 3


@pytest.mark.long
def test_planning_waits_for_brokers_as_long_as_it_may():
    """A restart of brokers that others outlast must not fail a write with dead letters."""
    begun = time.monotonic()
    options = letter_options("dlq")
    with (
        AdminClient(parse_producer_config({"bootstrap.servers": "127.0.0.1:1"})) as admin,
        pytest.raises(KafkaTimeoutError),
    ):
        create_if_missing(admin, options, 6_500)
    assert time.monotonic() - begun >= 6.5
