"""``python -m bench``: ours and the peers on one real broker, in turn, as a table.

Brokers keep their logs in ``--logs``: in memory where there is a file system for that, because the
figures are to tell clients apart, not the pages of a disk (a new topic of 1000 partitions cost one
broker 30 s of page faults in its indexes' files, whoever wrote to it).

Each engine setting runs ``--rounds`` rounds; in a round every contender runs once, in turn, so
that a slow minute of the machine hits all. Quoted are medians and the median of the ratios round by
round, with its interval. The table is printed and put at the head of bench/HISTORY.md.

Parts that run only when they are named: ``against`` runs the package of ``--commit`` and the
present one in turn, in the engine's settings and as a Spark job of 100 B values; ``partitions``
runs 100, 1000 and 5000 partitions on one broker and on three; ``jobs`` runs small jobs beside a
Python sink that does nothing; ``send`` runs a record a call, beside clients that know nothing else.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench.certificates import broker_certificate
from bench.engines import (
    CONFLUENT,
    JAVA,
    OURS,
    ROOT,
    SENDING,
    Engine,
    PacedChild,
    Run,
    Setting,
    Topics,
    child,
    ours,
)
from bench.peers import connector_jars
from bench.spark_job import delete
from bench.statistics import Ratio, median, ratio
from spark_kafka_sink.local_kafka import KafkaCluster

PARTS = ["engine", "tls", "spark", "microbatch", "exactly-once", "memory"]
HISTORY = ROOT / "bench" / "HISTORY.md"
#: Linux keeps its files in memory.
MEMORY = "/dev/shm"

ENGINE_SETTINGS = (
    Setting("100 B values, 12 partitions", 12, 100, 4_000_000, 500_000),
    Setting("1 KB values, 12 partitions", 12, 1024, 600_000, 100_000),
    Setting("100 B values, 1000 partitions", 1000, 100, 3_000_000, 500_000),
)
SEND_SETTING = Setting("send(), 100 B values, 12 partitions", 12, 100, 200_000, 40_000)
PARTITION_SETTINGS = tuple(
    Setting(f"{count} partitions, {size}", count, value_size, rows, rows // 5)
    for size, value_size, rows in (("100 B", 100, 2_000_000), ("1 KB", 1024, 400_000))
    for count in (100, 1000, 5000)
)
# name, value size, codec, rows, whether they reach the workers over a Unix socket
SPARK_SETTINGS = (
    ("100 B values", 100, "none", 3_000_000, False),
    ("100 B values, lz4", 100, "lz4", 3_000_000, False),
    ("1 KB values", 1024, "none", 1_000_000, False),
    ("100 B values, Unix socket", 100, "none", 3_000_000, True),
    ("1 KB values, Unix socket", 1024, "none", 1_000_000, True),
)


class Bench:
    """One run: a broker, a console, the rows of the table."""

    def __init__(self, bootstrap: str, rounds: int, only: str = "") -> None:
        self.bootstrap = bootstrap
        self.rounds = rounds
        self.only = only
        self.topics = Topics(bootstrap)
        self.lines: list[tuple[str, str, str, str]] = []

    def engine(self) -> None:
        for setting in ENGINE_SETTINGS:
            if self.only in setting.name:
                self._side_by_side(self.topics, setting, JAVA, CONFLUENT)

    def send(self) -> None:
        """A record a call, with callbacks; futures where a client has them."""
        found: dict[Engine, list[Run]] = {engine: [] for engine in SENDING}
        for _ in range(self.rounds):
            for engine, runs in found.items():
                runs.append(self.topics.run(SEND_SETTING, engine.run))
            last = (f"{runs[-1].cpu_us:.1f} us" for runs in found.values())
            self.say(f"{SEND_SETTING.name}: {' / '.join(last)}")
        mine, *theirs = SENDING
        for peer in theirs:
            self._add_engine(SEND_SETTING.name, peer.name, found[mine], found[peer])

    def partitions(self) -> None:
        """How the cost grows with partitions, and with leaders."""
        for brokers in (1, 3):
            # A deleted topic's files stay open for a minute: those of 5000 partitions are more than
            # some machines let a process open.
            overrides = {"log.segment.delete.delay.ms": "1000"}
            with KafkaCluster(brokers, heap="768m", overrides=overrides) as kafka:
                for setting in PARTITION_SETTINGS:
                    name = f"{setting.name}, {brokers} broker{'s' * (brokers > 1)}"
                    if self.only in name:
                        self._side_by_side(
                            Topics(kafka.bootstrap), replace(setting, name=name), CONFLUENT
                        )

    def _side_by_side(self, topics: Topics, setting: Setting, *peers: Engine) -> None:
        found: dict[Engine, list[Run]] = {engine: [] for engine in (OURS, *peers)}
        for _ in range(self.rounds):
            for engine, runs in found.items():
                runs.append(topics.run(setting, engine.run))
            last = (f"{runs[-1].rows_per_second:,.0f}" for runs in found.values())
            self.say(f"{setting.name}: {' / '.join(last)}")
        mine = found[OURS]
        for peer in peers:
            self._add_engine(setting.name, peer.name, mine, found[peer])
        queue, peak = (median([getattr(r, n) for r in mine]) for n in ("queue_ms", "peak_mib"))
        self.lines.append(
            (
                f"engine, {setting.name}",
                f"{peak:.0f} MiB peak",
                "-",
                f"a batch waits {queue:.1f} ms",
            )
        )

    def _add_engine(self, name: str, peer: str, ours: list[Run], theirs: list[Run]) -> None:
        for unit, figure in (("rows/s", "rows_per_second"), ("us CPU a row", "cpu_us")):
            mine, other = ([getattr(run, figure) for run in runs] for runs in (ours, theirs))
            self.add(f"engine, {name}", unit, peer, mine, other)

    def tls(self) -> None:
        """Ours over TLS next to ours without, on one broker."""
        setting = ENGINE_SETTINGS[0]
        with tempfile.TemporaryDirectory() as directory:
            properties, certificate = broker_certificate(Path(directory))
            listeners = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"}
            with KafkaCluster(
                full_jvm=True, heap="1g", listeners=listeners, overrides=properties
            ) as kafka:
                options = ("security.protocol=SSL", f"ssl.truststore.location={certificate}")

                def secure(_: str, topic: str, setting: Setting) -> Run:
                    return ours(kafka.bootstrap_of("SSL"), topic, setting, options=options)

                topics = Topics(kafka.bootstrap_of("PLAINTEXT"))
                runs: tuple[list[Run], list[Run]] = [], []
                for _ in range(self.rounds):
                    runs[0].append(topics.run(setting, secure))
                    runs[1].append(topics.run(setting, ours))
        self._add_engine(f"{setting.name}, over TLS", "itself, plaintext", *runs)

    def spark(self) -> None:
        for name, size, codec, rows, unix_socket in SPARK_SETTINGS:
            if self.only not in name:
                continue
            results = child(
                "bench.spark_job", "--bootstrap", self.bootstrap, "--jars", connector_jars(),
                "--rows", str(rows), "--value-size", str(size), "--codec", codec,
                "--rounds", str(self.rounds), *(("--unix-socket",) * unix_socket), timeout=3600,
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
            trees = {"new": ROOT, "old": package_of(commit, Path(directory))}
            for setting in ENGINE_SETTINGS:
                if self.only in setting.name:
                    self._engine_against(commit, setting, trees)
            name, size, codec, rows, _ = SPARK_SETTINGS[0]
            if self.only in f"Spark, {name}":
                self._spark_against(commit, name, trees, size, codec, rows)

    def _engine_against(self, commit: str, setting: Setting, trees: dict[str, Path]) -> None:
        runs: dict[str, list[Run]] = {"new": [], "old": []}
        for number in range(self.rounds):
            for which in ("new", "old") if number % 2 else ("old", "new"):
                runs[which].append(self.topics.run(setting, partial(ours, tree=trees[which])))
            new, old = (runs[which][-1].cpu_us for which in ("new", "old"))
            self.say(f"{setting.name}: CPU {new:.2f} / {old:.2f} us a row")
        self._add_engine(setting.name, commit, runs["new"], runs["old"])

    def _spark_against(
        self, commit: str, name: str, trees: dict[str, Path], size: int, codec: str, rows: int
    ) -> None:
        """Two sessions, both warm; their rounds alternate."""
        with ExitStack() as stack:
            sessions = {
                which: stack.enter_context(
                    PacedChild(
                        "bench.spark_job", "--bootstrap", self.bootstrap, "--jars", "",
                        "--rows", str(rows), "--value-size", str(size), "--codec", codec,
                        "--rounds", str(self.rounds), "--contenders", "kprod", "--paced",
                        tree=tree,
                    )
                )
                for which, tree in trees.items()
            }  # fmt: skip
            found: dict[str, dict[str, list[float]]] = {}
            for number in range(self.rounds + 1):
                for which in ("new", "old") if number % 2 else ("old", "new"):
                    found[which] = sessions[which].round()["kprod"]  # type: ignore[assignment]
                new, old = (found[which]["cpu"][-1:] for which in ("new", "old"))
                self.say(f"Spark, {name}: {new} / {old} s")
        for figure, unit in (("cpu", "client CPU s"), ("rows_per_second", "rows/s")):
            self.add(f"Spark, {name}", unit, commit, found["new"][figure], found["old"][figure])

    def microbatch(self) -> None:
        results = child("bench.microbatch", "--bootstrap", self.bootstrap, "--rounds", "5")
        ours = [median(r) for r in results["kprod"]]  # type: ignore[attr-defined]
        theirs = [median(r) for r in results["nothing"]]  # type: ignore[attr-defined]
        self.add_difference(
            "micro-batch of 1000 rows, p50", "Python sink that does nothing", ours, theirs
        )

    def jobs(self) -> None:
        """Jobs of 1000 rows, and of none, into a topic that is there."""
        found = child(
            "bench.small_jobs", "--bootstrap", self.bootstrap, "--rounds", str(self.rounds)
        )
        for rows, times in found.items():
            milliseconds: dict[str, list[float]] = times  # type: ignore[assignment]
            self.add_difference(
                f"job of {rows} rows",
                "Python sink that does nothing",
                milliseconds["kprod"],
                milliseconds["nothing"],
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
        config = {"retention.bytes": str(2**30 // 12), "segment.bytes": str(2**24)}
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_topics([NewTopic(topic, 12, 1, config=config)])[topic].result(30)
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
        delete(admin, topic)

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


def publish(lines: list[tuple[str, str, str, str]], parts: str, logs: str) -> None:
    table = Table(title="kprod next to its peers")
    for head in ("what", "kprod", "peer", "kprod / peer"):
        table.add_column(head)
    for line in lines:
        table.add_row(*line)
    Console(width=150).print(table)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    text = [f"## {today}, commit {commit()} ({parts})", ""]
    text.append(
        f"Python {platform.python_version()}, {os.cpu_count()} cores shared by client and broker, "
        f"its logs {'in memory' if logs == MEMORY else 'on a disk'}; "
        "medians, and the median of the ratios round by round with its 96 % interval."
    )
    text += ["", "| what | kprod | peer | kprod / peer |", "|---|---|---|---|"]
    text += [f"| {' | '.join(line)} |" for line in lines]
    head, _, rest = HISTORY.read_text().partition("\n## ")
    body = f"\n## {rest}" if rest else ""
    HISTORY.write_text(head.rstrip("\n") + "\n\n" + "\n".join(text) + "\n" + body)


def _has_memory() -> bool:
    """There is room for the logs of the largest part (30 M rows of 100 B, twice)."""
    return Path(MEMORY).is_dir() and shutil.disk_usage(MEMORY).free > 12 * 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="settings whose name holds this text")
    parser.add_argument("--commit", default="HEAD~1", help="for the part against: the older one")
    parser.add_argument("--gigabytes", type=float, default=20.0)
    parser.add_argument(
        "--logs",
        default=MEMORY if _has_memory() else tempfile.gettempdir(),
        help="the directory of the brokers' logs: in memory, up to 12 GB (%(default)s)",
    )
    args = parser.parse_args()
    tempfile.tempdir = args.logs  # of this process, which starts the brokers
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
                    "send": bench.send,
                    "partitions": bench.partitions,
                    "jobs": bench.jobs,
                    "tls": bench.tls,
                    "spark": bench.spark,
                    "microbatch": bench.microbatch,
                    "exactly-once": bench.exactly_once,
                }[part]()
    publish(bench.lines, ", ".join(args.parts), args.logs)


if __name__ == "__main__":
    main()
