"""A Delta table that changes, the stream of it with killed drivers, and the comparison of the
compacted topic with the table.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.peers import delta_jars
from spark_kafka_sink.transactions.transactional_ids import DEFAULT_PREFIX, log_key
from tests.changelogs.applications import Application
from tests.changelogs.delta_table import by_key, last_version
from tests.changelogs.kills import Death, Moment, death
from tests.changelogs.table_job import ROWS
from tests.exactly_once.harness import FaultyCluster
from tests.real_kafka import consume_topic
from tests.waiting import wait_for

#: Each append begins a segment after a moment, and the cleaner takes every closed one.
CLEANED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "200",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
}
#: Settings of the broker: the cleaner looks again at once.
CLEANER: Final = {"log.cleaner.backoff.ms": "500"}
#: Records that close a segment.
_CLOSING: Final = b"closes a segment"
#: For one application's start, and for what it does until it is killed, on a busy machine.
_SLOW_S: Final = 1_800.0


@dataclass(frozen=True, slots=True)
class Kill:
    """``version``: the table's last commit at the kill."""

    moment: Moment
    death: Death
    version: int


@dataclass(slots=True)
class Proof:
    """Two applications: one changes the table until its ``changes`` are done, the other one writes
    the changes to the topic, and is killed and started again meanwhile.
    """

    world: FaultyCluster
    topic: str
    seed: int
    keys: int
    changes: int
    ahead: int = 15
    tidied: int = 25
    seconds: float = 86_400.0
    limit: int | None = None
    kills: list[Kill] = field(default_factory=list)
    streams: list[Application] = field(default_factory=list)
    _table: Application | None = None

    def __enter__(self) -> Proof:
        """The table is created, and begins to change."""
        names = ("keys", "changes", "ahead", "tidied", "seconds")
        given = {name: getattr(self, name) for name in names}
        self._table = self._start("table_job", "table-job", **given)
        wait_for(lambda: self.version() > 0 or self._table_is_done(), _SLOW_S, "a table", pause=0.1)
        return self

    def __exit__(self, *_: object) -> None:
        for application in (*self.streams, *([] if self._table is None else [self._table])):
            application.close()

    def version(self) -> int:
        """The number of the table's last commit, -1 before the first one."""
        return last_version(self.folder / "table")

    @property
    def folder(self) -> Path:
        return self.world.home

    def is_over(self) -> bool:
        """Whether the table changes no more."""
        return (self.folder / ROWS).exists()

    def kill(self, version: int, moment: Moment) -> Kill | None:
        """Kills the stream at ``moment`` once the table has this version and the driver has written
        a micro-batch. None, and the stream lives on, if the table changes no more before that.
        """
        stream = self._stream()
        self._wait(
            lambda: self.is_over() or (self.version() >= version and stream.all("written")),
            "a micro-batch of a new driver",
        )
        if self.is_over():
            return None
        if moment.api is None:
            self._wait(lambda: self.is_over() or stream.is_writing(), "a micro-batch")
            if not self.is_over():
                time.sleep(moment.seconds)
                stream.strike(moment.victim)
        else:
            fault = self.world.faults.add(moment.fault(stream))
            self._wait(lambda: self.is_over() or stream.is_struck, str(moment))
            self.world.faults.remove(fault)
        if not stream.is_struck:
            return None
        stream.wait_until_gone()
        key = log_key(DEFAULT_PREFIX, self.topic)
        dead = death(self.world.direct, key, self.folder / "checkpoint", stream)
        self.kills.append(Kill(moment, dead, self.version()))
        return self.kills[-1]

    def finish(self) -> None:
        """Returns when both applications have ended."""
        stream = self._stream()
        self._wait(stream.ended_well, "the end of the stream")

    def micro_batches(self) -> Counter[int]:
        """How often each micro-batch was begun."""
        return Counter(number for stream in self.streams for number in stream.all("begun"))

    def statements(self) -> dict[str, int]:
        """How many statements of each kind changed the table. At the end."""
        assert self._table is not None
        (found,) = self._table.all("statements")
        return dict(found)

    def seconds_of_statements(self) -> float:
        """The CPU seconds of all statements until now."""
        assert self._table is not None
        return max(self._table.all("spent"), default=0.0)

    def table(self) -> dict[bytes, bytes]:
        """The rows at the end, by key, as Spark's own to_json has them."""
        return by_key(json.loads((self.folder / ROWS).read_text()))

    def records(self) -> list[tuple[bytes, bytes | None]]:
        """The topic's records with a key of the table, in the order of each partition."""
        return keyed_records(self.world.direct, self.topic)

    def cleaned(self, timeout: float = 180) -> list[tuple[bytes, bytes | None]]:
        """The records when the broker's cleaner has left one of each key."""
        from confluent_kafka import Producer

        def once() -> list[tuple[bytes, bytes | None]]:
            producer = Producer({"bootstrap.servers": self.world.direct})
            for partition in range(3):
                producer.produce(self.topic, b"", _CLOSING, partition)
            assert producer.flush(60) == 0
            found = self.records()
            is_clean = len({key for key, _ in found}) == len(found)
            return found if is_clean else []

        return wait_for(once, timeout, "a topic with each key once", pause=0.5)

    def _stream(self) -> Application:
        """The application that writes the changes. Starts it unless it is there."""
        if not self.streams or self.streams[-1].is_struck:
            given: dict[str, Any] = {"brokers": self.world.bootstrap, "topic": self.topic}
            if self.limit is not None:
                given["limit"] = self.limit
            name = f"stream-job-{len(self.streams)}"
            self.streams.append(self._start("stream_job", name, **given))
        return self.streams[-1]

    def _start(self, module: str, name: str, **given: Any) -> Application:
        common = {"folder": str(self.folder), "jars": delta_jars(), "seed": self.seed}
        return Application(f"tests.changelogs.{module}", common | given, self.folder / name)

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        """AssertionError with the log of an application that ends before the condition is met."""
        stream = self.streams[-1]

        def is_met() -> bool:
            self._table_is_done()
            return bool(condition()) or (not stream.is_struck and stream.ended_well())

        wait_for(is_met, _SLOW_S, what, pause=0.1)
        assert condition(), f"the stream ended before {what}"

    def _table_is_done(self) -> bool:
        assert self._table is not None
        return self._table.ended_well()


def keyed_records(brokers: str, topic: str) -> list[tuple[bytes, bytes | None]]:
    """``topic`` as confluent-kafka reads it, in the order of each partition. Without records that
    only close a segment.
    """
    read = consume_topic(brokers, topic, isolation="read_committed")
    return [
        (key, value)
        for key, value in zip(read.keys, read.values, strict=True)
        if key is not None and key != _CLOSING
    ]


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
