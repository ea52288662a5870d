"""progressTopic, the driver's side: the figures of workers, added up, and what shows them."""

import io
import json
import sys
import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from spark_kafka_sink import KprodListener, RunningWrites, show_progress
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.datasource.monitoring import kprod_listener, progress_bar, running_writes
from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics
from spark_kafka_sink.datasource.monitoring.running_writes import RunningWrite, Waits
from spark_kafka_sink.datasource.write.worker_progress import ProgressSender, WorkerProgress
from tests.waiting import wait_for

SPARK = SimpleNamespace(conf={"spark.app.id": "app-1"})


class ProgressTopic:
    """A topic, who writes to it, and who reads it at a time that is set."""

    def __init__(self, kafka):
        self.now = 1_000.0
        self.topic = kafka.unique_topic("progress", partitions=1)
        self.bootstrap = kafka.bootstrap
        self.options = {
            "kafka.bootstrap.servers": kafka.bootstrap, "topic": "t", "progressTopic": self.topic,
        }  # fmt: skip
        self.sender = ProgressSender(
            parse_producer_config({"bootstrap.servers": kafka.bootstrap}), self.topic
        )
        self.running = RunningWrites(SPARK, self.options, lambda: self.now)
        assert self.running.read() == []

    def send(self, worker="w1", **values):
        fields = {
            "application_id": "app-1", "query_id": "q", "query_name": "orders", "batch_id": 7,
            "stage_id": 3,
        }  # fmt: skip
        assert self.sender.send(WorkerProgress(worker=worker, **(fields | values)))

    def raw(self, *values):
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for value in values:
            producer.produce(self.topic, value, "key")
        producer.flush(30)


@pytest.fixture
def world(kafka):
    world = ProgressTopic(kafka)
    yield world
    world.running.close()


def test_workers_are_added_up_by_query(world):
    world.send("w1", rows=10, megabytes=1.5, retries=1, finished_tasks=2, input_wait_ms=5)
    world.send("w2", rows=20, megabytes=0.5, rate_wait_ms=7, oldest_batch_ms=90)
    world.send("w1", rows=15, megabytes=2.0, retries=2, finished_tasks=3, input_wait_ms=6)
    world.send("w1", query_id="", query_name="", batch_id=-1, rows=1)
    batch, orders = world.running.read()
    assert (batch.query, batch.rows) == ("batch", 1)
    assert (orders.query, orders.batch_id, orders.workers) == ("orders", 7, 2)
    assert (orders.rows, orders.megabytes, orders.retries, orders.finished_tasks) == (35, 2.5, 2, 3)
    assert (orders.waits, orders.oldest_batch_ms) == (Waits(input=6, rate=7), 90)


def test_the_next_micro_batch_begins_at_zero(world):
    world.send("w1", rows=10)
    world.send("w1", batch_id=8, rows=3)
    (found,) = world.running.read()
    assert (found.batch_id, found.rows) == (8, 3)


def test_a_rate_is_that_of_ten_seconds(world):
    world.send("w1", rows=100, megabytes=1.0)
    (found,) = world.running.read()
    assert found.rows_per_second == 0
    world.now += 5
    world.send("w1", rows=300, megabytes=2.0)
    assert world.running.read()[0].rows_per_second == 0
    world.now += 5
    (found,) = world.running.read()
    assert (found.rows_per_second, found.megabytes_per_second) == (20.0, 0.1)


def test_a_silent_worker_is_not_counted_but_its_rows_are(world):
    world.send("w1", rows=10, oldest_batch_ms=50)
    assert world.running.read()[0].workers == 1
    world.now += 40
    world.send("w2", rows=5)
    (found,) = world.running.read()
    assert (found.workers, found.rows, found.oldest_batch_ms) == (1, 15, 0)
    world.now += 61
    assert world.running.read() == []


def test_a_commit_is_shown_while_it_runs(world):
    world.send("w1", rows=10)
    world.send("driver", commit_ms=12_000)
    (found,) = world.running.read()
    assert (found.commit_ms, found.workers, found.rows) == (12_000, 1, 10)
    world.send("driver", commit_ms=0)
    assert world.running.read()[0].commit_ms == 0


def test_other_applications_do_not_count(world):
    world.send("w1", application_id="app-2", rows=10)
    assert world.running.read() == []


STRANGE = (
    b"", b"no json", b"[]", b"{}", b"null", b"[" * 5_000, b"\xff\xfe",
    json.dumps({"worker": "w"}).encode(), b"x" * 20_000,
)  # fmt: skip


def test_what_is_no_progress_is_skipped(world):
    """Anybody with the right to write may write to the topic."""
    valid = {
        "worker": "w", "applicationId": "app-1", "queryId": "q", "queryName": "orders",
        "batchId": 7, "stageId": 1, "finishedTasks": 0, "rows": 4, "megabytes": 0.5, "retries": 0,
        "inputWaitMs": 0, "bufferWaitMs": 0, "throttleMs": 0, "rateWaitMs": 0, "oldestBatchMs": 0,
        "commitMs": None, "ofALaterVersion": 1,
    }  # fmt: skip
    wrong = [
        valid | {name: value, "worker": "bad"}
        for name, value in (
            ("rows", -5), ("rows", "4"), ("rows", 1e300), ("rows", 10**30), ("megabytes", "x"),
            ("batchId", None), ("megabytes", float("nan")), ("commitMs", -9),
        )
    ]  # fmt: skip
    world.raw(*STRANGE, *(json.dumps(one).encode() for one in [*wrong, valid]))
    (found,) = world.running.read()
    assert (found.rows, found.megabytes, found.workers) == (4, 0.5, 1)


def test_what_is_kept_is_bounded(world, monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.datasource.monitoring.running_writes._MOST_WORKERS", 3)
    monkeypatch.setattr("spark_kafka_sink.datasource.monitoring.running_writes._MOST_WRITES", 2)
    for number in range(5):
        world.send(f"w{number}", rows=1)
        world.send("w", query_name=f"q{number}", rows=1)
    found = world.running.read()
    assert len(found) == 2
    assert max(one.rows for one in found) <= 3


def test_without_a_topic_it_is_an_error_at_once():
    with pytest.raises(ConfigError, match="progressTopic is not set"):
        RunningWrites(SPARK, {"kafka.bootstrap.servers": "h:1", "topic": "t"})


@pytest.fixture
def values(world, monkeypatch):
    """A listener's metrics: their values, by name and labels."""
    monkeypatch.setattr(kprod_listener, "_LOOK_S", 0.05)
    registry = CollectorRegistry()
    listener = KprodListener(PrometheusMetrics(registry), reports=lambda: (), running=world.running)
    # Its thread sets one value after the other.
    yield lambda name, **labels: registry.get_sample_value(name, {"query": "orders", **labels})
    listener.close()


def test_the_listener_exports_what_runs_and_zero_after(world, values):
    world.send("w1", rows=10, megabytes=1.5, rate_wait_ms=7_000)
    wait_for(lambda: values("kprod_task_rows") == 10, 60, "rows")
    wait_for(lambda: values("kprod_task_sent_bytes") == 1_500_000, 60, "bytes")
    wait_for(lambda: values("kprod_task_wait_time_seconds", wait="rate") == 7, 60, "waits")
    wait_for(lambda: values("kprod_task_workers") == 1, 60, "workers")
    world.now += 100
    wait_for(lambda: values("kprod_task_rows") == 0, 60, "nothing")
    wait_for(lambda: values("kprod_task_wait_time_seconds", wait="rate") == 0, 60, "no waits")


def test_progress_that_can_not_be_read_is_no_progress(world, values, kafka, monkeypatch):
    """A rate of before an outage would keep KprodNoProgress from firing in it."""
    monkeypatch.setattr(running_writes, "_READ_MS", 2_000)
    world.send("w1", rows=10)
    wait_for(lambda: values("kprod_task_rows"), 60, "rows")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    (gone,) = admin.delete_topics([world.topic]).values()
    gone.result()
    wait_for(lambda: values("kprod_task_rows") == 0, 60, "zero")


# --- a bar ----------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def spark_with(stages):
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
    context = SimpleNamespace(statusTracker=lambda: tracker)
    return SimpleNamespace(conf=SPARK.conf, sparkContext=context)


def stage(done, of):
    return SimpleNamespace(numCompletedTasks=done, numTasks=of)


def test_a_terminal_gets_tasks_rows_and_rates(world, monkeypatch):
    monkeypatch.setattr(progress_bar, "_LOOK_S", 0.05)
    file = Terminal()
    with show_progress(spark_with({1: stage(3, 8), 2: stage(0, 4)}), world.options, file=file):
        wait_for(lambda: "3 of 12 tasks" in file.getvalue(), 60, "tasks")
        world.send("w1", rows=1_234_567, retries=2)
        wait_for(lambda: "1,234,567 rows" in file.getvalue(), 60, "rows")
    assert "2 batches sent again" in file.getvalue()
    assert "rows/s" not in file.getvalue(), "one look has no rate"
    assert file.getvalue().endswith("\x1b[2K")  # it disappears


def test_a_bar_says_rates_retries_and_commits():
    writes = [
        RunningWrite("a", rows=7, rows_per_second=1_234.5, megabytes_per_second=6.78),
        RunningWrite("b", rows=0, retries=2, commit_ms=61_500),
    ]
    text = progress_bar.text_of((3, 8), SimpleNamespace(read=lambda: writes), 83.9)
    assert text == (
        "3 of 8 tasks, 7 rows, 1,234 rows/s, 6.8 MB/s, 0 rows, 2 batches sent again, "
        "commits for 61 s, 1:23"
    )
    assert progress_bar.text_of((0, 0), None, 5) == "0:05"


class ConnectSession:
    """As Spark Connect's: it calls handlers, and has no context."""

    conf = SPARK.conf

    def __init__(self):
        self.handlers = []

    def registerProgressHandler(self, handler):
        self.handlers.append(handler)

    def removeProgressHandler(self, handler):
        self.handlers.remove(handler)


def test_a_connect_session_reports_its_tasks(monkeypatch):
    monkeypatch.setattr(progress_bar, "_LOOK_S", 0.05)
    session, file = ConnectSession(), Terminal()

    def of(completed, tasks, *, done):
        return SimpleNamespace(num_completed_tasks=completed, num_tasks=tasks, done=done)

    with show_progress(session, file=file):
        (handler,) = session.handlers
        handler(stages=[of(9, 9, done=True), of(2, 5, done=False)], operation_id="x", done=False)
        wait_for(lambda: "2 of 5 tasks" in file.getvalue(), 60, "tasks")
    assert session.handlers == [], "the session outlives the bar"


def test_without_a_terminal_nothing_is_asked():
    """Not even the session."""
    file = io.StringIO()
    with show_progress(None, {"progressTopic": "x"}, file=file):
        pass
    assert file.getvalue() == ""


def test_the_users_error_is_the_users(monkeypatch):
    monkeypatch.setattr(progress_bar, "_LOOK_S", 0.01)
    with pytest.raises(KeyError), show_progress(spark_with({}), file=Terminal()):
        raise KeyError


def test_wrong_options_draw_nothing():
    """The terminal stays as it is, and the block does not run."""
    file = Terminal()
    with (
        pytest.raises(ConfigError),
        show_progress(spark_with({}), {"progressTopic": "x", "topic": "x"}, file=file),
    ):
        raise AssertionError
    assert file.getvalue() == ""


def test_a_session_that_is_stopped_ends_the_bar_alone(monkeypatch):
    monkeypatch.setattr(progress_bar, "_LOOK_S", 0.01)
    looks = []

    def stopped():
        looks.append(1)
        raise RuntimeError

    spark = spark_with({})
    spark.sparkContext = SimpleNamespace(
        statusTracker=lambda: SimpleNamespace(getActiveStageIds=stopped)
    )
    with show_progress(spark, file=Terminal()):
        wait_for(lambda: looks, 30, "a look")


class Kernel:
    """As IPython's in a notebook."""

    def __init__(self):
        self.config = {"IPKernelApp": {}}
        self.shown = []


def test_a_notebook_gets_a_bar_that_is_replaced(monkeypatch):
    monkeypatch.setattr(progress_bar, "_LOOK_S", 0.01)
    kernel = Kernel()
    handle = SimpleNamespace(update=kernel.shown.append)
    display = SimpleNamespace(display=lambda *_, **__: handle)
    ipython = SimpleNamespace(get_ipython=lambda: kernel, display=display)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    with show_progress(spark_with({1: stage(3, 8)})):
        wait_for(lambda: kernel.shown, 30, "an update")
    html = kernel.shown[-1]._repr_html_()
    assert html.startswith('<progress value="3" max="8"></progress> 3 of 8 tasks')
    assert repr(kernel.shown[-1]).startswith("3 of 8 tasks")


def test_a_missing_library_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with (
        pytest.raises(ImportError, match=r"progress bars need rich.*spark-kafka-sink\[progress\]"),
        show_progress(spark_with({}), file=Terminal()),
    ):
        pass


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("streaming", [False, True])
def test_a_batch_that_runs_is_seen_on_the_driver(spark, kafka, streaming, tmp_path):
    """Sixteen seconds of tasks of one row a second; metrics and a bar, before the batch ends."""
    topic = kafka.unique_topic("rows", partitions=1)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap, "topic": topic, "maxRecordsPerSecond": "1",
        "tasksAtOnce": "1", "progressTopic": kafka.unique_topic("progress", partitions=1),
    }  # fmt: skip
    registry, file = CollectorRegistry(), Terminal()
    listener = KprodListener(
        PrometheusMetrics(registry), reports=lambda: (), running=RunningWrites(spark, options)
    )
    label = {"query": "seen" if streaming else "batch"}
    seen, over = [], threading.Event()

    def look():
        while not over.wait(0.5):
            seen.append(registry.get_sample_value("kprod_task_rows", label) or 0)

    looks = threading.Thread(target=look)
    looks.start()
    rows = spark.range(25).selectExpr("string(id) as value").coalesce(1)
    with show_progress(spark, options, file=file):
        if streaming:
            rows.write.json(str(tmp_path / "in"))
            source = spark.readStream.schema("value string").json(str(tmp_path / "in"))
            query = (
                source.coalesce(1).writeStream.format("kprod").options(**options)
                .option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("seen")
                .trigger(availableNow=True).start()
            )  # fmt: skip
            query.awaitTermination()
        else:
            rows.write.format("kprod").options(**options).mode("append").save()
        over.set()
        looks.join()
    listener.close()
    # Rows of a batch that goes on. (Its last record, of all rows, may come before its end.)
    assert any(0 < rows < 25 for rows in seen), seen
    assert "of 1 tasks" in file.getvalue()
    assert " rows, " in file.getvalue()
