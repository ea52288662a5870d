"""OpenLineage events of a report, checked with the schemas of its specification.

openlineage/ has them as they are in spec/ of github.com/OpenLineage/OpenLineage at commit
8f02abfb7a25 of 2026-08-20, under Apache-2.0.
"""

import json
import uuid
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
import referencing

from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.monitoring import open_lineage
from spark_kafka_sink.datasource.monitoring.open_lineage import PAUSE_S, Collector
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.report_of_batch import report_of_batch
from spark_kafka_sink.datasource.report.write_report import ErrorReport, TopicReport, WriteOutcome
from tests.datasource.commit_messages import message
from tests.programs import run_python

SPECIFICATION = [
    json.loads(p.read_text()) for p in Path(__file__).parent.glob("openlineage/*.json")
]
REGISTRY = referencing.Registry().with_resources(
    (one["$id"], referencing.Resource.from_contents(one)) for one in SPECIFICATION
)
PARENT_RUN = "0199d9a8-0000-7000-8000-000000000001"
LISTENER = "spark_kafka_sink.datasource.monitoring.open_lineage:emit"
OPTIONS = {"kafka.bootstrap.servers": "broker1:9092,broker2:9093", "topic": "orders"}


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    monkeypatch.delenv("OPENLINEAGE_PARENT_ID", raising=False)
    monkeypatch.delenv("OPENLINEAGE_NAMESPACE", raising=False)


def report(**fields):
    made = report_of_batch(
        parse_sink_config(OPTIONS), [message()], WriteOutcome.COMMITTED, wall_ms=1_700_000_000_123
    )
    values = {
        "application_name": "shop", "query_name": "orders-query", "batch_id": 7,
        "elapsed_ms": 20_000, "commit_ms": 377,
        "topic_counts": (TopicReport("orders", 70, 1_500), TopicReport("refunds", 30, 500)),
    }  # fmt: skip
    return replace(made, **(values | fields))


def emitted(made, tmp_path, monkeypatch):
    """What the library's file transport writes of it."""
    file = tmp_path / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    client = open_lineage.OpenLineageClient(config={"transport": transport})
    monkeypatch.setattr(open_lineage, "_collector", lambda: Collector(lambda: client))
    open_lineage.emit(made)
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for event in events:
        check(event)
    return events


def check(event):
    """The event, and each facet by the schema that it names itself."""
    validate(event, event["schemaURL"])
    facets = [*event["run"]["facets"].values(), *event["job"]["facets"].values()]
    for output in event["outputs"]:
        facets += output["outputFacets"].values()
    for facet in facets:
        validate(facet, facet["_schemaURL"])


def validate(found, address):
    schema = {"$ref": address}
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, registry=REGISTRY, format_checker=checker).validate(
        found
    )


def test_a_batch_is_a_run_with_its_topics(tmp_path, monkeypatch):
    made = report()
    start, end = emitted(made, tmp_path, monkeypatch)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["eventTime"] == "2023-11-14T22:13:00.123+00:00"
    assert end["eventTime"] == "2023-11-14T22:13:20.500+00:00"
    assert start["run"]["runId"] == end["run"]["runId"] == str(uuid.UUID(made.report_id))
    assert end["job"]["namespace"] == "default"
    assert end["job"]["name"] == "shop.orders-query"
    assert end["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert start["outputs"] == []
    assert [
        (o["namespace"], o["name"], f["rowCount"], f["size"])
        for o in end["outputs"]
        for f in [o["outputFacets"]["outputStatistics"]]
    ] == [
        ("kafka://broker1:9092", "orders", 70, 1_500),
        ("kafka://broker1:9092", "refunds", 30, 500),
        ("kafka://broker1:9092", "t", 0, 0),
    ]


@pytest.mark.parametrize(
    ("outcome", "code", "state"),
    [
        (WriteOutcome.ACKNOWLEDGED, None, "COMPLETE"), (WriteOutcome.DONE_BEFORE, None, "COMPLETE"),
        (WriteOutcome.NO_ROWS, None, "COMPLETE"), (WriteOutcome.PREPARED, None, "RUNNING"),
        (WriteOutcome.ABORTED, None, "FAIL"), (WriteOutcome.ABORTED, "KP0213", "FAIL"),
        (WriteOutcome.ABORTED, "KP0505", "ABORT"), (WriteOutcome.FAILED, None, "FAIL"),
        (WriteOutcome.PARTIAL, None, "FAIL"), (WriteOutcome.UNKNOWN, None, "OTHER"),
    ],
)  # fmt: skip
def test_an_outcome_is_a_state_of_the_run(tmp_path, monkeypatch, outcome, code, state):
    """A batch that was stopped (KP0505) did not fail."""
    error = code and ErrorReport(code, "text", "hint")
    _, end = emitted(report(outcome=outcome, error=error), tmp_path, monkeypatch)
    assert end["eventType"] == state


def test_a_failed_batch_says_why(tmp_path, monkeypatch):
    error = ErrorReport("KP0611", "2 of 3 transactions are lost", "look")
    made = report(outcome=WriteOutcome.PARTIAL, error=error, topic_counts=(), topics=("orders",))
    _, end = emitted(made, tmp_path, monkeypatch)
    facet = end["run"]["facets"]["errorMessage"]
    assert facet["message"] == "[KP0611] 2 of 3 transactions are lost"
    (output,) = end["outputs"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 0


@pytest.mark.parametrize("where", ["properties", "environment"])
def test_the_parent_is_an_orchestrators_run(tmp_path, monkeypatch, where):
    """Its name may have slashes."""
    given = f"airflow/dag/with/slashes/{PARENT_RUN}"
    if where == "environment":
        monkeypatch.setenv("OPENLINEAGE_PARENT_ID", given)
    made = report(parent_run=given if where == "properties" else None)
    for event in emitted(made, tmp_path, monkeypatch):
        parent = event["run"]["facets"]["parent"]
        assert parent["run"]["runId"] == PARENT_RUN
        assert (parent["job"]["namespace"], parent["job"]["name"]) == (
            "airflow",
            "dag/with/slashes",
        )
        assert event["job"]["namespace"] == "airflow"


@pytest.mark.parametrize("given", ["", "a", "a/b", "a/b/c", f"/{PARENT_RUN}", "////"])
def test_what_is_no_run_is_no_parent(tmp_path, monkeypatch, given):
    for event in emitted(report(parent_run=given), tmp_path, monkeypatch):
        parent = event["run"]["facets"].get("parent")
        assert parent is None or parent["run"]["runId"] == PARENT_RUN


def test_a_batch_job_is_named_too(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "shop-prod")
    nobody = {"query_name": None, "query_id": None, "batch_id": None, "topics": ("orders",)}
    _, end = emitted(report(**nobody), tmp_path, monkeypatch)
    assert (end["job"]["namespace"], end["job"]["name"]) == ("shop-prod", "shop.orders")
    assert end["job"]["facets"]["jobType"]["processingType"] == "BATCH"


def test_a_collector_that_is_away_is_a_warning(monkeypatch, caplog):
    """It is a report listener: the batch is what it is."""
    transport = {"type": "http", "url": "http://127.0.0.1:1", "timeout": 1, "retry": {"total": 0}}
    client = open_lineage.OpenLineageClient(config={"transport": transport})
    monkeypatch.setattr(open_lineage, "_collector", lambda: Collector(lambda: client))
    config = parse_sink_config(OPTIONS | {"reportListeners": LISTENER})
    publish(report(), config)
    assert "a report can't be delivered" in caplog.text


def test_after_a_failure_nothing_is_sent_for_a_minute(tmp_path):
    """A stream's micro-batches would each wait for a collector that is away."""
    file = tmp_path / "later" / "events.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    now = [1_000.0]
    client = open_lineage.OpenLineageClient(config={"transport": transport})
    collector = Collector(lambda: client, lambda: now[0])
    with pytest.raises(RuntimeError):
        collector.emit(report())
    file.parent.mkdir()
    now[0] += PAUSE_S - 1
    collector.emit(report())
    assert not file.exists()
    now[0] += 1
    collector.emit(report())
    assert len(file.read_text().splitlines()) == 2


def test_a_missing_library_is_named_with_its_extra():
    code = (
        "import sys; sys.modules['openlineage'] = None\n"
        "try: import spark_kafka_sink.datasource.monitoring.open_lineage\n"
        "except ImportError as error: print(error)"
    )
    ran = run_python("-c", code)
    assert "OpenLineage events need openlineage" in ran.stdout
    assert "spark-kafka-sink[lineage]" in ran.stdout


JOB = """
import os, sys
bootstrap, topic, events, parent, listener = sys.argv[1:]
os.environ["OPENLINEAGE__TRANSPORT__TYPE"] = "file"
os.environ["OPENLINEAGE__TRANSPORT__LOG_FILE_PATH"] = events
os.environ["OPENLINEAGE__TRANSPORT__APPEND"] = "true"
from pyspark.sql import SparkSession
import spark_kafka_sink
spark = (SparkSession.builder.master("local[2]").appName("shop")
    .config("spark.openlineage.parentJobNamespace", "airflow")
    .config("spark.openlineage.parentJobName", "nightly.load")
    .config("spark.openlineage.parentRunId", parent).getOrCreate())
spark_kafka_sink.register(spark)
(spark.range(1000).selectExpr("string(id) as value").write.format("kprod")
    .option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    .option("reportListeners", listener).save())
spark.stop()
"""


@pytest.mark.long
@pytest.mark.spark
def test_a_job_of_an_orchestrator_on_a_broker(kafka, tmp_path):
    """An application of its own: its environment configures the library."""
    topic, file = kafka.unique_topic(), tmp_path / "events.jsonl"
    run_python("-c", JOB, kafka.bootstrap, topic, str(file), PARENT_RUN, LISTENER)
    events = [json.loads(line) for line in file.read_text().splitlines()]
    for event in events:
        check(event)
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"]
    assert events[1]["job"]["name"] == f"shop.{topic}"
    assert events[1]["run"]["facets"]["parent"]["run"]["runId"] == PARENT_RUN
    (output,) = events[1]["outputs"]
    assert (output["namespace"], output["name"]) == (f"kafka://{kafka.bootstrap}", topic)
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 1000
