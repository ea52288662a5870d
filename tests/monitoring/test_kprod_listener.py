"""The listener: Spark's events, joined with the reports of the batches."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spark_kafka_sink import KprodListener
from spark_kafka_sink.datasource.monitoring.instruments import OTHER
from spark_kafka_sink.datasource.monitoring.measurements import MAX_LABEL_VALUES
from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics
from tests.monitoring.reports import failed, idle, progress, report, started, terminated


class MonitoredSession:
    """A listener over Prometheus' library, and reports that are given to it."""

    def __init__(self):
        self.registry = CollectorRegistry()
        self.reports, self.joined, self.now = [], [], 1_000.0
        self.listener = KprodListener(
            PrometheusMetrics(self.registry),
            reports=self._new,
            on_batch=lambda one, reports: self.joined.append((one, list(reports))),
            wall_s=lambda: self.now,
        )

    def _new(self):
        new, self.reports = self.reports, []
        return new

    def read(self, reports):
        self.reports = reports
        self.listener.read_reports()

    def progress(self, event, reports):
        """Spark's event, once these reports are there."""
        self.reports = reports
        self.listener.onQueryProgress(event)

    def value(self, name, query="orders", **labels):
        return self.registry.get_sample_value(name, {"query": query, **labels})


@pytest.fixture
def world():
    return MonitoredSession()


def test_a_progress_and_the_report_of_its_batch_are_joined(world):
    world.listener.onQueryStarted(started())
    world.reports = [report(0), report(1)]  # Spark tells of batches later than they are committed
    world.listener.onQueryProgress(progress(0))
    world.listener.onQueryProgress(progress(1))
    assert [(one["batchId"], [r["batchId"] for r in found]) for one, found in world.joined] == [
        (0, [0]),
        (1, [1]),
    ]


def test_an_idle_query_that_began_before_us_is_not_known(world):
    """A listener may be added while queries run: only a start or a progress has the name."""
    world.listener.onQueryIdle(idle())
    assert b'query="orders"' not in generate_latest(world.registry)
    world.listener.onQueryStarted(started())
    world.listener.onQueryIdle(idle())
    assert world.value("kprod_query_active") == 1


def test_every_report_of_a_batch_with_several_writes_is_counted(world):
    world.progress(progress(4), [report(4), report(4, rows=7)])
    assert [r["rows"] for r in world.joined[0][1]] == [100, 7]
    assert world.value("kprod_rows_total") == 107


def test_values_arrive_in_the_unit_that_the_name_says(world):
    world.progress(progress(0), [report(0)])
    assert world.value("kprod_sent_bytes_total") == 2_000
    assert world.value("kprod_throttle_time_seconds_total") == 0.25
    assert world.value("kprod_queue_time_max_seconds") == 1.5
    assert world.value("kprod_task_skew_ratio") == 2.5
    assert world.value("kprod_last_report_timestamp_seconds") == 1_700_000_000
    assert world.value("kprod_broker_latency_mean_seconds", broker="2") == 0.008
    assert world.value("kprod_broker_requests_total", broker="1") == 2
    assert world.value("kprod_writes_total", outcome="committed") == 1
    assert world.value("kprod_query_batch_time_seconds_total", phase="addBatch") == 1.2


def test_latencies_and_commits_are_histograms(world):
    world.listener.onQueryStarted(started())
    assert world.value("kprod_commit_time_seconds_count") == 0
    world.read([report(0), report(1, commitMs=31_000)])
    bucket = "kprod_broker_latency_seconds_bucket"
    of_broker = {le: world.value(bucket, broker="1", le=le) for le in ("0.002", "0.005", "+Inf")}
    assert of_broker == {"0.002": 0, "0.005": 2, "+Inf": 4}
    assert world.value("kprod_commit_time_seconds_bucket", le="0.05") == 1
    assert world.value("kprod_commit_time_seconds_bucket", le="30.0") == 1
    assert world.value("kprod_commit_time_seconds_count") == 2


def test_rows_have_the_label_of_their_topic(world):
    world.read([report(0), report(1)])
    assert world.value("kprod_topic_rows_total", topic="orders") == 140
    assert world.value("kprod_topic_sent_bytes_total", topic="refunds") == 1_000


@pytest.mark.parametrize("strange", [[], [1] * 14, ["x"] * 15, [-1] * 15, [10**12] * 15, None])
def test_strange_counts_are_no_values(world, strange):
    brokers = [{"id": 1, "requests": 1, "latencies": strange}]
    world.read([report(0, brokers=brokers, topicCounts=strange)])
    assert not world.value("kprod_broker_latency_seconds_count", broker="1")
    assert world.value("kprod_broker_requests_total", broker="1") == 1


def test_counters_with_alerts_are_zero_before_the_first_batch(world):
    """Prometheus sees no increase in a series that begins with 1."""
    world.listener.onQueryStarted(started())
    assert world.value("kprod_retries_total") == 0
    assert world.value("kprod_writes_total", outcome="partial") == 0
    assert world.value("kprod_query_failures_total", code="KP0501") == 0
    assert world.value("kprod_query_active") == 1


def test_a_query_without_a_name_is_labelled_by_its_id(world):
    world.progress(progress(0, name=None), [report(0, queryName=None)])
    query_id = world.joined[0][0]["id"]
    assert world.value("kprod_rows_total", query=query_id) == 100
    assert world.value("kprod_query_input_rows_total", query=query_id) == 100


def test_a_report_without_the_querys_name_is_counted_under_it(world):
    world.progress(progress(0), [report(0, queryName=None)])
    assert world.value("kprod_rows_total") == 100


def test_an_abort_without_finished_tasks_has_its_query(world):
    """Only tasks know the query; the options are those of its other batches."""
    world.progress(progress(0), [report(0)])
    unknown = {"queryId": None, "queryName": None, "runId": None}
    world.reports = [report(1, outcome="aborted", rows=0, **unknown)]
    world.listener.onQueryTerminated(terminated("boom"))
    assert world.value("kprod_writes_total", outcome="aborted") == 1


def test_an_error_is_counted_by_its_code_only(world):
    world.listener.onQueryStarted(started())
    world.reports = [failed("KP0611", outcome="partial")]
    world.listener.onQueryTerminated(terminated("... DeliveryError: [KP0501] secret-canary"))
    assert world.value("kprod_failures_total", code="KP0611") == 1
    assert world.value("kprod_query_failures_total", code="KP0501") == 1
    assert world.value("kprod_query_active") == 0
    shown = [str(s) for metric in world.registry.collect() for s in metric.samples]
    assert len(shown) > 30
    assert not any("canary" in line for line in shown)


def test_a_failure_that_is_not_ours_is_other(world):
    world.listener.onQueryStarted(started())
    world.listener.onQueryTerminated(terminated("java.lang.OutOfMemoryError"))
    assert world.value("kprod_query_failures_total", code="other") == 1


def test_an_idle_query_is_alive(world):
    world.listener.onQueryStarted(started())
    world.now = 2_000.0
    world.listener.onQueryIdle(idle())
    assert world.value("kprod_query_last_event_timestamp_seconds") == 2_000


def test_a_missing_report_is_counted_once_reports_came_before(world):
    world.listener.onQueryProgress(progress(0))
    assert world.value("kprod_query_batches_without_report_total") is None
    world.progress(progress(1), [report(1)])
    world.listener.onQueryProgress(progress(2))
    world.listener.onQueryProgress(progress(3, rows=0))
    assert world.value("kprod_query_batches_without_report_total") == 1


def test_what_a_batch_job_wrote_is_counted_when_asked(world):
    world.read([report(None, queryId=None, queryName=None, runId=None)])
    assert world.value("kprod_rows_total", query="batch") == 100


def test_labels_are_bounded_whatever_comes(world):
    for number in range(3 * MAX_LABEL_VALUES):
        topics = [{"topic": f"t{number}", "rows": 1, "bytes": 1}]
        brokers = [{"id": number, "requests": 1, "meanLatencyMs": 1.0, "maxLatencyMs": 1}]
        world.reports.append(
            report(number, queryName=f"q{number % 150}", brokers=brokers, topicCounts=topics)
        )
        world.reports.append(failed(f"KP{number:04}", outcome=f"o{number}"))
        world.reports.append(failed("a text with a secret"))
    world.listener.read_reports()
    for metric in world.registry.collect():
        for label in ("query", "broker", "outcome", "code", "topic"):
            values = {s.labels[label] for s in metric.samples if label in s.labels}
            assert len(values) <= MAX_LABEL_VALUES + 1
    assert world.value("kprod_rows_total", query=OTHER) > 0
    assert world.value("kprod_failures_total", code=OTHER) > 0


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ('a"b\\c\nd', 'a"b\\c\nd'),
        ("\ud83d half", "? half"),
        ("long " * 2_000, ("long " * 40)),
        ("commandes é 漢", "commandes é 漢"),
    ],
    ids=["quoted", "half a surrogate pair", "long", "unicode"],
)
def test_a_strange_name_does_not_end_scrapes(world, name, label):
    """Java has such names; one of them would take all metrics of the driver with it."""
    world.listener.onQueryStarted(started(name))
    world.progress(progress(0, name=name), [report(0, queryName=name)])
    scraped = generate_latest(world.registry).decode()
    assert len(scraped) < 100_000
    rows = [
        sample
        for family in text_string_to_metric_families(scraped)
        for sample in family.samples
        if sample.name == "kprod_rows_total"
    ]
    assert [(one.labels["query"], one.value) for one in rows] == [(label, 100)]


@pytest.mark.parametrize("strange", ["text", None, [1], {"a": {"b": 1}}, True, 10**400])
def test_a_report_of_another_version_is_read_as_far_as_known(world, strange):
    world.read([report(0, retries=strange, brokers=strange, error=strange, newField=strange)])
    assert world.value("kprod_rows_total") == 100
