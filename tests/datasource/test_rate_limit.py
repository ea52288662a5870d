"""maxRecordsPerSecond and maxBytesPerSecond: a task's share, its waits, and what they cost."""

from __future__ import annotations

import logging
import os
import signal
import threading

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from recording_producer import OneProducer, RecordingProducer

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.errors import ConfigError, DeliveryError
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.write.rate_limit import PART_MS, RateLimit, tasks_at_once
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_task import TransactionTime, WriteTask
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.record_columns import RecordColumns
from tests.fakes.clock import FakeClock
from tests.waiting import wait_for

BEGIN = 1_000_000


def rows(*sizes):
    values = pa.array([b"x" * size for size in sizes], pa.binary())
    return RecordColumns(rows=len(sizes), topic="t", value=values)


def rates(**options):
    given = {name: value for name, value in options.items() if value is not None}
    return parse_sink_config({"kafka.bootstrap.servers": "b:9092"} | given)


class Sending(RecordingProducer):
    """Notes when each part comes, and how large it is."""

    def __init__(self, clock, **more):
        super().__init__(**more)
        self.clock = clock
        self.at = []

    def send_columns(self, columns):
        super().send_columns(columns)
        self.at.append((self.clock.now_ms() - BEGIN, columns.rows, columns.payload_bytes()))


def run(limits, *batches, tasks=1, clock=None, before=None, timed=None):
    clock = clock or FakeClock(BEGIN)
    producer = Sending(clock)

    def arriving():
        for batch in batches:
            if before is not None:
                clock.advance(before)
            yield pa.RecordBatch.from_pydict({"value": batch})

    prepared = PreparedTransaction("p~j~42", 4711, 3, 2)
    task = WriteTask(
        ColumnPlan(topic="t", value_column=0),
        OneProducer(producer, prepared if timed else None),
        TaskIdentity(partition_id=5),
        transaction_time=timed,
        rate=RateLimit(limits, tasks, clock),
        monotonic_ms=clock.now_ms,
        wall_ms=clock.wall_ms,
    )
    return task.run(arriving()), producer.at


def test_rows_are_spread_over_their_time_and_the_first_wait_too():
    told, sent = run(rates(maxrecordspersecond="100"), [b"x"] * 50)
    assert sent == [(200, 20, 20), (400, 20, 20), (500, 10, 10)]
    assert (told.rows, told.counts.rate_wait_ms, told.counts.input_wait_ms) == (50, 500, 0)


def test_bytes_are_limited_and_a_huge_row_is_sent_alone():
    _, sent = run(rates(maxBytesPerSecond=1000), [b"x" * 100, b"y" * 5000, b"z" * 100])
    assert sent == [(100, 1, 100), (5100, 1, 5000), (5200, 1, 100)]


def test_of_two_limits_the_stricter_holds():
    both = rates(maxRecordsPerSecond=10, maxBytesPerSecond=1000)
    _, sent = run(both, [b"x", b"y" * 400, b"z"])
    assert [at for at, _, _ in sent] == [100, 401, 402]


def test_time_without_input_is_made_up_for_up_to_a_second():
    """Each batch comes ten seconds after the one before, with rows for two seconds."""
    told, sent = run(rates(maxRecordsPerSecond=10), [b"x"] * 20, [b"x"] * 20, before=10_000)
    assert sent[0] == (10_200, 2, 2), "not for the first batch: the bucket starts empty"
    assert sum(count for at, count, _ in sent if at == 22_000) == 10
    assert told.counts.rate_wait_ms == 2_000 + 1_000
    assert sent[-1][0] == 12_000 + 10_000 + 1_000


def test_many_short_tasks_are_no_faster_than_a_long_one():
    clock = FakeClock(BEGIN)
    for _ in range(20):
        run(rates(maxRecordsPerSecond=10), [b"x"], clock=clock)
    assert clock.now_ms() - BEGIN == 2_000


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=60),
    st.none() | st.integers(1, 500),
    st.integers(1, 5000),
    st.integers(1, 7),
)
def test_no_second_has_more_than_the_limit_and_a_part(sizes, records, size, tasks):
    """Without waits for input: over any time from the begin on, the limit holds exactly."""
    clock = FakeClock(BEGIN)
    limits = rates(maxRecordsPerSecond=records, maxBytesPerSecond=size)
    rate = RateLimit(limits, tasks, clock)
    columns = rows(*sizes)
    sent = sent_bytes = 0
    costs = rate.costs_ms(columns)
    for part, cost in rate.parts(columns, costs):
        assert part.rows == 1 or cost <= PART_MS * 1.001
        rate.wait(cost)
        sent += part.rows
        sent_bytes += part.payload_bytes()
        seconds = (clock.now_ms() - BEGIN) / 1000 + 1e-6
        assert sent_bytes <= size / tasks * seconds
        assert records is None or sent <= records / tasks * seconds
    assert (sent, sent_bytes) == (len(sizes), sum(sizes))
    assert rate.waited_ms == clock.now_ms() - BEGIN
    assert abs(rate.waited_ms - costs[-1]) <= 2


def test_a_rate_too_low_for_the_transaction_fails_at_once():
    clock = FakeClock(BEGIN)
    with pytest.raises(DeliveryError) as raised:
        run(
            rates(maxRecordsPerSecond=10), [b"x"] * 5, [b"x"] * 100,
            clock=clock, timed=TransactionTime(10_000, 3_000),
        )  # fmt: skip
    assert raised.value.kind.kp_code == "KP0504"
    assert raised.value.message == (
        "partition 5: 100 more rows take 10000 ms at maxRecordsPerSecond=10, shared by 1 tasks, and"
        " its transaction has 6500 ms left (kafka.transaction.timeout.ms is 10000, and the"
        " driver needs the last 3000 of it)"
    )
    assert clock.now_ms() == BEGIN + 500, "it waited for the first batch alone"


def test_rows_that_fit_the_transactions_time_are_sent():
    told, _ = run(rates(maxRecordsPerSecond=10), [b"x"] * 70, timed=TransactionTime(10_000, 3_000))
    assert told.rows == 70


def test_an_interrupt_ends_the_wait_and_closes_the_producer():
    class Waiting(SystemClock):
        def wait(self, latch, deadline_ms):
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            return super().wait(latch, deadline_ms)

    producers = OneProducer(RecordingProducer())
    limits = rates(maxRecordsPerSecond=1)
    task = WriteTask(
        ColumnPlan(topic="t", value_column=0),
        producers,
        TaskIdentity(),
        # The wait would last for eleven days.
        rate=RateLimit(limits, 1_000_000, Waiting()),
    )
    with pytest.raises(KeyboardInterrupt):
        task.run(iter([pa.RecordBatch.from_pydict({"value": ["a"]})]))
    assert (producers.discarded, producers.producer.sent) == (1, [])


def test_a_task_that_waits_for_its_rate_says_so(caplog):
    class Watched(FakeClock):
        def wait(self, latch, deadline_ms):
            wait_for(lambda: "waitsFor=its rate" in caplog.text, what="its line")
            return super().wait(latch, deadline_ms)

    clock = Watched(BEGIN)
    task = WriteTask(
        ColumnPlan(topic="t", value_column=0),
        OneProducer(RecordingProducer()),
        TaskIdentity(),
        rate=RateLimit(rates(maxRecordsPerSecond=10), 2, clock),
        progress_every_s=0.01,
    )
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        task.run(iter([pa.RecordBatch.from_pydict({"value": ["a", "b"]})]))
    line = next(r.getMessage() for r in caplog.records if "its rate" in r.getMessage())
    assert "waitsFor=its rate (maxRecordsPerSecond=10, shared by 2 tasks)" in line
    assert " rateWaitMs=0 " in line


@pytest.mark.parametrize(
    ("tasks", "configuration"),
    [
        (1, {"spark.master": "local"}),
        (3, {"spark.master": "local[3]"}),
        (3, {"spark.master": "local[3,4]"}),
        (os.cpu_count(), {"spark.master": "local[*]"}),
        (6, {"spark.master": "local-cluster[2,3,1024]"}),
        (8, {"spark.master": "yarn", "spark.executor.instances": "8"}),
        (16, {"spark.master": "yarn", "spark.executor.instances": "8", "spark.executor.cores": "4",
              "spark.task.cpus": "2"}),
        (40, {"spark.master": "k8s://https://api", "spark.dynamicAllocation.enabled": "true",
              "spark.dynamicAllocation.maxExecutors": "20", "spark.executor.instances": "2",
              "spark.executor.cores": "2"}),
        (12, {"spark.master": "spark://m:7077", "spark.cores.max": "12"}),
        (12, {"spark.master": "spark://m:7077", "spark.cores.max": "12",
              "spark.executor.instances": "2", "spark.executor.cores": "2"}),
        (6, {"spark.master": "spark://m:7077", "spark.dynamicAllocation.enabled": "TRUE",
             "spark.dynamicAllocation.maxExecutors": "3", "spark.executor.cores": "2"}),
        (4, {"spark.master": "spark://m:7077", "spark.dynamicAllocation.enabled": "true",
             "spark.dynamicAllocation.maxExecutors": "3", "spark.executor.cores": "2",
             "spark.cores.max": "4"}),
    ],
)  # fmt: skip
def test_sparks_configuration_has_the_number_of_running_tasks(tasks, configuration):
    limits = rates(maxRecordsPerSecond=1)
    assert tasks_at_once(limits, lambda name: configuration.get(name, "")) == tasks


@pytest.mark.parametrize(
    "configuration",
    [
        {},
        {"spark.master": "spark://m:7077"},
        # A standalone cluster ignores the number of executors.
        {"spark.master": "spark://m:7077", "spark.executor.instances": "2",
         "spark.executor.cores": "2"},
        {"spark.master": "yarn", "spark.dynamicAllocation.enabled": "true"},
    ],
)  # fmt: skip
def test_the_option_is_asked_for_where_the_number_is_unknown(configuration):
    with pytest.raises(ConfigError, match="maxBytesPerSecond=5 is for all tasks") as raised:
        tasks_at_once(rates(maxBytesPerSecond=5), lambda name: configuration.get(name, ""))
    assert "set tasksAtOnce" in raised.value.hint
    assert (
        tasks_at_once(
            rates(maxRecordsPerSecond=5, tasksAtOnce=7), lambda name: configuration.get(name, "")
        )
        == 7
    )
