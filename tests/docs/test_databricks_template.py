"""The bundle template of templates/databricks: Databricks' classes accept its jobs, and they run.

No workspace has seen it. The classes are databricks-sdk's: they leave out fields that they don't
know, so a job that they give back whole has none. Go's templates can do more than ours, which have
``{{.name}}`` alone, in names of files and in files that end in ``.tmpl``.
"""

from __future__ import annotations

import datetime
import json
import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.programs import run_python

TEMPLATE = Path(__file__).resolve().parents[2] / "templates" / "databricks"
SCHEMA: dict[str, Any] = json.loads((TEMPLATE / "databricks_template_schema.json").read_text())
DEFAULTS: dict[str, str] = {name: one["default"] for name, one in SCHEMA["properties"].items()}
JOBS = ("write", "backfill")
_PROPERTY = re.compile(r"\{\{\.([a-z_]+)}}")


def written(into: Path, answers: Mapping[str, str] | None = None) -> Path:
    """The template as ``databricks bundle init`` would write it: the project, below ``into``; what
    is not answered is the default. KeyError for a property that is not asked for.
    """
    answers = DEFAULTS | dict(answers or {})

    def filled(text: str) -> str:
        return _PROPERTY.sub(lambda found: answers[found[1]], text)

    root = TEMPLATE / "template"
    for path in root.rglob("*"):
        place = into / filled(str(path.relative_to(root)))
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.suffix == ".tmpl":
            place.with_suffix("").write_text(filled(path.read_text("utf-8")), "utf-8")
        else:
            place.write_bytes(path.read_bytes())
    return into / answers["project_name"]


def bundle(project: Path) -> dict[str, Any]:
    """databricks.yml with the resources that it includes."""
    whole: dict[str, Any] = yaml.safe_load((project / "databricks.yml").read_text("utf-8"))
    whole["resources"] = {"jobs": {}}
    for pattern in whole["include"]:
        for path in project.glob(pattern):
            found = yaml.safe_load(path.read_text("utf-8"))
            whole["resources"]["jobs"] |= found["resources"]["jobs"]
    return whole


def with_variables(value: Any, found: Mapping[str, str]) -> Any:
    """``value`` with each ``${name}`` replaced; KeyError for one that is not there."""
    if isinstance(value, dict):
        return {name: with_variables(one, found) for name, one in value.items()}
    if isinstance(value, list):
        return [with_variables(one, found) for one in value]
    if isinstance(value, str):
        return re.sub(r"\$\{([a-z_.]+)}", lambda name: found[name[1]], value)
    return value


def job(project: Path, target: str = "dev", name: str = "write") -> dict[str, Any]:
    """The settings of one of its jobs in a target, with the variables' defaults."""
    whole = bundle(project)
    assert target in whole["targets"]
    found = {f"var.{name}": one["default"] for name, one in whole["variables"].items()}
    found |= {"bundle.name": whole["bundle"]["name"], "bundle.target": target}
    settings: dict[str, Any] = with_variables(whole["resources"]["jobs"][name], found)
    return settings


def today() -> datetime.date:
    """Read for each test: a run of all tests may go on over midnight."""
    return datetime.datetime.now(datetime.UTC).date()


def yesterday() -> datetime.date:
    return today() - datetime.timedelta(days=1)


PROGRAM = """
import runpy, sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.getOrCreate()
day = sys.argv.pop(1)  # and the day after, whose rows are another run's
rows = f"select date'{day}' day, 'a' key, '1' value union all select date'{day}' + 1, 'b', '2'"
spark.sql(rows).createOrReplaceTempView("orders")
sys.argv[0] = sys.argv.pop(1)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture
def project(tmp_path):
    return written(tmp_path)


def test_each_property_is_asked_for_and_used():
    used = set()
    for path in (TEMPLATE / "template").rglob("*"):
        text = path.read_text("utf-8") if path.suffix == ".tmpl" else ""
        used |= set(re.findall(r"\{\{\.([a-z_]+)}}", f"{path.name} {text}"))
    assert used == set(DEFAULTS)
    orders = [one["order"] for one in SCHEMA["properties"].values()]
    assert orders == list(range(1, len(orders) + 1))
    for one in SCHEMA["properties"].values():
        assert one.keys() <= {
            "type", "default", "pattern", "pattern_match_failure_message", "description", "order"
        }  # fmt: skip
        jsonschema.validate(one["default"], one)


def test_answers_are_in_the_project_and_no_template_is_left(tmp_path):
    project = written(tmp_path, {"project_name": "nightly", "topic": "t1"})
    assert project.name == bundle(project)["bundle"]["name"] == "nightly"
    for name in JOBS:
        (task,) = job(project, name=name)["tasks"]
        assert "--topic=t1" in task["spark_python_task"]["parameters"]
    for path in project.rglob("*"):
        assert path.suffix != ".tmpl"
        assert path.is_dir() or "{{." not in path.read_text("utf-8")


@pytest.mark.parametrize("name", JOBS)
def test_databricks_classes_accept_the_job(project, name):
    from databricks.sdk.service.jobs import JobSettings

    settings = job(project, name=name)
    assert JobSettings.from_dict(settings).as_dict() == settings
    # What they don't know, they leave out: that is what finds a misspelt field.
    wrong = settings | {"max_concurrent_run": 1}
    assert JobSettings.from_dict(wrong).as_dict() != wrong


@pytest.mark.parametrize("name", JOBS)
def test_the_password_is_always_a_reference_to_the_scope(project, name):
    (cluster,) = job(project, name=name)["job_clusters"]
    assert cluster["new_cluster"]["spark_env_vars"] == {
        "KAFKA_PASSWORD": "{{secrets/kafka/password}}"
    }
    source = (project / "src" / f"{name}.py").read_text("utf-8")
    assert '"kafka.sasl.password": "${env:KAFKA_PASSWORD}"' in source


def arguments(settings, *, day="", started=None):
    """What the job gives its script when it starts on that day."""
    (task,) = settings["tasks"]
    return [
        one.replace("{{job.parameters.day}}", day).replace(
            "{{job.start_time.iso_date}}", str(started or today())
        )
        for one in task["spark_python_task"]["parameters"]
    ]


def day_of(project, **run):
    """The day that a run of the job writes."""
    script = runpy.run_path(str(project / "src" / "write.py"))
    return script["parsed"](arguments(job(project), **run)).day


def test_the_job_writes_the_day_before_its_start(project):
    """At 03:00 the day of the start has 21 hours to go: they would never be written."""
    assert job(project)["parameters"] == [{"name": "day", "default": ""}]
    now = today()
    assert day_of(project, started=now) == now - datetime.timedelta(days=1)
    # A retry, and a repair days later, have the same start.
    start = datetime.date(2026, 3, 1)
    assert day_of(project, started=start) == datetime.date(2026, 2, 28)
    assert day_of(project, day="2026-02-20", started=start) == datetime.date(2026, 2, 20)


@pytest.mark.parametrize("days", [0, 1])
def test_the_job_refuses_a_day_that_is_not_over(project, capsys, days):
    """It would be done for good with the rows that are there so far."""
    with pytest.raises(SystemExit) as ended:
        day_of(project, day=str(today() + datetime.timedelta(days=days)))
    assert ended.value.code == 2
    assert "is not over" in capsys.readouterr().err


def test_dev_and_prod_have_ids_of_their_own(project):
    """Else a run in dev makes prod's day done, which prod then never writes."""
    for target in ("dev", "prod"):
        assert f"--app-id=kafka_export-{target}" in arguments(job(project, target))
        backfill = arguments(job(project, target, "backfill"))
        assert f"--name=kafka_export-{target}-backfill" in backfill


def own_job(secure_kafka, topic, tmp_path, name):
    """A job with answers for the broker of these tests, its script, and its environment."""
    options = secure_kafka.cluster.client_options("SASL_SSL")
    answers = {
        "source_table": "orders",
        "topic": topic,
        "bootstrap_servers": options["bootstrap.servers"],
        "username": "alice",
    }
    project = written(tmp_path / "own", answers)
    settings = job(project, name=name)
    python_file = settings["tasks"][0]["spark_python_task"]["python_file"]
    script = (project / "resources" / python_file).resolve()
    environment = {"KAFKA_PASSWORD": secure_kafka.cluster.security.passwords["alice"]}
    return settings, script, ("--ca", options["ssl.truststore.location"]), environment


@pytest.mark.long  # an application of Spark of its own
def test_the_backfill_writes_all_days_once(secure_kafka, consume, tmp_path):
    topic = secure_kafka.kafka.unique_topic("databricks")
    settings, script, ca, environment = own_job(secure_kafka, topic, tmp_path, "backfill")
    for _ in range(2):
        program = ("-c", PROGRAM, str(yesterday()), script, *arguments(settings), *ca)
        done = run_python(*program, cwd=tmp_path, environment=environment, timeout=250)
        assert "backfill 'kafka_export-dev-backfill' is finished" in done.stdout
    found = consume(topic, bootstrap=secure_kafka.kafka.bootstrap, isolation="read_committed")
    assert sorted(found.keys) == [b"a", b"b"]


@pytest.mark.long  # applications of Spark of its own
def test_the_job_writes_each_day_once_in_any_order(project, secure_kafka, consume, tmp_path):
    """Yesterday twice; then the day before, which was left out, as after a night that failed."""
    topic = secure_kafka.kafka.unique_topic("databricks")
    settings, script, ca, environment = own_job(secure_kafka, topic, tmp_path, "write")
    started = today()
    last = started - datetime.timedelta(days=1)
    left_out = last - datetime.timedelta(days=1)
    for written_day, day in ((last, ""), (last, ""), (left_out, str(left_out))):
        given = (*arguments(settings, day=day, started=started), *ca)
        program = ("-c", PROGRAM, str(written_day), script, *given)
        run_python(*program, cwd=tmp_path, environment=environment, timeout=250)
    bootstrap = secure_kafka.kafka.bootstrap
    found = consume(topic, bootstrap=bootstrap, isolation="read_committed")
    assert (found.keys, found.values) == ([b"a", b"a"], [b"1", b"1"])
