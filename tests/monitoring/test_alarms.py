"""Alerts fire on what the listener exports when things go wrong, and on nothing else."""

import re
import shutil
import subprocess
import sys

import pytest

from tests.monitoring.reports import failed, idle, progress, report, started, terminated
from tests.monitoring.scrapes import ROOT, RULES, Driver, Scrapes
from tests.waiting import wait_for

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool (package prometheus)"
)


@pytest.fixture
def scrapes(tmp_path):
    return Scrapes(tmp_path)


def healthy(scrapes, driver, *, minutes, seconds=20.0):
    """A micro-batch each minute, of ``seconds``."""

    def batch():
        number = int(scrapes.now)
        driver.reports.append(report(number, writtenAtMs=scrapes.now * 1000, retries=0))
        driver.listener.onQueryProgress(progress(number, seconds=seconds))

    scrapes.scrape(driver, minutes=minutes, before=batch)


def test_a_healthy_query_raises_no_alert(scrapes):
    driver = Driver(scrapes)
    driver.listener.onQueryStarted(started())
    healthy(scrapes, driver, minutes=60)
    driver.listener.onQueryIdle(idle())
    assert scrapes.firing() == set()


def test_a_query_that_fails_in_its_first_micro_batch(scrapes):
    """It fails between two scrapes: Prometheus never sees its counters at 0."""
    driver = Driver(scrapes)
    driver.listener.onQueryStarted(started())
    driver.reports.append(failed("KP0213", outcome="aborted", rows=0))
    driver.listener.onQueryTerminated(terminated("[KP0213] too large"))
    scrapes.scrape(driver, minutes=2)
    assert scrapes.firing() == {"KprodQueryFailed", "KprodWriteFailed"}
    scrapes.scrape(driver, minutes=60)
    assert scrapes.firing() == {"KprodQueryFailed", "KprodQueryGone"}


@pytest.mark.parametrize("same_process", [True, False])
def test_a_crash_loop(scrapes, same_process):
    """Each life has the same counts, and ends before or after a scrape."""
    driver = Driver(scrapes)
    for life in range(6):
        if not same_process:
            driver = Driver(scrapes, f"pod-{life}")
        driver.listener.onQueryStarted(started(run_id=f"{life}"))
        scrapes.scrape(driver, minutes=2)
        driver.listener.onQueryTerminated(terminated("boom", run_id=f"{life}"))
        scrapes.scrape(*([driver] if life % 2 else []))
    assert {"KprodCrashLoop", "KprodQueryFailed"} <= scrapes.firing()


def test_a_driver_that_is_killed(scrapes):
    driver = Driver(scrapes)
    scrapes.scrape(driver)
    driver.listener.onQueryStarted(started())
    healthy(scrapes, driver, minutes=5)
    scrapes.scrape(minutes=2)
    assert scrapes.firing() == set()  # it may be restarted
    scrapes.scrape(minutes=10)
    assert scrapes.firing() == {"KprodDriverGone"}
    scrapes.scrape(minutes=300)
    assert scrapes.firing() == {"KprodDriverGone"}
    after = Driver(scrapes, "b")
    after.listener.onQueryStarted(started())
    healthy(scrapes, after, minutes=2)
    assert scrapes.firing() == set()
    after.listener.onQueryTerminated(terminated())
    scrapes.scrape(after, minutes=1)
    scrapes.scrape(minutes=20)
    assert scrapes.firing() == set()  # it ended, and the process after it


def test_a_query_that_ended_while_its_driver_lives(scrapes):
    driver = Driver(scrapes)
    driver.listener.onQueryStarted(started())
    healthy(scrapes, driver, minutes=5)
    driver.listener.onQueryTerminated(terminated())
    scrapes.scrape(driver, minutes=20)
    assert scrapes.firing() == {"KprodQueryGone"}
    driver.listener.onQueryStarted(started(run_id="next"))
    healthy(scrapes, driver, minutes=2)
    assert scrapes.firing() == set()


@pytest.mark.parametrize("lag", [None, 1000, 0])
def test_a_stream_that_falls_behind_its_trigger(scrapes, lag):
    """Its micro-batches follow each other without a pause. ``lag`` is what it grows by."""
    driver = Driver(scrapes)
    driver.listener.onQueryStarted(started())

    def batch():
        number = int(scrapes.now)
        driver.reports.append(report(number, writtenAtMs=scrapes.now * 1000, retries=0))
        behind = None if lag is None else 500 + number // 60 * lag
        driver.listener.onQueryProgress(progress(number, seconds=60, lag=behind))

    scrapes.scrape(driver, minutes=30, before=batch)
    assert scrapes.firing() == (set() if lag == 0 else {"KprodFallsBehind"})


def test_a_query_that_stands_still(scrapes):
    driver = Driver(scrapes)
    driver.listener.onQueryStarted(started())
    healthy(scrapes, driver, minutes=5)
    scrapes.scrape(driver, minutes=20)
    assert scrapes.firing() == {"KprodNoProgress"}


def test_a_commit_that_takes_long(scrapes):
    driver = Driver(scrapes)
    driver.listener.onQueryStarted(started())
    healthy(scrapes, driver, minutes=3)
    driver.reports.append(report(1, writtenAtMs=scrapes.now * 1000, retries=0, commitMs=45_000))
    healthy(scrapes, driver, minutes=3)
    assert scrapes.firing() == {"KprodCommitWaits"}


def test_reports_that_do_not_arrive(scrapes):
    driver = Driver(scrapes)
    driver.listener.onQueryStarted(started())
    healthy(scrapes, driver, minutes=5)
    driver.listener.onQueryProgress(progress(1, seconds=20))
    scrapes.scrape(driver)
    assert scrapes.firing() == {"KprodReportsMissing"}


def test_the_first_failure_of_a_batch_job(scrapes):
    """Its series begin with it, in the push gateway."""
    driver = Driver(scrapes)
    scrapes.scrape(driver, minutes=3)
    job = {"queryId": None, "queryName": None, "runId": None, "batchId": None}
    driver.reports.append(failed("KP0213", outcome="aborted", **job))
    driver.listener.read_reports()
    scrapes.scrape(driver, minutes=2)
    assert scrapes.firing() == {"KprodWriteFailed"}


# --- a real Prometheus ----------------------------------------------------------------------------

DRIVER = """
import sys
import prometheus_client
from spark_kafka_sink import KprodListener
from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics
from tests.monitoring.reports import started

listener = KprodListener(PrometheusMetrics(), reports=lambda: ())
server, _ = prometheus_client.start_http_server(0, "127.0.0.1")
listener.onQueryStarted(started())
print(server.server_port, flush=True)
sys.stdin.read()
"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus")
def test_a_real_prometheus_alerts_on_a_killed_driver(tmp_path, monkeypatch):
    """The rules with seconds for minutes; the process is killed while its query runs."""
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import demo_ops

    conf = tmp_path / "conf"
    shutil.copytree(demo_ops.CONF, conf)
    rules = conf / RULES.name
    rules.write_text(re.sub(r"\b(\d+)m\b", r"\1s", RULES.read_text()))
    monkeypatch.setattr(demo_ops, "CONF", conf)
    command = [sys.executable, "-c", DRIVER]
    with subprocess.Popen(command, stdin=-1, stdout=-1, cwd=ROOT) as driver:
        prometheus = demo_ops.Prometheus(tmp_path, int(driver.stdout.readline()), 0)
        firing = 'count(ALERTS{alertstate="firing"})'
        gone = 'ALERTS{alertstate="firing",alertname="KprodDriverGone",query="orders"}'
        try:
            wait_for(lambda: prometheus.value("kprod_query_active"), 60, "the query's series")
            assert prometheus.value(firing) is None
            driver.kill()
            wait_for(lambda: prometheus.value(gone), 60, "the alert")
        finally:
            driver.kill()
            prometheus.close()
