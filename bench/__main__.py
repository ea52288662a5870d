"""``python -m bench``: ours and the peers on one real broker, in turn, as a table.

Each engine setting runs ``--rounds`` rounds; in a round every contender runs once, in turn, so
that a slow minute of the machine hits all. Quoted are medians and the median of the ratios round by
round, with its interval. The table is printed and put at the head of bench/HISTORY.md.

The part ``against`` runs the package of ``--commit`` and the present one in turn, in the engine's
settings and as a Spark job of 100 B values.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from bench.certificates import broker_certificate
from bench.peers import classpath, connector_jars
from bench.spark_job import check, create, delete, touch
from bench.statistics import Ratio, median, ratio
from spark_kafka_sink.local_kafka import KafkaCluster

PARTS = ["engine", "tls", "spark", "microbatch", "exactly-once", "memory"]  # "against" when asked
ROOT = Path(__file__).parent.parent
HISTORY = ROOT / "bench" / "HISTORY.md"

# name, partitions, value size, rows, warm-up rows
ENGINE_SETTINGS = (
    ("100 B values, 12 partitions", 12, 100, 4_000_000, 500_000),
    ("1 KB values, 12 partitions", 12, 1024, 600_000, 100_000),
    ("100 B values, 1000 partitions", 1000, 100, 3_000_000, 500_000),
)
# name, value size, codec, rows
SPARK_SETTINGS = (
    ("100 B values", 100, "none", 3_000_000),
    ("100 B values, lz4", 100, "lz4", 3_000_000),
    ("1 KB values", 1024, "none", 1_000_000),
)


def child(*command: str, timeout: int = 1800, tree: Path = ROOT) -> dict[str, object]:
    """Run a Python module of the bench, with the package in ``tree``; its last line of output is
    JSON.
    """
    done = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": str(tree)},
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
        check=True,
    )
    result: dict[str, object] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


def java_performance(bootstrap: str, topic: str, rows: int, warmup: int, size: int) -> float:
    """Kafka's own ProducerPerformance at its defaults (acks=all, idempotent): records a second.

    It sends null keys, which costs it less than hashing keys would.
    """
    done = subprocess.run(
        [
            "java", "-Xms1g", "-Xmx1g", "-cp", classpath(),
            "org.apache.kafka.tools.ProducerPerformance",
            "--bootstrap-server", bootstrap, "--topic", topic,
            "--num-records", str(rows + warmup), "--warmup-records", str(warmup),
            "--record-size", str(size), "--throughput", "-1",
            "--command-property", "acks=all",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600, check=True,
    )  # fmt: skip
    rates = re.findall(r"([\d.]+) records/sec", done.stdout.strip().splitlines()[-1])
    return float(rates[-1])


class Bench:
    """One run: a broker, a console, the rows of the table."""

    def __init__(self, bootstrap: str, rounds: int, only: str = "") -> None:
        self.bootstrap = bootstrap
        self.rounds = rounds
        self.only = only
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.lines: list[tuple[str, str, str, str]] = []
        self.number = 0

    def topic(self, partitions: int) -> str:
        self.number += 1
        name = f"bench-{os.getpid()}-{self.number}"
        create(self.admin, name, partitions)
        touch(self.bootstrap, name, partitions)
        return name

    def engine(self) -> None:
        for name, partitions, size, rows, warmup in ENGINE_SETTINGS:
            if self.only not in name:
                continue
            ours, java, confluent = [], [], []
            for _ in range(self.rounds):
                topic = self.topic(partitions)
                result = child(
                    "bench.engine_ours", "--bootstrap", self.bootstrap, "--topic", topic,
                    "--rows", str(rows), "--warmup", str(warmup), "--value-size", str(size),
                )  # fmt: skip
                ours.append(float(str(result["rows_per_second"])))
                check(self.bootstrap, topic, rows + warmup + partitions, partitions)
                delete(self.admin, topic)
                topic = self.topic(partitions)
                java.append(java_performance(self.bootstrap, topic, rows, warmup, size))
                delete(self.admin, topic)
                topic = self.topic(partitions)
                result = child(
                    "bench.engine_confluent", "--bootstrap", self.bootstrap, "--topic", topic,
                    "--rows", str(rows), "--warmup", str(warmup), "--value-size", str(size),
                )  # fmt: skip
                confluent.append(float(str(result["rows_per_second"])))
                delete(self.admin, topic)
                self.say(f"{name}: {ours[-1]:,.0f} / {java[-1]:,.0f} / {confluent[-1]:,.0f}")
            self.add(f"engine, {name}", "rows/s", "Java ProducerPerformance", ours, java)
            self.add(f"engine, {name}", "rows/s", "confluent-kafka produce()", ours, confluent)

    def tls(self) -> None:
        """Ours over TLS next to ours without, on one broker, and confluent-kafka over TLS."""
        name, partitions, size, rows, warmup = ENGINE_SETTINGS[0]
        with tempfile.TemporaryDirectory() as directory:
            properties, certificate = broker_certificate(Path(directory))
            listeners = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"}
            with KafkaCluster(
                full_jvm=True, heap="1g", listeners=listeners, overrides=properties
            ) as kafka:
                bench = Bench(kafka.bootstrap, self.rounds)
                secure: tuple[str, ...] = ("--option", "security.protocol=SSL")
                secure += ("--option", f"ssl.truststore.location={certificate}")
                rates: dict[str, list[float]] = {"TLS": [], "PLAINTEXT": []}
                for _ in range(self.rounds):
                    for listener, options in (("TLS", secure), ("PLAINTEXT", ())):
                        topic = bench.topic(partitions)
                        address = kafka.bootstrap_of("SSL" if options else "PLAINTEXT")
                        result = child(
                            "bench.engine_ours", "--bootstrap", address, "--topic", topic,
                            "--rows", str(rows), "--warmup", str(warmup),
                            "--value-size", str(size), *options,
                        )  # fmt: skip
                        rates[listener].append(float(str(result["rows_per_second"])))
                        check(kafka.bootstrap, topic, rows + warmup + partitions, partitions)
                        delete(bench.admin, topic)
        self.add(
            f"engine over TLS, {name}", "rows/s", "itself, plaintext", rates["TLS"],
            rates["PLAINTEXT"],
        )  # fmt: skip

    def spark(self) -> None:
        for name, size, codec, rows in SPARK_SETTINGS:
            if self.only not in name:
                continue
            results = child(
                "bench.spark_job", "--bootstrap", self.bootstrap, "--jars", connector_jars(),
                "--rows", str(rows), "--value-size", str(size), "--codec", codec,
                "--rounds", str(self.rounds), timeout=3600,
            )  # fmt: skip
            rate = {k: v["rows_per_second"] for k, v in results.items()}  # type: ignore[index]
            cpu = {k: v["cpu"] for k, v in results.items()}  # type: ignore[index]
            for peer in ("kafka", "kafka tuned", "noop"):
                label = {"kafka": "Spark's sink, defaults", "kafka tuned": "Spark's sink, tuned"}
                self.add(
                    f"Spark, {name}", "rows/s", label.get(peer, peer), rate["kprod"], rate[peer]
                )
            self.add(
                f"Spark, {name}",
                "client CPU s",
                "Spark's sink, defaults",
                cpu["kprod"],
                cpu["kafka"],
            )
            self.add(
                f"Spark, {name}",
                "client CPU s",
                "Spark's sink, tuned",
                cpu["kprod"],
                cpu["kafka tuned"],
            )
            # The least that any Python sink costs: Spark turns rows into Arrow and hands them over.
            self.add(
                f"Spark, {name}: a Python sink that does nothing",
                "client CPU s",
                "Spark's sink, defaults",
                cpu["nothing"],
                cpu["kafka"],
            )

    def against(self, commit: str) -> None:
        """The package of ``commit`` next to the present one; the bench is the present one's."""
        with tempfile.TemporaryDirectory() as directory:
            old = package_of(commit, Path(directory))
            trees = {"new": ROOT, "old": old}
            for name, partitions, size, rows, warmup in ENGINE_SETTINGS:
                if self.only in name:
                    self._engine_against(commit, name, trees, partitions, size, rows, warmup)
            name, size, codec, rows = SPARK_SETTINGS[0]
            if self.only in f"Spark, {name}":
                self._spark_against(commit, name, trees, size, codec, rows)

    def _engine_against(
        self,
        commit: str,
        name: str,
        trees: dict[str, Path],
        partitions: int,
        size: int,
        rows: int,
        warmup: int,
    ) -> None:
        rates: dict[str, list[float]] = {"new": [], "old": []}
        cpu: dict[str, list[float]] = {"new": [], "old": []}
        for number in range(self.rounds):
            for which in ("new", "old") if number % 2 else ("old", "new"):
                topic = self.topic(partitions)
                result = child(
                    "bench.engine_ours", "--bootstrap", self.bootstrap, "--topic", topic,
                    "--rows", str(rows), "--warmup", str(warmup), "--value-size", str(size),
                    tree=trees[which],
                )  # fmt: skip
                rates[which].append(float(str(result["rows_per_second"])))
                cpu[which].append(1e6 * float(str(result["cpu"])) / rows)
                check(self.bootstrap, topic, rows + warmup + partitions, partitions)
                delete(self.admin, topic)
            self.say(f"{name}: CPU {cpu['new'][-1]:.2f} / {cpu['old'][-1]:.2f} us a row")
        self.add(f"engine, {name}", "us CPU a row", commit, cpu["new"], cpu["old"])
        self.add(f"engine, {name}", "rows/s", commit, rates["new"], rates["old"])

    def _spark_against(
        self, commit: str, name: str, trees: dict[str, Path], size: int, codec: str, rows: int
    ) -> None:
        """Sessions in turn, three rounds in each."""
        found: dict[str, dict[str, list[float]]] = {
            which: {"rows_per_second": [], "cpu": []} for which in trees
        }
        for number in range(max(1, self.rounds // 3)):
            for which in ("new", "old") if number % 2 else ("old", "new"):
                result = child(
                    "bench.spark_job", "--bootstrap", self.bootstrap, "--jars", "",
                    "--rows", str(rows), "--value-size", str(size), "--codec", codec,
                    "--rounds", "3", "--contenders", "kprod", timeout=3600, tree=trees[which],
                )  # fmt: skip
                for figure, values in found[which].items():
                    values.extend(result["kprod"][figure])  # type: ignore[index]
            self.say(f"Spark, {name}: {found['new']['cpu'][-3:]} / {found['old']['cpu'][-3:]} s")
        for figure, unit in (("cpu", "client CPU s"), ("rows_per_second", "rows/s")):
            self.add(f"Spark, {name}", unit, commit, found["new"][figure], found["old"][figure])

    def microbatch(self) -> None:
        results = child("bench.microbatch", "--bootstrap", self.bootstrap, "--rounds", "5")
        ours = [median(r) for r in results["kprod"]]  # type: ignore[attr-defined]
        theirs = [median(r) for r in results["nothing"]]  # type: ignore[attr-defined]
        self.add_difference(
            "micro-batch of 1000 rows, p50", "Python sink that does nothing", ours, theirs
        )

    def exactly_once(self) -> None:
        """Next to at-least-once, in one run; the driver's commit by itself."""
        found: dict[str, dict[str, list[float]]] = child(  # type: ignore[assignment]
            "bench.exactly_once", "--bootstrap", self.bootstrap, "--rounds", str(self.rounds),
            timeout=3600,
        )  # fmt: skip
        for count, seconds in found["commits"].items():
            spread = f"{min(seconds):.2f} to {max(seconds):.2f}, n={len(seconds)}"
            self.lines.append(
                (
                    f"exactly-once: the driver commits {count} transactions",
                    f"{median(seconds):.2f} s",
                    "-",
                    spread,
                )
            )
        large = found["large"]
        self.add(
            "exactly-once: job of 30 M rows, 1 / s",
            "jobs/s",
            "at-least-once",
            [1 / s for s in large["exactly-once"]],
            [1 / s for s in large["at-least-once"]],
        )
        for what, name in (("small", "job of 1000 rows"), ("micro-batches", "micro-batch, p50")):
            runs = {
                guarantee: [1000 * s for s in values]
                if what == "small"
                else [median(v) for v in values]  # type: ignore[arg-type]
                for guarantee, values in found[what].items()
            }
            self.add_difference(
                f"exactly-once: {name}",
                "at-least-once",
                runs["exactly-once"],
                runs["at-least-once"],
            )

    def add_difference(self, what: str, peer: str, ours: list[float], theirs: list[float]) -> None:
        """Milliseconds, round by round."""
        differences = sorted(a - b for a, b in zip(ours, theirs, strict=True))
        spread = f"{differences[0]:+.0f} to {differences[-1]:+.0f}, n={len(differences)}"
        self.lines.append(
            (
                what,
                f"{median(ours):.0f} ms",
                f"{median(theirs):.0f} ms ({peer})",
                f"{median(differences):+.0f} ms ({spread})",
            )
        )

    def memory(self, gigabytes: float) -> None:
        topic = f"bench-memory-{os.getpid()}"
        from confluent_kafka.admin import NewTopic

        config = {"retention.bytes": str(2**30 // 12), "segment.bytes": str(2**24)}
        self.admin.create_topics([NewTopic(topic, 12, 1, config=config)])[topic].result(30)
        result = child(
            "bench.memory", "--bootstrap", self.bootstrap, "--topic", topic,
            "--gigabytes", str(gigabytes),
        )  # fmt: skip
        mib = {
            k: int(str(result[k])) / 2**20 for k in ("base", "peak", "bound", "peak_of_second_half")
        }
        self.lines.append(
            (
                f"memory, {gigabytes:g} GB through one task",
                f"peak RSS {mib['peak']:.0f} MiB",
                f"bound {mib['bound']:.0f} MiB (base {mib['base']:.0f} + 32 + Arrow + 64)",
                f"second half's peak {mib['peak_of_second_half']:.0f} MiB",
            )
        )
        delete(self.admin, topic)

    def add(self, what: str, unit: str, peer: str, ours: list[float], theirs: list[float]) -> None:
        quotient: Ratio = ratio(ours, theirs)
        shape = "{:,.0f} {}" if unit == "rows/s" else "{:,.2f} {}"
        self.lines.append(
            (
                what,
                shape.format(median(ours), unit),
                f"{shape.format(median(theirs), unit)} ({peer})",
                str(quotient),
            )
        )

    def say(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "no commit"


def package_of(commit: str, directory: Path) -> Path:
    """A tree in ``directory``: the package as ``commit`` has it, the bench as it is here."""
    archive = subprocess.run(
        ["git", "archive", commit, "spark_kafka_sink"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    shutil.copytree(ROOT / "bench", directory / "bench")
    return directory


def publish(lines: list[tuple[str, str, str, str]], parts: str) -> None:
    table = Table(title="kprod next to its peers")
    for head in ("what", "kprod", "peer", "kprod / peer"):
        table.add_column(head)
    for line in lines:
        table.add_row(*line)
    Console(width=150).print(table)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    text = [f"## {today}, commit {commit()} ({parts})", ""]
    text.append(
        f"Python {platform.python_version()}, {os.cpu_count()} cores shared by client and broker; "
        "medians, and the median of the ratios round by round with its 96 % interval."
    )
    text += ["", "| what | kprod | peer | kprod / peer |", "|---|---|---|---|"]
    text += [f"| {' | '.join(line)} |" for line in lines]
    head, _, rest = HISTORY.read_text().partition("\n## ")
    body = f"\n## {rest}" if rest else ""
    HISTORY.write_text(head.rstrip("\n") + "\n\n" + "\n".join(text) + "\n" + body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="settings whose name holds this text")
    parser.add_argument("--commit", default="HEAD~1", help="for the part against: the older one")
    parser.add_argument("--gigabytes", type=float, default=20.0)
    args = parser.parse_args()
    with KafkaCluster(full_jvm=True, heap="1g") as kafka:
        bench = Bench(kafka.bootstrap, args.rounds, args.only)
        for part in args.parts:
            if part == "memory":
                bench.memory(args.gigabytes)
            elif part == "against":
                bench.against(args.commit)
            else:
                {
                    "engine": bench.engine,
                    "tls": bench.tls,
                    "spark": bench.spark,
                    "microbatch": bench.microbatch,
                    "exactly-once": bench.exactly_once,
                }[part]()
    publish(bench.lines, ", ".join(args.parts))


if __name__ == "__main__":
    main()
