"""``python -m bench``: ours and the peers on one real broker, in turn, as a table.

Brokers keep their logs in ``--logs``: in memory where there is a file system for that, because the
figures are to tell clients apart, not the pages of a disk (a new topic of 1000 partitions cost one
broker 30 s of page faults in its indexes' files, whoever wrote to it).

Each engine setting runs ``--rounds`` rounds behind one that warms up; in a round every contender
runs once, in an order that is turned each round, so that a slow minute of the machine hits all. A
round that was disturbed is run again (``rounds.py``). Quoted are medians and the median of the
ratios round by round, with its interval; load and steal are said beside them. The table is printed
and put at the head of bench/HISTORY.md, in place of the older rows of the same settings.

Parts that run only when they are named: ``against`` runs the package of ``--commit`` and the
present one in turn, in the engine's settings, a record a call and as a Spark job of 100 B and of
1 KB values;
``partitions`` runs 100, 1000 and 5000 partitions on one broker and on three; ``jobs`` runs small
jobs beside a Python sink that does nothing; ``floors`` runs micro-batches with Spark alone, a
Python sink that does nothing, Spark's Kafka sink and each of ours, in ten minutes; ``send`` runs a
record a call, beside clients that know nothing else; ``scale`` writes to 10 000 partitions of 200
brokers that are there in name only (``scale.py``).
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
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from bench import scale
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
    package_of,
    sent,
)
from bench.floors import AT_LEAST_ONCE, NOTHING
from bench.history import HISTORY, Line, with_section
from bench.peers import connector_jars
from bench.rounds import Rounds
from bench.spark_job import delete
from bench.statistics import Ratio, median, ratio
from spark_kafka_sink.local_kafka import KafkaCluster

PARTS = ["engine", "tls", "spark", "microbatch", "exactly-once", "memory"]
#: So many rounds of the part floors are enough, and end in twenty minutes.
_FLOOR_ROUNDS = 3
#: Linux keeps its files in memory.
MEMORY = "/dev/shm"

ENGINE_SETTINGS = (
    Setting("100 B values, 12 partitions", 12, 100, 4_000_000, 500_000),
    Setting("1 KB values, 12 partitions", 12, 1024, 600_000, 100_000),
    Setting("100 B values, 1000 partitions", 1000, 100, 3_000_000, 500_000),
)
#: Brokers, partitions.
SCALES = ((1, 12), (200, 10_000))
SEND_SETTING = Setting("send(), 100 B values, 12 partitions", 12, 100, 200_000, 40_000)
PARTITION_SETTINGS = tuple(
    Setting(f"{count} partitions, {size}", count, value_size, rows, rows // 5)
    for size, value_size, rows in (("100 B", 100, 2_000_000), ("1 KB", 1024, 400_000))
    for count in (100, 1000, 5000)
)


@dataclass(frozen=True, slots=True)
class SparkSetting:
    """``tasks`` of two at once; ``tuned``: by ``register(spark, tune=True)``."""

    name: str
    value_size: int
    rows: int
    codec: str = "none"
    tasks: int = 2
    unix_socket: bool = False
    tuned: bool = False

    def arguments(self, bootstrap: str, rounds: int) -> tuple[str, ...]:
        """Of ``bench.spark_job``, but for its jars and contenders."""
        return (
            "--bootstrap", bootstrap, "--rows", str(self.rows), "--rounds", str(rounds),
            "--value-size", str(self.value_size), "--codec", self.codec,
            "--tasks", str(self.tasks), *(("--unix-socket",) * self.unix_socket),
            *(("--tune",) * self.tuned),
        )  # fmt: skip


SPARK_SETTINGS = (
    SparkSetting("100 B values", 100, 3_000_000),
    SparkSetting("100 B values, lz4", 100, 3_000_000, codec="lz4"),
    SparkSetting("1 KB values", 1024, 1_000_000),
    SparkSetting("100 B values, 10 tasks, tune=True", 100, 3_000_000, tasks=10, tuned=True),
    SparkSetting("1 KB values, 10 tasks, tune=True", 1024, 1_000_000, tasks=10, tuned=True),
    SparkSetting("100 B values, Unix socket", 100, 3_000_000, unix_socket=True),
    SparkSetting("1 KB values, Unix socket", 1024, 1_000_000, unix_socket=True),
)
#: The Spark jobs that the part against runs.
_SPARK_AGAINST = ("100 B values", "1 KB values")


class Bench:
    """One run: a broker, a console, the rows of the table."""

    def __init__(self, bootstrap: str, rounds: int, only: str = "") -> None:
        self.bootstrap = bootstrap
        self.rounds = rounds
        self.only = only
        self.machine = Rounds(rounds, self.say)
        self.topics = Topics(bootstrap)
        self.lines: list[Line] = []

    def engine(self) -> None:
        for setting in ENGINE_SETTINGS:
            if self.only in setting.name:
                self._side_by_side(self.topics, setting, JAVA, CONFLUENT)

    def send(self) -> None:
        """A record a call, with callbacks; futures where a client has them."""
        mine, *theirs = self._runs(self.topics, SEND_SETTING, *(e.run for e in SENDING))
        for peer, runs in zip(SENDING[1:], theirs, strict=True):
            self._add_engine(SEND_SETTING.name, peer.name, mine, runs)

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
        mine, *theirs = self._runs(topics, setting, *(e.run for e in (OURS, *peers)))
        for peer, runs in zip(peers, theirs, strict=True):
            self._add_engine(setting.name, peer.name, mine, runs)
        queue, peak = (median([getattr(r, n) for r in mine]) for n in ("queue_ms", "peak_mib"))
        self.lines.append(
            (
                f"engine, {setting.name}",
                f"{peak:.0f} MiB peak",
                "-",
                f"a batch waits {queue:.1f} ms",
            )
        )

    def _runs(
        self, topics: Topics, setting: Setting, *engines: Callable[[str, str, Setting], Run]
    ) -> list[list[Run]]:
        """Each of ``engines`` in its rounds, which are said as they end."""

        def said(run: Callable[[str, str, Setting], Run]) -> Run:
            found = topics.run(setting, run)
            self.say(f"{setting.name}: {found.cpu_us:.2f} us, {found.rows_per_second:,.0f} rows/s")
            return found

        return self.machine.interleaved([partial(said, engine) for engine in engines])

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
                runs = self._runs(topics, setting, secure, ours)
        self._add_engine(f"{setting.name}, over TLS", "itself, plaintext", *runs)

    def spark(self) -> None:
        for setting in SPARK_SETTINGS:
            name = setting.name
            if self.only not in name:
                continue
            results = child(
                "bench.spark_job", "--jars", connector_jars(),
                *setting.arguments(self.bootstrap, self.rounds), timeout=3600,
            )  # fmt: skip
            self.say(str(results.pop("conditions")))
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
                    self._engine_against(commit, setting, trees, ours)
            if self.only in SEND_SETTING.name:
                self._engine_against(commit, SEND_SETTING, trees, sent)
            for job in SPARK_SETTINGS:
                if job.name in _SPARK_AGAINST and self.only in f"Spark, {job.name}":
                    self._spark_against(commit, job, trees)

    def _engine_against(
        self, commit: str, setting: Setting, trees: dict[str, Path], run: Callable[..., Run]
    ) -> None:
        both = (partial(run, tree=tree) for tree in trees.values())
        self._add_engine(setting.name, commit, *self._runs(self.topics, setting, *both))

    def _spark_against(self, commit: str, setting: SparkSetting, trees: dict[str, Path]) -> None:
        """Two sessions, both warm; their rounds alternate."""
        with ExitStack() as stack:
            sessions = {
                which: stack.enter_context(
                    PacedChild(
                        "bench.spark_job", "--jars", "", "--contenders", "kprod", "--paced",
                        *setting.arguments(self.bootstrap, 2 * self.rounds), tree=tree,
                    )
                )
                for which, tree in trees.items()
            }  # fmt: skip

            def write(which: str) -> dict[str, float]:
                figures: dict[str, list[float]] = sessions[which].round()["kprod"]  # type: ignore[assignment]
                last = {figure: values[-1] for figure, values in figures.items() if values}
                self.say(f"Spark, {setting.name}, {which}: {last}")
                return last

            new, old = self.machine.interleaved([partial(write, which) for which in trees])
        for figure, unit in (("cpu", "client CPU s"), ("rows_per_second", "rows/s")):
            values = ([run[figure] for run in runs] for runs in (new, old))
            self.add(f"Spark, {setting.name}", unit, commit, *values)

    def microbatch(self) -> None:
        results = child(
            "bench.microbatch", "--bootstrap", self.bootstrap, "--rounds", str(self.rounds),
            timeout=3600,
        )  # fmt: skip
        self.say(str(results.pop("conditions")))
        mine, theirs = (results[sink] for sink in ("kprod", "nothing"))
        for name, figure in (("p50", "ms"), ("CPU of its Python workers", "cpu_ms")):
            ours, others = (
                [median(r) if figure == "ms" else r for r in sink[figure]]  # type: ignore[index]
                for sink in (mine, theirs)
            )
            self.add_difference(
                f"micro-batch of 1000 rows, {name}", "Python sink that does nothing", ours, others
            )

    def floors(self) -> None:
        """What a micro-batch takes with Spark alone, a Python sink that does nothing, and each of
        ours: p50 / p99, and the difference of the medians round by round. First in a classic
        session, then in a session of Spark Connect.
        """
        for session, more in (("classic", ()), ("Connect", ("--connect",))):
            results: dict[str, list[dict[str, list[float]]]] = child(  # type: ignore[assignment]
                "bench.floors", "--bootstrap", self.bootstrap, "--jars", connector_jars(),
                "--rounds", str(min(self.rounds, _FLOOR_ROUNDS)), *more, timeout=3600,
            )  # fmt: skip
            self.say(str(results.pop("conditions")))
            for name, runs in results.items():
                self._add_floor(session, name, runs, results)

    def _add_floor(
        self,
        session: str,
        name: str,
        runs: list[dict[str, list[float]]],
        results: dict[str, list[dict[str, list[float]]]],
    ) -> None:
        peer = AT_LEAST_ONCE if "exactly-once" in name else NOTHING
        shown = {
            figure: sorted(value for run in runs for value in run[figure]) for figure in runs[0]
        }
        times = ", ".join(
            f"{figure} {median(shown[figure]):.0f} / "
            f"{shown[figure][len(shown[figure]) * 99 // 100]:.0f} ms"
            for figure in ("trigger", "addBatch")
        )
        cpu = f"CPU {median(shown['cpu']):.0f} ms, of Python {median(shown['python_cpu']):.0f}"
        pairs = zip(runs, results[peer], strict=True)
        beyond = sorted(median(a["trigger"]) - median(b["trigger"]) for a, b in pairs)
        spread = f"{median(beyond):+.0f} ms ({beyond[0]:+.0f} to {beyond[-1]:+.0f})"
        self.lines.append((f"{session}: {name}", times, cpu, f"{spread} beyond: {peer}"))

    def scale(self) -> None:
        """One producer, and more partitions and brokers than a broker's machine could hold."""
        for brokers, partitions in SCALES:
            (runs,) = self.machine.interleaved([partial(scale.measure, brokers, partitions)])
            name = f"scale, {partitions:,} partitions of {brokers} brokers"
            for figure, unit in scale.UNITS.items():
                values = sorted(getattr(one, figure) for one in runs)
                spread = f"{values[0]:,.6g} to {values[-1]:,.6g}, n={len(values)}"
                self.lines.append((name, f"{median(values):,.6g} {unit}", "-", spread))

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


def publish(bench: Bench, parts: str, logs: str) -> None:
    lines = bench.lines
    table = Table(title="kprod next to its peers")
    for head in ("what", "kprod", "peer", "kprod / peer"):
        table.add_column(head)
    for line in lines:
        table.add_row(*line)
    Console(width=150).print(table)
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    conditions = (
        f"Python {platform.python_version()}, {os.cpu_count()} cores shared by client and broker, "
        f"its logs {'in memory' if logs == MEMORY else 'on a disk'}; "
        "medians, and the median of the ratios round by round with its confidence interval; "
        f"{bench.machine.conditions()}."
    )
    title = f"{today}, commit {commit()} ({parts})"
    page = with_section(HISTORY.read_text(encoding="utf-8"), title, conditions, lines)
    HISTORY.write_text(page, encoding="utf-8")


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
                    "scale": bench.scale,
                    "tls": bench.tls,
                    "spark": bench.spark,
                    "microbatch": bench.microbatch,
                    "floors": bench.floors,
                    "exactly-once": bench.exactly_once,
                }[part]()
    publish(bench, ", ".join(args.parts), args.logs)


if __name__ == "__main__":
    main()
