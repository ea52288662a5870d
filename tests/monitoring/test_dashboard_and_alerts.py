"""The dashboard and the alert rules of conf/monitoring name what is exported, and nothing else."""

import json
import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from spark_kafka_sink.cli.txn.blockers_metrics import METRICS, metrics_text
from spark_kafka_sink.datasource.monitoring.instruments import INSTRUMENTS, Label
from spark_kafka_sink.transactions.operations.blockers import Blocker

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf" / "monitoring"
DASHBOARD = json.loads((CONF / "kprod-dashboard.json").read_text())
(GROUP,) = yaml.safe_load((CONF / "kprod-alerts.yml").read_text())["groups"]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
#: Of ``kprod txn blockers --prometheus``.
OF_TOPICS = {metric.name for metric in METRICS}
BY_NAME = {one.prometheus_name: one for one in INSTRUMENTS}

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="no promtool (package prometheus)"
)


def expressions():
    for panel in PANELS:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])
    yield from ((rule["alert"], rule["expr"]) for rule in GROUP["rules"])


@pytest.mark.parametrize(("where", "expression"), list(expressions()))
def test_every_metric_and_label_of_an_expression_is_exported(where, expression):
    named = re.findall(r"\b(kprod_\w+)(\{[^}]*\})?", expression)
    assert named
    for found, selector in named:
        if found in OF_TOPICS:
            continue
        name, own = found, {"le"}
        if found not in BY_NAME:
            name = re.sub(r"_(bucket|count|sum)$", "", found)
            assert name in BY_NAME, f"{where}: {name}"
            assert BY_NAME[name].buckets, f"{where}: {name}"
        labels = set(re.findall(r"(\w+)\s*[=!]", selector)) - own
        assert labels <= set(BY_NAME[name].labels), f"{where}: {selector}"
    grouped = re.findall(r"(?:by|without|ignoring|on) \(([^)]*)\)", expression)
    known = {"query", "job", "le", "whose"} | {label.value for label in Label}
    assert {one for group in grouped for one in re.findall(r"\w+", group)} <= known


def test_what_neither_the_dashboard_nor_a_rule_shows_is_known():
    found = set(re.findall(r"kprod_\w+", json.dumps(DASHBOARD) + json.dumps(GROUP)))
    shown = found | {re.sub(r"_(bucket|count)$", "", name) for name in found}
    assert set(BY_NAME) - shown == {
        "kprod_requests_total",
        "kprod_retried_rows_total",
        "kprod_skipped_rows_total",
        "kprod_task_finished",
        "kprod_task_retries",
        "kprod_task_sent_bytes",
        "kprod_task_throughput_bytes_per_second",
        "kprod_task_workers",
        "kprod_tasks_total",
        "kprod_topic_sent_bytes_total",
        "kprod_write_time_seconds_total",
    }


def test_panels_do_not_overlap_and_have_units():
    cells = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in cells, panel["title"]
                cells.add((x, y))
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in PANELS)


def test_the_picture_of_the_docs_shows_the_panels_of_today():
    """Else: python tools/demo_ops.py --seconds 90 --kill-broker --picture docs/monitoring.svg"""
    shown = (ROOT / "docs" / "monitoring.svg").read_text()
    assert {panel["title"] for panel in PANELS if f">{panel['title']}<" not in shown} == set()


@pytest.mark.parametrize("rule", GROUP["rules"], ids=lambda rule: rule["alert"])
def test_an_alert_links_to_a_section_of_the_runbook(rule):
    """So does its section in docs/monitoring.md."""
    page, _, anchor = rule["annotations"]["runbook"].partition("#")
    assert page == "docs/runbook.md"
    titles = re.findall(r"^## (.+)$", (ROOT / page).read_text(), re.MULTILINE)
    (title,) = (one for one in titles if one.lower().replace(" ", "-") == anchor)
    (section,) = re.findall(
        rf"^### {rule['alert']}\n(.+?)(?=^###|\Z)", PAGE, re.DOTALL | re.MULTILINE
    )
    assert f"[{title}](runbook.md#{anchor})." in " ".join(section.split())
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_every_alert_has_a_unit_test():
    tests = yaml.safe_load((Path(__file__).parent / "alerts.test.yml").read_text())["tests"]
    tested = {one["alertname"] for test in tests for one in test["alert_rule_test"]}
    assert tested == {rule["alert"] for rule in GROUP["rules"]}


@pytest.mark.parametrize(
    ("ages", "shown"), [((), 0), ((7_500, 900_000), 900), ((None,), math.nan), ((None, 1_500), 1.5)]
)
def test_an_unknown_age_of_a_transaction_is_not_zero(ages, shown):
    """Zero is that of a topic without one; a transaction that hangs has no coordinator to ask."""
    found = [
        Blocker("orders", n, 0, {0: 5}, (), None, None, None, None, age)
        for n, age in enumerate(ages)
    ]
    families = text_string_to_metric_families(metrics_text("orders", found, 0))
    samples = {(s.name, s.labels.get("whose")): s.value for f in families for s in f.samples}
    age = samples["kprod_topic_oldest_transaction_age_seconds", "hanging"]
    assert age == pytest.approx(shown, nan_ok=True)
    assert samples["kprod_topic_open_transactions", "hanging"] == len(ages)
    assert samples["kprod_topic_oldest_transaction_age_seconds", "owner"] == 0


#: A word that refers to another text, or a page: Prometheus shows each text alone.
REFERENCE = re.compile(
    r"\b(the same|in them|of them|the others?|the one)\b|\.md\b|\babove\b", re.IGNORECASE
)


def test_the_text_of_each_metric_is_understood_alone():
    texts = [one.description for one in INSTRUMENTS] + [one.help for one in METRICS]
    assert len(set(texts)) == len(texts), "two metrics with one text"
    for text in texts:
        assert REFERENCE.search(text) is None, text
        assert len(text.split()) >= 5, text
        assert text[0].isupper() or text[0].isdigit() or text.startswith("kafka."), text
        assert text.endswith("."), text


def test_a_topic_metric_has_the_labels_of_its_definition():
    families = text_string_to_metric_families(metrics_text("orders", (), 0))
    labels = {family.name: [sorted(s.labels) for s in family.samples] for family in families}
    assert labels.keys() == OF_TOPICS
    for metric in METRICS:
        wanted = ["topic", *filter(None, [metric.label])]
        assert all(found == wanted for found in labels[metric.name]), metric.name


@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "conf/monitoring/kprod-alerts.yml"),
        ("test", "rules", "tests/monitoring/alerts.test.yml"),
    ],
)
def test_prometheus_own_tool_accepts_the_rules_and_their_tests(arguments):
    ran = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "SUCCESS" in ran.stdout


@needs_promtool
@pytest.mark.parametrize("rule", GROUP["rules"], ids=lambda rule: rule["alert"])
def test_a_rule_that_never_fires_fails_its_unit_test(tmp_path, rule):
    """The rules' tests can fail: by a threshold, where there is one."""
    expression = re.sub(r"> ([1-9][\d.]*|0\.[\d.]+)$", "> 1e12", rule["expr"], flags=re.MULTILINE)
    if expression == rule["expr"]:
        expression = "vector(0) > 1"
    tests = yaml.safe_load((Path(__file__).parent / "alerts.test.yml").read_text())
    own = [t for t in tests["tests"] if rule["alert"] in _tested(t)]
    for test in own:
        told = test["alert_rule_test"]
        test["alert_rule_test"] = [one for one in told if one["alertname"] == rule["alert"]]
    (tmp_path / "tests.yml").write_text(
        yaml.safe_dump(tests | {"tests": own, "rule_files": ["rules.yml"]})
    )

    def passes(expression: str) -> bool:
        group = GROUP | {"rules": [rule | {"expr": expression}]}
        (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [group]}))
        command = ["promtool", "test", "rules", str(tmp_path / "tests.yml")]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert passes(rule["expr"])
    assert not passes(expression)


def _tested(test):
    return {one["alertname"] for one in test["alert_rule_test"]}
