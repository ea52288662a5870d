"""The dashboard and the alert rules of conf/monitoring name what is exported, and nothing else."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from spark_kafka_sink.datasource.monitoring.instruments import INSTRUMENTS, Label

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf" / "monitoring"
DASHBOARD = json.loads((CONF / "kprod-dashboard.json").read_text())
(GROUP,) = yaml.safe_load((CONF / "kprod-alerts.yml").read_text())["groups"]
PAGE = (ROOT / "docs" / "monitoring.md").read_text()
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
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
    for name, selector in named:
        assert name in BY_NAME, f"{where}: {name}"
        labels = set(re.findall(r"(\w+)\s*[=!]", selector))
        assert labels <= set(BY_NAME[name].labels), f"{where}: {selector}"
    grouped = re.findall(r"(?:by|without|ignoring) \(([^)]*)\)", expression)
    known = {"query"} | {label.value for label in Label}
    assert {one for group in grouped for one in re.findall(r"\w+", group)} <= known


def test_what_neither_the_dashboard_nor_a_rule_shows_is_known():
    shown = set(re.findall(r"kprod_\w+", json.dumps(DASHBOARD) + json.dumps(GROUP)))
    assert set(BY_NAME) - shown == {
        "kprod_query_batches_without_report_total",
        "kprod_requests_total",
        "kprod_retried_rows_total",
        "kprod_skipped_rows_total",
        "kprod_tasks_total",
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
def test_an_alert_has_a_line_in_the_runbook(rule):
    anchor = rule["alert"].lower()
    assert rule["annotations"]["runbook"] == f"docs/monitoring.md#{anchor}"
    assert f"### {rule['alert']}\n" in PAGE
    assert rule["labels"]["severity"] in ("critical", "warning")


def test_every_alert_has_a_unit_test():
    tests = yaml.safe_load((Path(__file__).parent / "alerts.test.yml").read_text())["tests"]
    tested = {one["alertname"] for test in tests for one in test["alert_rule_test"]}
    assert tested == {rule["alert"] for rule in GROUP["rules"]}


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
def test_a_changed_threshold_fails_the_unit_tests(tmp_path):
    """The rules' tests can fail."""
    rules = (CONF / "kprod-alerts.yml").read_text()
    for rule in GROUP["rules"]:
        expression = json.dumps(rule["expr"]).strip('"')
        broken = yaml.safe_load(rules)
        (same,) = (r for r in broken["groups"][0]["rules"] if r["alert"] == rule["alert"])
        same["expr"] = re.sub(r"> [\d.]+", "> 1e12", rule["expr"])
        assert same["expr"] != rule["expr"], expression
        (tmp_path / "rules.yml").write_text(yaml.safe_dump(broken))
        tests = (Path(__file__).parent / "alerts.test.yml").read_text()
        tests = tests.replace("../../conf/monitoring/kprod-alerts.yml", "rules.yml")
        (tmp_path / "tests.yml").write_text(tests)
        ran = subprocess.run(
            ["promtool", "test", "rules", str(tmp_path / "tests.yml")],
            capture_output=True,
            check=False,
        )
        assert ran.returncode != 0, rule["alert"]
