"""One task attempt on a stand-in producer."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import weakref
from types import SimpleNamespace

import pyarrow as pa
import pytest
from recording_producer import OneProducer, RecordingProducer

from spark_kafka_sink.base.errors import DataError, DeliveryError, IllegalStateError
from spark_kafka_sink.config.named_columns import OnNullValue
from spark_kafka_sink.datasource.write.commit_message import TaskTransaction
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.task_progress import ProgressLog, progress_listener
from spark_kafka_sink.datasource.write.write_task import TransactionTime, WriteTask
from spark_kafka_sink.producer.metrics.produce_report import ProduceReport
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.column_plan import ColumnPlan
from tests.waiting import wait_for

PLAN = ColumnPlan(topic="t", value_column=0)
IDENTITY = TaskIdentity(
    partition_id=5, attempt=1, task_attempt_id=42, host="h", query_id="q", run_id="r", batch_id=9
)


def batch(*values):
    return pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["value"])


def run(producers, batches, plan=PLAN):
    task = WriteTask(plan, producers, IDENTITY, monotonic_ms=lambda: 100, wall_ms=lambda: 1_700_000)
    return task.run(iter(batches))


def test_batches_are_sent_in_order_and_the_message_counts_them():
    producers = OneProducer(RecordingProducer())
    told = run(producers, [batch("a", "b"), batch("c")])
    assert producers.producer.events == ["start", "send 2", "send 1", "finish"]
    values = [v for columns in producers.producer.sent for v in columns.value.to_pylist()]
    assert values == [b"a", b"b", b"c"]
    assert (told.rows, told.produced) == (3, producers.producer.finish_attempt())
    assert (told.identity, told.transaction) == (IDENTITY, None)
    assert (producers.released, producers.discarded) == (1, 0)


SKIP = ColumnPlan(topic="t", value_column=0, on_null_value=OnNullValue.SKIP)


@pytest.mark.parametrize(
    ("batches", "skipped"),
    [([], 0), ([batch()], 0), ([batch(), batch()], 0), ([batch(None), batch(None, None)], 3)],
)
def test_a_partition_without_rows_opens_no_connection(batches, skipped):
    producers = OneProducer(RecordingProducer())
    told = run(producers, batches, SKIP)
    assert producers.acquired == 0
    assert (told.rows, told.counts.skipped_rows, told.produced) == (0, skipped, ProduceReport())


def test_batches_without_rows_in_between_are_passed_over():
    producers = OneProducer(RecordingProducer())
    assert run(producers, [batch(), batch("a"), batch(), batch("b"), batch()]).rows == 2
    assert producers.producer.events == ["start", "send 1", "send 1", "finish"]


def test_small_batches_are_joined_to_the_producers_chunk_size():
    """Its first rows tell the producer how many partitions there are: they go alone."""
    producers = OneProducer(RecordingProducer(wanted_rows=3))
    batches = [batch("a"), batch("b", "c"), batch("d"), batch("e", "f", "g", "h"), batch("i")]
    assert run(producers, batches).rows == 9
    assert producers.producer.events == ["start", "send 1", "send 3", "send 4", "send 1", "finish"]
    values = [v for columns in producers.producer.sent for v in columns.value.to_pylist()]
    assert values == [b"%c" % c for c in b"abcdefghi"]


def test_a_bad_row_of_a_joined_batch_has_its_number_in_the_task():
    plan = ColumnPlan(topic="t", value_column=0, on_null_value=OnNullValue.ERROR)
    with pytest.raises(DataError, match="row 3 of the Arrow batch") as caught:
        run(
            OneProducer(RecordingProducer(wanted_rows=4)),
            [batch("a", "b"), batch("c", "d"), batch("e", None)],
            plan,
        )
    assert caught.value.__notes__ == ["  while sending rows 2 to 5 of partition 5 of the DataFrame"]


def test_the_producer_knows_when_its_writer_waits_for_input():
    producer = RecordingProducer()
    seen = []

    def batches():
        yield batch("a")
        seen.append(producer.waiting)
        yield batch("b")
        seen.append(producer.waiting)

    run(OneProducer(producer), batches())
    assert seen == [True, True]


def broken_input():
    yield batch("a")
    raise OSError("the input broke")


BY_TOPIC = ColumnPlan(topic_column=0, value_column=0)


@pytest.mark.parametrize(
    ("producer", "batches", "plan", "error"),
    [
        (
            {"fail_at_send": 2, "error": DeliveryError("t-0: gone")},
            [batch("a"), batch("b"), batch("c")],
            PLAN,
            r"^\[KP0500\] t-0: gone\n",
        ),
        ({}, broken_input(), PLAN, "the input broke"),
        ({"fail_at_send": 1, "error": KeyboardInterrupt("now")}, [batch("a")], PLAN, "now"),
        (
            {"lose_rows": 1},
            [batch("a", "b", "c")],
            PLAN,
            "partition 5: 3 rows came in, 2 were acknowledged",
        ),
        ({}, [batch("a", "b"), batch("c", None)], BY_TOPIC, "topic"),
    ],
    ids=["failed send", "Spark's input", "interrupt", "rows not acknowledged", "bad row"],
)
def test_a_failed_attempt_closes_its_producer(producer, batches, plan, error):
    producers = OneProducer(RecordingProducer(**producer))
    with pytest.raises(BaseException, match=error):
        run(producers, batches, plan)
    assert (producers.released, producers.discarded) == (0, 1)
    assert ("finish" in producers.producer.events) == ("lose_rows" in producer)


def test_an_input_error_before_the_first_row_opens_no_connection():
    def batches():
        raise OSError("the input broke")
        yield

    producers = OneProducer(RecordingProducer())
    with pytest.raises(OSError, match="the input broke"):
        run(producers, batches())
    assert producers.acquired == 0


def test_outside_of_a_task_there_is_no_identity():
    with pytest.raises(IllegalStateError, match="outside of a Spark task"):
        TaskIdentity.current()


def test_rows_without_a_value_are_skipped_and_counted():
    producers = OneProducer(RecordingProducer())
    told = run(producers, [batch("a", None), batch(None, None), batch(None, "b")], SKIP)
    assert (told.rows, told.counts.skipped_rows) == (2, 4)
    assert producers.producer.events == ["start", "send 1", "send 1", "finish"]


def test_a_batch_with_skipped_rows_is_freed_before_the_next():
    """It may be 64 MB: a task's memory is counted with two of them."""
    before = []

    def source():
        for _ in range(4):
            assert [one() for one in before] == [None] * len(before)
            taken = batch(None, "a", "b")
            before.append(weakref.ref(taken))
            yield taken
            del taken

    told = run(OneProducer(RecordingProducer()), source(), SKIP)
    assert (told.rows, told.counts.skipped_rows, len(before)) == (8, 4, 4)


def test_an_errors_note_says_that_skipped_rows_are_not_counted():
    producers = OneProducer(RecordingProducer(fail_at_send=1, error=DataError("no")))
    with pytest.raises(DataError) as raised:
        run(producers, [batch(None, "a", "b")], SKIP)
    (note,) = raised.value.__notes__
    assert note.startswith("  while sending rows 0 to 1 of partition 5 of the DataFrame")
    assert note.endswith(", without 1 skipped rows")


def test_the_payload_of_a_done_batch_leaves_out_skipped_rows():
    of_plan = {"transaction_time": TransactionTime(1_000, 300)}
    task = WriteTask(SKIP, OneProducer(RecordingProducer()), IDENTITY, **of_plan)
    told = task.drop(iter([batch("ab", None)]), count=True)
    assert (told.transaction.payload, told.rows) == ((1, 2), 0)


# --- exactly-once ------------------------------------------------------------------------------

PREPARED = PreparedTransaction("p~j~42", 4711, 3, 2)


def timed(producers, batches, at, timeout_ms=1000, margin_ms=300):
    """Runs a task on a clock that stands at 0 first, and at the next of ``at`` whenever the input
    gives a batch or its end; then it stands still.
    """
    now, left = 0, list(at)

    def advance():
        nonlocal now
        now = left.pop(0) if left else now

    def arriving():
        for one in batches:
            advance()
            yield one
        advance()

    task = WriteTask(
        PLAN,
        producers,
        IDENTITY,
        transaction_time=TransactionTime(timeout_ms, margin_ms, 8),
        monotonic_ms=lambda: now,
        wall_ms=lambda: 1_700_000,
    )
    return task.run(arriving())


def test_the_message_names_transaction_generation_and_start():
    told = timed(OneProducer(RecordingProducer(), PREPARED), [batch("a")], [0])
    assert told.transaction == TaskTransaction(8, PREPARED, 1_700_000, (1, 1))


def test_without_a_row_there_is_no_transaction_but_a_generation():
    producers = OneProducer(RecordingProducer(), PREPARED)
    told = timed(producers, [batch()], [0])
    assert told.transaction == TaskTransaction(8, payload=(0, 0))
    assert producers.acquired == 0


@pytest.mark.parametrize(
    ("at", "events"),
    [
        # the first batch, the second, the end
        ([10_000, 10_701], ["start", "send 1"]),
        ([10_000, 10_700, 10_701], ["start", "send 1", "send 1", "finish"]),
    ],
)
def test_a_transaction_without_time_for_the_commit_is_given_up(at, events):
    """The wait for the first row doesn't count: there was no transaction yet."""
    producers = OneProducer(RecordingProducer(), PREPARED)
    with pytest.raises(DeliveryError) as raised:
        timed(producers, [batch("a"), batch("b")], at)
    assert producers.producer.events == events
    assert (producers.released, producers.discarded) == (0, 1)
    assert "kafka.transaction.timeout.ms (1000)" in raised.value.message
    assert "open for 701 ms" in raised.value.message
    assert "transaction.max.timeout.ms" in raised.value.hint


def test_the_message_has_the_input_wait_and_the_start():
    told = timed(OneProducer(RecordingProducer()), [batch("a"), batch("b")], [300, 700, 1000])
    assert (told.counts.input_wait_ms, told.counts.broker_wait_ms, told.elapsed_ms) == (
        1000,
        0,
        1000,
    )
    assert told.begun_ms == 1_699_000


def test_a_prepare_that_fails_closes_the_producer():
    class Refusing(OneProducer):
        def prepare(self, producer):
            raise IllegalStateError("told to refuse")

    producers = Refusing(RecordingProducer())
    with pytest.raises(IllegalStateError, match="told to refuse"):
        timed(producers, [batch("a")], [0])
    assert producers.discarded == 1


def test_a_running_task_reports_its_progress_and_what_it_awaits(caplog):
    """While its thread waits for Spark's next rows: whatever a task waits for, it speaks."""
    producers = OneProducer(RecordingProducer())
    task = WriteTask(PLAN, producers, IDENTITY, progress_every_s=0.01)

    def said(needle):
        def lines():
            messages = [record.getMessage() for record in caplog.records]
            return [one for one in messages if "kprod writes" in one and needle in one]

        return wait_for(lines, what=needle)[0]

    def arriving():
        said("rows=0 ")  # there is no producer yet
        yield batch("a", "b")
        line = said("rows=2 ")
        assert "partition=5 attempt=1 batchId=9 " in line
        assert " megabytes=1.0 " in line
        assert " retries=1 inFlight=3 oldestBatchMs=700 " in line
        assert " slowestBroker=2 slowestBrokerMs=50.0 " in line
        assert " waitsFor=Spark's next rows: broker 2 (3 batches, 700 ms) " in line
        assert line.endswith(" lastAnswer=broker 2: t-0: no leader")
        producers.producer.waits_for_memory = True
        said("waitsFor=memory (buffer.memory is used up): broker 2 (3 batches, 700 ms)")

    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        assert task.run(arriving()).rows == 2


def test_progress_reaches_all_listeners_even_if_one_raises(caplog, monkeypatch):
    heard = queue.Queue()
    module = SimpleNamespace(fails=lambda progress: 1 / 0, hears=heard.put)
    monkeypatch.setitem(sys.modules, "kprod_progress", module)
    listeners = [progress_listener(f"kprod_progress:{name}") for name in ("fails", "hears")]
    producers = OneProducer(RecordingProducer())
    task = WriteTask(PLAN, producers, IDENTITY, progress_every_s=0.01, progress_listeners=listeners)

    def arriving():
        yield batch("a", "b")
        assert heard.get(timeout=30).partition == 5

    with caplog.at_level(logging.WARNING, "spark_kafka_sink"):
        assert task.run(arriving()).rows == 2
    assert "a task's progress can't be delivered: ZeroDivisionError in <lambda>" in caplog.text


def test_a_task_that_is_over_says_nothing_more():
    before = set(threading.enumerate())  # an attempt does not wait for the end of its own
    with ProgressLog(lambda: None, every_s=60):
        started = set(threading.enumerate()) - before
        (thread,) = (t for t in started if t.name == "kprod-task-progress")
    thread.join(30)
    assert not thread.is_alive()
