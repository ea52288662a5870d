"""A Spark application that writes with secrets, well and badly, and shows all that it can show.

Run by ``test_canary.py``: ``python -m tests.security.canary_job SPEC``. SPEC is a JSON file with
references only; what this program can see of a secret it has from where a user's would be.
"""

from __future__ import annotations

import json
import pickle
import sys
import traceback
import urllib.request
from pathlib import Path

import psutil

from tests.security.debug_job import session_at_debug


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text())
    out = Path(spec["out"])
    spark = session_at_debug(spec, out / "logs")
    # Not the root: generated code at DEBUG takes longer than all the rest.
    configurator = spark._jvm.org.apache.logging.log4j.core.config.Configurator
    debug = spark._jvm.org.apache.logging.log4j.Level.DEBUG
    for name in ("sql.execution.python", "api.python", "sql.execution.streaming", "sql.connector",
                 "sql.execution.datasources.v2", "scheduler"):  # fmt: skip
        configurator.setLevel(f"org.apache.spark.{name}", debug)
    rows = spark.range(20).selectExpr("cast(id AS string) AS value")
    (out / "source").mkdir()
    lines = "".join(f'{{"value": "{i}"}}\n' for i in range(20))
    (out / "source" / "rows.json").write_text(lines)
    outcomes = {}
    for row in spec["rows"]:
        if row["kind"] != "pickled":
            outcomes[row["name"]] = write(spark, rows, row, out)
    good = [row for row in spec["rows"] if not row["says"]]
    pickles(spark, rows.schema, good, out)
    outcomes |= {row["name"]: "" for row in good if row["kind"] == "pickled"}
    rest(spark, out)
    operators(spark, spec["rows"], out)
    (out / "outcomes.json").write_text(json.dumps(outcomes))
    spark.stop()


def write(spark, rows, row, out: Path) -> str:
    """ "" when it arrived, else the error's first lines. Everything shown goes to files."""
    shown = out / "shown" / row["name"]
    shown.mkdir(parents=True)
    query = None
    try:
        if row["kind"] == "producer":
            produce(row["options"])
        elif row["kind"] == "batch":
            (
                rows.write.format("kprod")
                .options(**row["options"])
                .option("reportPath", f"{shown}/reports/")
                .save()
            )
        else:
            query = (
                spark.readStream.schema("value string")
                .json(str(out / "source"))
                .writeStream.format("kprod")
                .options(**row["options"])
                .option("reportPath", f"{shown}/reports/")
                .option("checkpointLocation", str(out / "checkpoints" / row["name"]))
                .trigger(availableNow=True)
                .start()
            )
            try:
                query.awaitTermination()
            finally:
                (shown / "explained").write_text(explained(query))
                (shown / "progress").write_text(repr(query.lastProgress))
    except Exception as error:
        chain = "".join(traceback.format_exception(error))
        java = getattr(error, "_origin", None)
        stack = "" if java is None else str(java.getStackTrace())
        (shown / "exception").write_text(f"{chain}\n{error!r}\n{error.args!r}\n{stack}")
        return f"{error}"[:3000]
    finally:
        if row["kind"] != "producer":
            processes(out, row["name"])
    return ""


def explained(query) -> str:
    """What ``query.explain(True)`` prints."""
    return query._jsq.explainInternal(True)


def produce(options: dict[str, str]) -> None:
    """One row through a producer of this process: what the sink's tasks do, without the tasks."""
    from spark_kafka_sink import KafkaProducer, ProducerRecord

    names = {n.removeprefix("kafka."): v for n, v in options.items() if n != "topic"}
    producer = KafkaProducer(names)
    try:
        producer.send(ProducerRecord(options["topic"], b"row")).result(60)
    finally:
        producer.close(0)


def processes(out: Path, name: str) -> None:
    """Command line and environment of this process and of all that it started."""
    me = psutil.Process()
    found = [me, *me.children(recursive=True)]
    for process in found:
        try:
            environment, command = process.environ(), process.cmdline()
            path = out / "processes" / f"{name} {process.pid} {process.name()}"
        except psutil.Error:
            continue
        # The one place where those secrets have to be, under their names and no other.
        shown = {n: v for n, v in environment.items() if not n.startswith("KPROD_CANARY")}
        lines = [*command, *(f"{n}={v}" for n, v in shown.items())]
        path.write_text("\n".join(lines))


def pickles(spark, schema, rows, out: Path) -> None:
    """What travels: the writer with its plan, the data source, and the message of a task."""
    from pyspark import cloudpickle
    from pyspark.sql.datasource import CaseInsensitiveDict

    from spark_kafka_sink.datasource.source import KprodDataSource

    writers = []
    for row in rows:
        source = KprodDataSource(CaseInsensitiveDict(row["options"]))
        writer = source.writer(schema, overwrite=False)
        stream = source.streamWriter(schema, overwrite=False)
        again = pickle.loads(cloudpickle.dumps(source))
        travelling = {"writer": writer, "stream writer": stream, "source": source, "again": again}
        for name, thing in travelling.items():
            place = out / "pickles" / f"{row['name']} {name}"
            place.write_bytes(cloudpickle.dumps(thing))
            shown = f"{thing!r} {getattr(thing, 'plan', '')!r}"
            place.with_name(f"{place.name} repr").write_text(shown)
        writers.append(cloudpickle.dumps(writer))
    messages = spark.sparkContext.parallelize(writers, 1).map(write_one_row).collect()
    for row, message in zip(rows, messages, strict=True):
        (out / "pickles" / f"{row['name']} message").write_bytes(message)


def write_one_row(writer: bytes) -> bytes:
    """In a task: the pickled commit message of a pickled writer."""
    import pyarrow as pa
    from pyspark import cloudpickle

    batch = pa.record_batch({"value": pa.array(["row"])})
    return cloudpickle.dumps(pickle.loads(writer).write(iter([batch])))


def rest(spark, out: Path) -> None:
    """What the UI's REST interface says of this application."""
    base = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
    for path in (
        "", "jobs", "stages?details=true", "executors", "allexecutors", "environment",
        "sql?details=true&planDescription=true&length=1000", "storage/rdd", "logs",
    ):  # fmt: skip
        try:
            with urllib.request.urlopen(f"{base}/{path}", timeout=30) as answer:
                content = answer.read()
        except OSError as error:
            content = f"{error}".encode()
        (out / "rest" / (path.partition("?")[0].replace("/", "-") or "app")).write_bytes(content)


def operators(spark, rows, out: Path) -> None:
    """What an operator is shown of these writes: by ``kprod``, by metrics, by ``last_report``."""
    from prometheus_client import CollectorRegistry, generate_latest
    from typer.testing import CliRunner

    from spark_kafka_sink import KprodListener, last_report
    from spark_kafka_sink.cli.app import app
    from spark_kafka_sink.datasource.monitoring.prometheus_metrics import PrometheusMetrics

    shown = out / "shown" / "kprod"
    shown.mkdir()

    def run(name: str, *arguments: str) -> None:
        done = CliRunner().invoke(app, arguments)
        (shown / name).write_text(f"{done.output}\n{done.exception!r}")

    for row in (row for row in rows if row["kind"] in ("batch", "stream")):
        file = out.parent / f"{row['name']}.properties"  # as the user's own: it may hold a secret
        file.write_text(
            "".join(
                f"{n.removeprefix('kafka.')}={v}\n"
                for n, v in row["options"].items()
                if n.startswith("kafka.")
            )
        )
        run(f"{row['name']} check", "check", "-c", str(file), "--timeout", "5", "-t", "t")
        run(f"{row['name']} json", "check", "-c", str(file), "--timeout", "5", "--json")
        run(f"{row['name']} options", "options", "--effective", "-c", str(file))
        run(f"{row['name']} list", "txn", "list", "-c", str(file), "--timeout", "5")
    folders = [folder for folder in (out / "shown").glob("*/reports") if any(folder.iterdir())]
    for folder in folders:
        run(f"{folder.parent.name} show", "report", "show", str(folder))
        run(f"{folder.parent.name} tail", "report", "tail", str(folder))
    registry = CollectorRegistry()
    reports = [json.loads(one.read_text()) for folder in folders for one in folder.iterdir()]
    KprodListener(PrometheusMetrics(registry), reports=lambda: reports).read_reports()
    (shown / "metrics").write_bytes(generate_latest(registry))
    (shown / "last report").write_text(repr(last_report(spark)))


if __name__ == "__main__":
    main(sys.argv[1])
