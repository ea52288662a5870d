"""One run of one engine into one topic: ours, confluent-kafka's, Java's ProducerPerformance.

Each runs in a process of its own. CPU is the client's alone, user and system. Java's is that of its
whole process for each record, the warm-up's too, less what the same command takes for one record
(the JVM's start): it has no clock of its own that could leave the warm-up out.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient

from bench.peers import classpath
from bench.spark_job import check, create, delete, touch

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Setting:
    """What is written: ``rows`` that are measured, after ``warmup``; keys of 12 bytes."""

    name: str
    partitions: int
    value_size: int
    rows: int
    warmup: int
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Run:
    """``cpu_us`` is for each row. ``queue_ms`` is how long a batch waited for its request, in the
    mean (of ours only); ``peak_mib`` the largest resident size of the process (not of Java's).
    """

    rows_per_second: float
    cpu_us: float
    queue_ms: float = 0.0
    peak_mib: float = 0.0


@dataclass(frozen=True, slots=True)
class Engine:
    name: str
    run: Callable[[str, str, Setting], Run]


def package_of(commit: str, directory: Path) -> Path:
    """A tree in ``directory``: the package as ``commit`` has it, the bench as it is here."""
    archive = subprocess.run(
        ["git", "archive", commit, "spark_kafka_sink"], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    subprocess.run(["tar", "-x", "-C", str(directory)], input=archive.stdout, check=True)
    shutil.copytree(ROOT / "bench", directory / "bench")
    return directory


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


class PacedChild:
    """A Python module of the bench that runs a round for each line that it reads, and answers with
    a line of JSON; with the package in ``tree``.
    """

    def __init__(self, *command: str, tree: Path = ROOT) -> None:
        self._name = command[0]
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=tree,
            env=os.environ | {"PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """It ends behind its last round, or at the end of its standard input."""
        self._requests.close()
        self._answers.close()
        self._process.wait(timeout=60)

    def round(self) -> dict[str, object]:
        self._requests.write("\n")
        self._requests.flush()
        for line in self._answers:
            if line.startswith("{"):
                result: dict[str, object] = json.loads(line)
                return result
        raise SystemExit(f"{self._name} ended before its last round")


def ours(
    bootstrap: str, topic: str, setting: Setting, *, tree: Path = ROOT, options: Sequence[str] = ()
) -> Run:
    """Columns through the package in ``tree``."""
    return _python("bench.engine_ours", bootstrap, topic, setting, options, tree)


def confluent(bootstrap: str, topic: str, setting: Setting) -> Run:
    """confluent-kafka's ``produce()``, a record a call."""
    return _python("bench.engine_confluent", bootstrap, topic, setting)


def sent(
    bootstrap: str, topic: str, setting: Setting, *, client: str = "kprod", tree: Path = ROOT
) -> Run:
    """A record a call, through ``client``."""
    return _python("bench.engine_send", bootstrap, topic, setting, tree=tree, client=client)


def _python(
    module: str,
    bootstrap: str,
    topic: str,
    setting: Setting,
    options: Sequence[str] = (),
    tree: Path = ROOT,
    client: str | None = None,
) -> Run:
    found = child(
        module, "--bootstrap", bootstrap, "--topic", topic,
        *(() if client is None else ("--client", client)),
        "--rows", str(setting.rows), "--warmup", str(setting.warmup),
        "--value-size", str(setting.value_size), *(f"--option={o}" for o in options), tree=tree,
    )  # fmt: skip
    figures = {name: float(str(value)) for name, value in found.items()}
    return Run(
        figures["rows_per_second"],
        1e6 * figures["cpu"] / setting.rows,
        figures.get("queue_ms", 0.0),
        figures["peak_mib"],
    )


def java(bootstrap: str, topic: str, setting: Setting) -> Run:
    """Kafka's own ProducerPerformance at its defaults (acks=all, idempotent).

    It sends null keys, which costs it less than hashing keys would.
    """
    rate, cpu = _java(bootstrap, topic, setting.rows, setting.warmup, setting.value_size)
    start = _java_start(bootstrap, topic)
    return Run(rate, 1e6 * max(0.0, cpu - start) / (setting.rows + setting.warmup))


@cache
def _java_start(bootstrap: str, topic: str) -> float:
    return _java(bootstrap, topic, 1, 0, 100)[1]


def _java(bootstrap: str, topic: str, rows: int, warmup: int, size: int) -> tuple[float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
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
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    rates = re.findall(r"([\d.]+) records/sec", done.stdout.strip().splitlines()[-1])
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return float(rates[-1]), cpu


OURS = Engine("kprod", ours)
CONFLUENT = Engine("confluent-kafka produce()", confluent)
JAVA = Engine("Java ProducerPerformance", java)
#: A record a call, with a callback for each; ours first.
SENDING = tuple(
    Engine(name, partial(sent, client=name))
    for name in ("kprod", "confluent-kafka", "kafka-python")
)


class Topics:
    """Fresh topics on one cluster, each warmed by a row in each partition, and deleted behind."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._number = 0

    def run(self, setting: Setting, run: Callable[[str, str, Setting], Run]) -> Run:
        """What ``run`` gives for a topic of its own; SystemExit when a row is missing there."""
        self._number += 1
        topic = f"bench-{os.getpid()}-{self._number}"
        create(self._admin, topic, setting.partitions, replicas=setting.replicas)
        touch(self.bootstrap, topic, setting.partitions)
        try:
            found = run(self.bootstrap, topic, setting)
            if run is not java:  # (its first run in a topic sends one record more)
                expected = setting.rows + setting.warmup + setting.partitions
                check(self.bootstrap, topic, expected, setting.partitions)
        finally:
            delete(self._admin, topic)
        return found
