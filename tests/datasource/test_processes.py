"""What needs a Python process of its own: discovery without register(), and Spark Connect.

Each test starts one process with its own Spark. A classic session and a Connect session can't live
in one process, and discovery happens once per JVM.
"""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path

import pytest

from tests.programs import run_python, without_spark

# Each test is a Spark application of its own.
pytestmark = [pytest.mark.long, pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(240)]

ROOT = Path(__file__).parents[2]

START = """
import os, sys, tempfile
from pyspark.sql import SparkSession
bootstrap, topic = sys.argv[1:]
options = {"kafka.bootstrap.servers": bootstrap, "topic": topic}

def refused(text, action):
    try:
        action()
    except Exception as error:
        assert text in str(error), error
        first = str(error).partition("JVM stacktrace")[0].splitlines()[:3]
        assert "[KP" not in str(error) or "[KP" in "".join(first), error
    else:
        raise AssertionError(f"not refused: {text}")
"""

CLASSIC = "\nspark = SparkSession.builder.master('local[1]').getOrCreate()\n"

DISCOVERED = """
rows = spark.range(5).selectExpr("cast(id AS string) AS value").coalesce(1)
rows.write.format("kprod").options(**options).mode("append").save()
assert "spark_kafka_sink" not in sys.modules, "nothing of ours runs in the user's process"

# Without register() Spark refuses save() without a mode.
refused("cannot be written in the", lambda: rows.write.format("kprod").options(**options).save())

# A stream of the discovered source: its commit gets a DefaultSource out of a pickle.
source = tempfile.mkdtemp()
rows.write.mode("overwrite").json(source)
query = (spark.readStream.schema("value string").json(source).writeStream.format("kprod")
         .options(**options).option("checkpointLocation", tempfile.mkdtemp())
         .trigger(availableNow=True).start())
query.awaitTermination()
print("DONE")
"""

BROKEN_NEIGHBOUR = """
rows = spark.range(5).selectExpr("cast(id AS string) AS value").coalesce(1)
# Spark drops all discovered sources when one of them is broken.
refused("DATA_SOURCE_NOT_FOUND",
        lambda: rows.write.format("kprod").options(**options).mode("append").save())
import spark_kafka_sink
spark_kafka_sink.register(spark)
rows.write.format("kprod").options(**options).save()
print("DONE")
"""

CONNECT = """
spark = SparkSession.builder.remote("local[1]").getOrCreate()
import spark_kafka_sink
spark_kafka_sink.register(spark)
spark_kafka_sink.register(spark)
rows = spark.range(5).selectExpr("cast(id AS string) AS value").coalesce(1)
assert "connect" in type(rows.write).__module__

assert spark_kafka_sink.last_report(spark) is None
rows.write.format("kprod").options(**options).save()
rows.write.options(**options).save(format="kprod", mode="append")
(host,) = spark_kafka_sink.check(spark, options)
assert (host.driver, host.failed) == (False, None), host
assert {"topic", "rights"} <= {step.name for step in host.steps}, "one task does every step"
told = spark_kafka_sink.last_report(spark)
assert (told.rows, told.outcome, told.query_id) == (5, "acknowledged", None), told
there, nowhere = ({"kafka.bootstrap.servers": one} for one in (bootstrap, "127.0.0.1:1"))
assert spark_kafka_sink.read_dead_letters(spark, topic, **there).count() == 10
unread = spark_kafka_sink.read_dead_letters(spark, topic, **nowhere, **{"kafka.max.block.ms": 200})
refused("127.0.0.1:1", unread.collect)  # by the server: a client may reach no broker

refused("cannot be written in the",
        lambda: rows.write.format("kprod").options(**options).mode("ignore").save())
refused("Save mode Overwrite not allowed for Kafka",
        lambda: rows.write.format("kprod").options(**options).mode("overwrite").save())
refused("value must be a(n) string or binary",
        lambda: spark.range(1).selectExpr("id AS value").write.format("kprod")
        .options(**options).save())
there = tempfile.mkdtemp()
refused("already exists", lambda: rows.write.format("json").save(there))

source = tempfile.mkdtemp()
rows.write.mode("overwrite").json(source)
stream = spark.readStream.schema("value string").json(source)

def start(trigger, **more):
    return (stream.writeStream.format("kprod").options(**options)
            .option("checkpointLocation", tempfile.mkdtemp()).trigger(**trigger).start(**more))

refused("does not support the continuous trigger", lambda: start({"continuous": "1 second"}))
# The server's driver writes the reports, and this client sees the folder: they share a machine.
import time
from prometheus_client import CollectorRegistry
from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics
registry, joined = CollectorRegistry(), []
options["reportPath"] = tempfile.mkdtemp()
listener = spark_kafka_sink.KprodListener(
    PrometheusMetrics(registry), reports=options["reportPath"],
    on_batch=lambda progress, reports: joined.append((progress, reports)))
spark.streams.addListener(listener)
query = start({"availableNow": True}, queryName="connected")
query.awaitTermination()
assert query.exception() is None
def value(name, **labels):
    return registry.get_sample_value(name, {"query": "connected", **labels})
deadline = time.monotonic() + 60
while value("kprod_query_active") != 0 and time.monotonic() < deadline:
    time.sleep(0.05)  # the server's events come on a stream of their own
spark.streams.removeListener(listener)
assert value("kprod_query_active") == 0
assert value("kprod_rows_total") == 5, joined
(batch,) = [one for one in joined if one[1]]
assert batch[0]["batchId"] == batch[1][0]["batchId"] == 0
assert (batch[1][0]["queryName"], batch[0]["name"]) == ("connected", "connected")
del options["reportPath"]
told = spark_kafka_sink.last_report(query)
assert (told.query_id, told.query_name, told.rows) == (query.id, "connected", 5), told

# Why a batch failed: the attempt's error is in the report, of a job and of a stream.
small = {"kafka.max.request.size": "1000", "reportPath": tempfile.mkdtemp() + "/report.jsonl"}
large = spark.range(1).selectExpr("repeat('x', 2000) AS value")
refused("PYTHON_EXCEPTION", lambda: large.write.format("kprod").options(**options, **small).save())
failing = (stream.selectExpr("repeat(value, 2000) AS value").writeStream.format("kprod")
           .options(**options, **small).option("checkpointLocation", tempfile.mkdtemp())
           .trigger(availableNow=True).start(queryName="failing"))
refused("PYTHON_EXCEPTION", failing.awaitTermination)
import json
for report, name in zip(map(json.loads, open(small["reportPath"])), (None, "failing"), strict=True):
    assert report["error"]["code"] == "KP0213", report
    assert (report["queryName"], len(report["failedAttempts"])) == (name, 1), report
    assert report["applicationId"], report

spark.sql("CREATE TABLE t (value string) USING kprod")
rows.writeTo("t").options(**options).append()
refused("does not support the continuous trigger", lambda: stream.writeStream.options(**options)
        .trigger(continuous="1 second").toTable("t"))

spark_kafka_sink.register(spark, default_mode=False)
refused("cannot be written in the",
        lambda: rows.write.format("kprod").options(**options).save())
spark.stop()
print("DONE")
"""

RETRIED = """
from pyspark import TaskContext
import spark_kafka_sink
spark = SparkSession.builder.master("local[2,3]").getOrCreate()
spark_kafka_sink.register(spark)
marks = tempfile.mkdtemp()

def dies_once(batches):
    context = TaskContext.get()
    sent = 0
    for batch in batches:
        # Partition 1 dies behind its second batch, in its first two attempts.
        if context.partitionId() == 1 and sent == 2 and context.attemptNumber() < 2:
            open(os.path.join(marks, str(context.attemptNumber())), "w").close()
            raise RuntimeError("planned")
        yield batch
        sent += 1

spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
rows = spark.range(0, 1000, 1, 2).selectExpr("cast(id AS string) AS value")
rows = rows.mapInArrow(dies_once, "value string")
(rows.write.format("kprod").options(**options).option("kafka.linger.ms", "0")
 .option("kafka.batch.size", "500").save())
assert sorted(os.listdir(marks)) == ["0", "1"], "the fault fired in two attempts"
spark.stop()
print("DONE")
"""


CONFS = (
    "spark.ui.enabled=false",
    "spark.ui.showConsoleProgress=false",
    "spark.driver.host=127.0.0.1",
    "spark.driver.bindAddress=127.0.0.1",
    "spark.connect.grpc.binding.address=127.0.0.1",
    "spark.driver.memory=700m",
    "spark.sql.shuffle.partitions=1",
)


def run(script, bootstrap, topic, python_path, home, **more_environment):
    """Runs ``script`` in a fresh Python; what it prints is shown when it fails."""
    environment = dict.fromkeys(os.environ.keys() - without_spark().keys())
    environment |= {
        "PYTHONPATH": os.pathsep.join(map(str, python_path)),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": " ".join([*(f"--conf {conf}" for conf in CONFS), "pyspark-shell"]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    environment |= more_environment
    code = textwrap.dedent(script)
    done = run_python("-c", code, bootstrap, topic, cwd=home, environment=environment, timeout=200)
    assert done.stdout.endswith("DONE\n"), done.stdout + done.stderr
    return done


def test_spark_finds_the_format_by_itself(kafka, consume, tmp_path):
    topic = kafka.unique_topic("discovered")
    done = run(START + CLASSIC + DISCOVERED, kafka.bootstrap, topic, [ROOT], tmp_path)
    assert sorted(consume(topic).values) == sorted(str(n).encode() for n in [*range(5)] * 2)
    assert "kprod wrote rows=5" in done.stderr, "the report is in the driver's log"


def test_a_broken_neighbour_hides_the_format_until_register(kafka, consume, tmp_path):
    (tmp_path / "pyspark_broken.py").write_text("raise ImportError('not our fault')\n")
    topic = kafka.unique_topic("neighbour")
    run(START + CLASSIC + BROKEN_NEIGHBOUR, kafka.bootstrap, topic, [ROOT, tmp_path], tmp_path)
    assert len(consume(topic)) == 5


def test_a_connect_session_is_like_a_classic_one(kafka, consume, tmp_path):
    topic = kafka.unique_topic("connect")
    # pyspark's own way to an ephemeral port for the local server, in place of 15002.
    run(START + CONNECT, kafka.bootstrap, topic, [ROOT], tmp_path, SPARK_TESTING="1")
    assert sorted(consume(topic).values) == sorted(str(n).encode() for n in [*range(5)] * 4)


def test_a_retried_task_writes_all_rows_and_counts_them_once(kafka, consume, tmp_path):
    topic = kafka.unique_topic("retried")
    done = run(START + RETRIED, kafka.bootstrap, topic, [ROOT], tmp_path)
    values = [int(value) for value in consume(topic).values]
    assert set(values) == set(range(1000))
    again = len(values) - 1000
    # At most what two failed attempts of one task had read; never a row of the other task.
    assert 0 <= again <= 400
    assert all(values.count(n) == 1 for n in range(500))
    assert "kprod wrote rows=1000 " in done.stderr
