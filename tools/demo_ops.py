"""``make demo-ops``: a stream that is watched. Three Kafka nodes, Prometheus with the alert rules,
and a stream that writes exactly once, with ``KprodListener`` and its exporter; all on loopback.

    python tools/demo_ops.py                        until Ctrl-C
    python tools/demo_ops.py --seconds 150 --kill-broker --picture docs/monitoring.svg

Prometheus is taken from the machine (Debian's package ``prometheus``); without it the exporter's
address is all there is. ``--kill-broker`` kills one of the nodes for a while. ``--picture`` draws
the dashboard's panels from what Prometheus has in the end (``dashboard_picture.py``).
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import demo_stream
import prometheus_client
from confluent_kafka.admin import AdminClient, NewTopic

from spark_kafka_sink.local_kafka import KafkaCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf/monitoring"
KILLED_NODE = 2


class Prometheus:
    """A Prometheus that scrapes one exporter on this machine every second."""

    def __init__(self, folder: Path, exporter: int, port: int) -> None:
        self.address = f"127.0.0.1:{port or _free_port()}"
        file = folder / "prometheus.yml"
        file.write_text(
            (CONF / "prometheus.yml")
            .read_text(encoding="utf-8")
            .replace("stream:9464", f"127.0.0.1:{exporter}")
            .replace("kprod-alerts.yml", str(CONF / "kprod-alerts.yml"))
        )
        self._log = (folder / "prometheus.log").open("w+")
        self._process = subprocess.Popen(
            [
                *("prometheus", "--config.file", str(file), "--log.level", "warn"),
                *("--storage.tsdb.path", str(folder / "prometheus")),
                *("--web.listen-address", self.address),
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    def get(self, path: str, **parameters: str | float) -> Any:  # noqa: ANN401 - JSON
        """What its HTTP API answers, without the envelope."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def value(self, expression: str) -> float | None:
        """The one value of an expression now; None when there is none (yet)."""
        if self._process.poll() is not None:
            self._log.seek(0)
            raise SystemExit(f"Prometheus ended: {self._log.read()}")
        try:
            found = self.get("query", query=expression)["result"]
        except OSError:  # it is not up yet
            return None
        return float(found[0]["value"][1]) if found else None

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        self._log.close()


class OpsDemo:
    """All of it, for as long as a ``with`` block lasts. ``spark``: a session that is there."""

    def __init__(
        self, spark: SparkSession | None = None, *, nodes: int = 3, port: int = 0, rate: int = 500
    ) -> None:
        self._stack = ExitStack()
        self._spark, self._nodes, self._port, self._rate = spark, nodes, port, rate

    def __enter__(self) -> Self:
        with self._stack:
            self._start()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kprod-ops-")))
        self.kafka = self._stack.enter_context(KafkaCluster(self._nodes))
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        topic = NewTopic(demo_stream.TOPIC, 6, self._nodes)
        admin.create_topics([topic])[demo_stream.TOPIC].result(30)
        if self._spark is None:
            self._spark = demo_stream.session()
            self._stack.callback(self._spark.stop)
        self.reports_path = folder / demo_stream.REPORTS
        registry = prometheus_client.CollectorRegistry()
        listener = demo_stream.listener(folder, registry)
        server, _ = prometheus_client.start_http_server(0, "127.0.0.1", registry)
        self._stack.callback(server.server_close)
        self._stack.callback(server.shutdown)
        self.exporter = server.server_port
        self._spark.streams.addListener(listener)
        self._stack.callback(self._spark.streams.removeListener, listener)
        self.prometheus: Prometheus | None = None
        if shutil.which("prometheus"):
            self.prometheus = Prometheus(folder, self.exporter, self._port)
            self._stack.callback(self.prometheus.close)
        self.query = demo_stream.start(self._spark, self.kafka.bootstrap, folder, self._rate)
        self._stack.callback(self.query.stop)

    def reports(self) -> list[dict[str, Any]]:
        """Those of all micro-batches so far."""
        if not self.reports_path.exists():
            return []
        return [json.loads(line) for line in self.reports_path.read_text().splitlines()]


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="A stream, its metrics and Prometheus.")
    parser.add_argument("--seconds", type=float, help="end after this time; default: Ctrl-C")
    parser.add_argument("--nodes", type=int, default=3, choices=(1, 3))
    parser.add_argument("--port", type=int, default=0, help="Prometheus' port; default: a free one")
    parser.add_argument("--kill-broker", action="store_true", help="one of three, for a while")
    parser.add_argument("--picture", type=Path, help="draw the dashboard (SVG) in the end")
    parsed = parser.parse_args(arguments)
    print("Starting Kafka, Spark and Prometheus ...")
    with OpsDemo(nodes=parsed.nodes, port=parsed.port) as ops:
        print(f"Kafka:      {ops.kafka.bootstrap}, topic {demo_stream.TOPIC}")
        print(f"Exporter:   http://127.0.0.1:{ops.exporter}/metrics")
        if ops.prometheus is None:
            print("Prometheus: not on this machine (Debian's package is prometheus)")
        else:
            print(f"Prometheus: http://{ops.prometheus.address}/alerts")
        begun = time.monotonic()
        try:
            _run(ops, parsed.seconds, kill=parsed.kill_broker and parsed.nodes == 3)
        except KeyboardInterrupt:
            print()
        if parsed.picture and ops.prometheus is not None:
            import dashboard_picture

            drawn = dashboard_picture.draw(ops.prometheus.get, time.monotonic() - begun)
            parsed.picture.write_text(drawn, encoding="utf-8")
            print(f"wrote {parsed.picture}")
    return 0


def _run(ops: OpsDemo, seconds: float | None, *, kill: bool) -> None:
    """Until the time is over or the query ends. The broker is dead for the middle fifth."""
    begun = time.monotonic()
    dead_from, dead_to = (0.4 * (seconds or 100), 0.6 * (seconds or 100))
    node, state = ops.kafka.node(KILLED_NODE), "alive"
    while seconds is None or time.monotonic() - begun < seconds:
        if ops.query.awaitTermination(1):
            return
        passed = time.monotonic() - begun
        if kill and state == "alive" and passed > dead_from:
            state = "dead"
            print(f"killing broker {KILLED_NODE}")
            node.kill()
        if state == "dead" and passed > dead_to:
            state = "back"
            print(f"starting broker {KILLED_NODE}")
            node.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
