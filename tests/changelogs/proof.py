"""Killed drivers between a Delta table and its compacted topic, and the comparison of the two."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.peers import delta_jars
from tests.changelogs.delta_table import last_version
from tests.programs import ROOT, without_spark
from tests.real_kafka import consume_topic
from tests.waiting import wait_for

#: Each append begins a segment after a moment, and the cleaner takes every closed one.
CLEANED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
#: Records that close a segment.
_CLOSING: Final = b"closes a segment"


@dataclass(slots=True)
class Run:
    """The lines that an application printed, and its log."""

    lines: list[dict[str, Any]]
    log: str

    def all(self, name: str) -> list[Any]:
        return [line[name] for line in self.lines if name in line]


@dataclass(slots=True)
class Proof:
    """Applications one after another, with one table, one checkpoint and one topic."""

    folder: Path
    brokers: str
    topic: str
    seed: int
    keys: int
    limit: int | None = None
    runs: list[Run] = field(default_factory=list)

    def run(self, versions: int, killed: str = "", timeout: float = 1500) -> Run:
        """One application. AssertionError with its log if it ends in another way than wanted."""
        given: dict[str, Any] = {
            "folder": str(self.folder), "jars": delta_jars(), "brokers": self.brokers,
            "topic": self.topic, "seed": self.seed, "keys": self.keys,
            "versions": versions, "killed": killed,
        }  # fmt: skip
        if self.limit is not None:
            given["limit"] = self.limit
        done = subprocess.run(
            [sys.executable, "-m", "tests.changelogs.delta_job", json.dumps(given)],
            cwd=ROOT,
            env=without_spark() | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        wanted = -signal.SIGKILL if killed else os.EX_OK
        assert done.returncode == wanted, done.stdout[-2000:] + done.stderr[-6000:]
        lines = [json.loads(line) for line in done.stdout.splitlines() if line[:1] == "{"]
        self.runs.append(Run(lines, done.stderr))
        return self.runs[-1]

    def again(self) -> int:
        """How many micro-batches were begun twice."""
        begun = [number for run in self.runs for number in run.all("begun")]
        return len(begun) - len(set(begun))

    def version(self) -> int:
        """The number of the table's last commit."""
        return last_version(self.folder / "table")

    def table(self) -> dict[bytes, bytes]:
        """The rows at the end of the last run, by key, as Spark's own to_json has them."""
        rows = json.loads((self.folder / "rows.json").read_text())
        found = {key.encode(): row.encode() for key, row in rows}
        assert len(found) == len(rows), "a key is in the table twice"
        return found

    def records(self) -> list[tuple[bytes, bytes | None]]:
        """The topic as confluent-kafka reads it, in the order of each partition."""
        read = consume_topic(self.brokers, self.topic, isolation="read_committed")
        return [
            (key, value)
            for key, value in zip(read.keys, read.values, strict=True)
            if key is not None and key != _CLOSING
        ]

    def cleaned(self, timeout: float = 180) -> list[tuple[bytes, bytes | None]]:
        """The records when the broker's cleaner has left one of each key."""
        from confluent_kafka import Producer

        def once() -> list[tuple[bytes, bytes | None]]:
            producer = Producer({"bootstrap.servers": self.brokers})
            for partition in range(3):
                producer.produce(self.topic, b"", _CLOSING, partition)
            assert producer.flush(60) == 0
            found = self.records()
            is_clean = len({key for key, _ in found}) == len(found)
            return found if is_clean else []

        return wait_for(once, timeout, "a topic with each key once", pause=0.5)


def difference(
    records: Sequence[tuple[bytes, bytes | None]], table: Mapping[bytes, bytes]
) -> dict[str, list[bytes]]:
    """The keys that are wrong in the compacted topic; empty: the topic is the table."""
    last = dict(records)
    there = {key: value for key, value in last.items() if value is not None}
    found = {
        "lost": sorted(table.keys() - there.keys()),
        "too many": sorted(there.keys() - table.keys()),
        "other": sorted(key for key in table.keys() & there.keys() if table[key] != there[key]),
    }
    return {name: keys for name, keys in found.items() if keys}
