"""``make demo-ops`` and the profile ``demo``: what a real Prometheus scrapes of a real stream."""

import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from spark_kafka_sink.datasource.monitoring.instruments import INSTRUMENTS
from tests.waiting import PATIENCE, wait_for

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
LONGEST_S = 90.0
(GROUP,) = yaml.safe_load((ROOT / "conf/monitoring/kprod-alerts.yml").read_text())["groups"]
DEMO = {name: one for name, one in COMPOSE.items() if "demo" in one["profiles"]}


def test_the_demo_profile_mounts_files_that_exist():
    """It was never run by docker here: names, files and references are what can be checked."""
    assert set(DEMO) == {
        "kafka-1", "kafka-2", "kafka-3", "topics", "stream", "prometheus", "grafana"
    }  # fmt: skip
    for name, one in DEMO.items():
        for volume in one.get("volumes", ()):
            source, _, mode = volume.split(":")
            assert (ROOT / source).is_file(), f"{name}: {volume}"
            assert mode == "ro"
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", ())), name
        assert set(one.get("depends_on", ())) <= set(DEMO), name
    copied = [
        source
        for line in DEMO["stream"]["build"]["dockerfile_inline"].splitlines()
        if line.startswith("COPY")
        for source in line.split()[1:-1]
    ]
    assert copied
    assert all((ROOT / source).exists() for source in copied)
    config = yaml.safe_load((ROOT / "conf/monitoring/prometheus.yml").read_text())
    (target,) = config["scrape_configs"][0]["static_configs"][0]["targets"]
    assert target.split(":")[0] in DEMO
    assert DEMO["stream"]["command"][-1].endswith(":" + target.split(":")[1])


def test_grafana_is_given_the_dashboard_and_prometheus():
    conf = ROOT / "conf/monitoring/grafana"
    (source,) = yaml.safe_load((conf / "datasources.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    (provider,) = yaml.safe_load((conf / "dashboards.yml").read_text())["providers"]
    mounted = {volume.split(":")[1] for volume in DEMO["grafana"]["volumes"]}
    assert f"{provider['options']['path']}/kprod-dashboard.json" in mounted


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (package prometheus)")
def test_promtool_accepts_the_configuration_of_the_demo():
    ran = subprocess.run(
        ["promtool", "check", "config", "conf/monitoring/prometheus.yml"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def unread_bytes(port):
    """The most bytes that lie unread on one connection to a port of this machine."""
    return max(
        (
            int(columns[4].partition(":")[2], 16)
            for table in ("/proc/net/tcp", "/proc/net/tcp6")
            for columns in map(str.split, Path(table).read_text().splitlines()[1:])
            if int(columns[1].rpartition(":")[2], 16) == port
        ),
        default=0,
    )


def kill_with_a_produce_request(node):
    """Kills the node when a Produce request of the stream lies at it unread.

    A broker that is killed between two micro-batches costs no retry: the next one finds the new
    leaders. So the node is frozen nearly always, and goes on only for as long as it needs to read
    what lies there: what comes before a Produce request (metadata, a coordinator, the commit of
    the batch before) keeps it away. Every two seconds it goes on for longer, lest its session with
    the controller (six seconds) ends. At 20 000 rows a second nothing else of the stream has 4 KiB.
    """
    begun = rested = time.monotonic()
    while time.monotonic() < begun + LONGEST_S * PATIENCE:
        node.freeze()
        unfrozen = time.monotonic() + 0.1
        while time.monotonic() < unfrozen:
            if unread_bytes(node.port()) > 4096:
                node.kill()
                return
            time.sleep(0.01)
        node.thaw()
        wait_for(lambda: not unread_bytes(node.port()), 60, "the broker to read", pause=0.002)
        if time.monotonic() < rested + 2:
            time.sleep(0.02)
        else:
            time.sleep(0.5)
            rested = time.monotonic()
    raise AssertionError("no Produce request came to the frozen broker")


@pytest.mark.long
@pytest.mark.cluster
@pytest.mark.timeout(600)
@pytest.mark.skipif(shutil.which("prometheus") is None, reason="no prometheus")
def test_prometheus_sees_the_stream_and_a_killed_broker(spark, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import demo_ops

    with demo_ops.OpsDemo(spark, rate=20_000) as ops:
        value = ops.prometheus.value
        label = '{query="orders"}'

        def scraped(expression, what):
            return wait_for(
                lambda: value(expression), LONGEST_S, f"{what}, in Prometheus", pause=0.2
            )

        rows = scraped(f"kprod_rows_total{label}", "rows")
        assert rows > 0
        assert value(f"kprod_query_active{label}") == 1
        # A report is read as soon as it is there, its micro-batch's progress when Spark tells it.
        scraped(f"kprod_query_input_rows_total{label} >= {rows}", "the rows as input")
        assert value('kprod_writes_total{query="orders",outcome="committed"}') >= 1
        assert value(f"kprod_transaction_timeout_seconds{label}") == 900
        assert value("sum(kprod_broker_requests_total)") > 0
        (group,) = ops.prometheus.get("rules")["groups"]
        assert len(group["rules"]) == len(GROUP["rules"])
        assert all(rule["health"] in ("ok", "unknown") for rule in group["rules"])

        known = {one.prometheus_name for one in INSTRUMENTS}
        names = ops.prometheus.get("label/__name__/values")
        ours = {
            re.sub(r"(?<=_seconds)_(bucket|count|sum)$", "", name)
            for name in names
            if name.startswith("kprod_") and not name.endswith("_created")
        }
        assert ours - known == set()
        assert len(ours) > 30

        before = value(f"kprod_retries_total{label}")
        kill_with_a_produce_request(ops.kafka.node(demo_ops.KILLED_NODE))
        scraped(f"kprod_retries_total{label} - {before}", "batches that were sent again")
        # The same in the report of the batch, with what was answered or broke.
        (hit, *_) = [r for r in ops.reports() if r["retries"]]
        assert hit["outcome"] == "committed"
        assert any(broker["lastAnswer"] for broker in hit["brokers"])
        again = value(f"kprod_rows_total{label}")
        scraped(f"kprod_rows_total{label} - {again}", "rows without the broker")
        assert value(f"sum(kprod_writes_total{label})") <= len(ops.reports())
