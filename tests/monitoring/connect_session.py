"""A session of Spark Connect that is watched: interrupts, the bar, a listener, check.

Its arguments are the bootstrap servers, a directory and a topic; it prints a line of JSON with what
it saw of each.
"""

from __future__ import annotations

import io
import json
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_sink import KprodListener, last_report, register, show_progress
from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.checks.executor_checks import check
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from tests.waiting import wait_for

WAIT_S = 90


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Session:
    def __init__(self, bootstrap: str, directory: str, topic: str) -> None:
        self.spark = SparkSession.builder.getOrCreate()
        register(self.spark)
        self.home = Path(directory)
        self.topic = topic
        self.base = {"kafka.bootstrap.servers": bootstrap, "topic": topic}

    def interrupted(self, guarantee: str, *, by_tag: bool) -> dict[str, Any]:
        """A write that would take minutes, and is interrupted when rows of it are in the topic."""
        path = self.home / f"{guarantee}-{by_tag}.jsonl"
        given = self.base | {
            "deliveryGuarantee": guarantee, "transactionalIdPrefix": self.topic,
            "maxRecordsPerSecond": "50", "reportPath": str(path),
        }  # fmt: skip
        if guarantee != "exactly-once":
            del given["transactionalIdPrefix"]
        rows = self.spark.range(0, 20_000, 1, 2).selectExpr("cast(id AS string) AS value")
        said: list[str] = []
        bar = Terminal()

        def write() -> None:
            if by_tag:
                self.spark.addTag("mine")
            try:
                with show_progress(self.spark, file=bar):
                    rows.write.format("kprod").options(**given).mode("append").save()
            except Exception as error:
                said.append(str(error))

        writer = threading.Thread(target=write)
        before = self.rows_sent()
        writer.start()
        wait_for(lambda: self.rows_sent() > before, WAIT_S, "rows")
        wait_for(lambda: "of 2 tasks" in bar.getvalue(), WAIT_S, "the bar")
        if by_tag:
            self.spark.interruptTag("mine")
        else:
            self.spark.interruptAll()
        writer.join(WAIT_S)
        wait_for(lambda: path.exists() and path.read_text().endswith("\n"), WAIT_S, "the report")
        (line,) = path.read_text().splitlines()
        report = last_report(self.spark)
        same = report is not None and json.loads(report.json()) == json.loads(line)
        return {"report": json.loads(line), "error": said, "last_report": same}

    def rows_sent(self) -> int:
        """Committed or not."""
        with AdminClient(parse_sink_config(self.base).producer) as client:
            reader = PartitionReader(client, "", "")
            partitions = client.describe_topics((self.topic,)).topics[self.topic]
            ends = [
                reader.offset(one.tp, OffsetSpec.LATEST, client.deadline(30_000))
                for one in partitions
            ]
            return sum(ends)

    def query(self, name: str, **options: str) -> StreamingQuery:
        source = self.home / "source"
        source.mkdir(exist_ok=True)
        (source / "0.json").write_text('{"value":"a"}\n{"value":"b"}\n')
        rows = self.spark.readStream.schema("value string").json(str(source))
        given = self.base | {
            "checkpointLocation": str(self.home / name),
            "reportPath": str(self.home / "stream.jsonl"),
        }
        writer = rows.writeStream.format("kprod").queryName(name).options(**given | options)
        return writer.trigger(availableNow=True).start()

    def listened(self) -> dict[str, Any]:
        """Interrupts have left accumulators' values at the server: see docs/monitoring.md."""
        self.spark.range(1).collect()
        seen: list[tuple[str, list[str]]] = []
        ended: list[str] = []

        class Listener(KprodListener):
            def onQueryTerminated(self, event: Any) -> None:
                super().onQueryTerminated(event)
                ended.append(event.exception or "")

        listener = Listener(
            reports=str(self.home / "stream.jsonl"),
            on_batch=lambda progress, reports: seen.append(
                (str(progress["name"]), [str(one["outcome"]) for one in reports])
            ),
        )
        with warnings.catch_warnings(record=True) as told:
            self.spark.streams.addListener(listener)
            self.query("orders").awaitTermination()
            failing = self.query("large", **{"kafka.max.request.size": "50"})
            try:
                failing.awaitTermination()
            except Exception as error:
                failed = str(error)
            wait_for(lambda: len(ended) == 2, WAIT_S, "the events")
        self.spark.streams.removeListener(listener)
        warned = [str(one.message) for one in told if "listener" in str(one.message)]
        return {"seen": seen, "ended": ended, "failed": failed, "warned": warned}

    def checked(self, **options: str) -> list[tuple[str, str]]:
        """The rows that are not ok."""
        (host,) = check(self.spark, self.base | options)
        assert not host.driver
        return [(s.name, s.said) for s in host.steps if s.state in ("failed", "warning")]


def main() -> None:
    session = Session(*sys.argv[1:])
    told = {
        "all": session.interrupted("at-least-once", by_tag=False),
        "tag": session.interrupted("exactly-once", by_tag=True),
        "listened": session.listened(),
        "checked": session.checked(),
        "missing": session.checked(topic="no-such-topic"),
        "refused": session.checked(**{"kafka.bootstrap.servers": "127.0.0.1:1"}),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
