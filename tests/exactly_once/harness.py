"""The world of the scenarios: brokers that advertise proxies, and what a test asks of both."""

from __future__ import annotations

import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from spark_kafka_sink import AuditVerdict, audit
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.protocol.request import ApiKey
from tests.exactly_once import checker, records
from tests.exactly_once.checker import Fault as Wrong
from tests.exactly_once.checker import Report
from tests.exactly_once.processes import Driver, kill_and_wait, sender_of
from tests.exactly_once.stalls import StallWatch
from tests.exactly_once.truth import Batch, Result, clean_ends, read_truth
from tests.faults.proxy import Action, Fault, Faults, Hit, Proxy, Side
from tests.real_kafka import RealKafka
from tests.waiting import PATIENCE

COMMIT_LOG = "__kprod_commits"
#: ``make faults`` runs all there is; plain pytest runs each scenario once, in one of its variants.
THOROUGH = "KPROD_FAULT_ROUNDS" in os.environ
#: So long may consumers stand still after a batch has ended, well or not; in CI, two JVMs start on
#: two busy cores meanwhile.
STALL_S = 5.0 if THOROUGH else 20.0 * PATIENCE
#: After a clean end, and after an abort, nothing may hang for longer. (Less than the time-outs of
#: the transactions, lest these end it.)
CLEAN_S = 5.0 if THOROUGH else 15.0 * PATIENCE
#: As CLEAN_S, after an executor, a worker or an attempt was lost: the driver must notice that.
LOST_CLEAN_S = 15.0 * PATIENCE
#: For a fault that counts requests: no other one is asked again because its answer is late.
ASKED_ONCE = {"kafka_request_timeout_ms": "60000", "kafka_delivery_timeout_ms": "120000"}

T = TypeVar("T")
#: Pytest's record_property.
Found = Callable[[str, object], None]


def variants(first: T, *others: T) -> list[T]:
    """For parametrize: the first one always, the others when there is time."""
    return [first, *others] if THOROUGH else [first]


def thorough(test: T) -> T | None:
    """For a test that is a variant of another: it is there when there is time."""
    return test if THOROUGH else None


@dataclass
class FaultyCluster:
    """``bootstrap`` leads through the proxies; ``direct`` does not (readers go there)."""

    kafka: RealKafka
    bootstrap: str
    faults: Faults
    home: Path
    found: Found = lambda *_: None
    _expected: list[Fault] = field(default_factory=list)
    _watches: list[StallWatch] = field(default_factory=list)

    @property
    def direct(self) -> str:
        return self.kafka.bootstrap

    def of_a_test(self, found: Found) -> Iterator[FaultyCluster]:
        """What its scenarios' checks say is ``found``."""
        self.faults.clear()
        self._expected.clear()
        self.found = found
        yield self
        self.faults.clear()
        while self._watches:
            self._watches.pop().close()

    def watch(self, topic: str) -> StallWatch:
        """Readers of ``topic``, until the test is over."""
        self._watches.append(StallWatch(self.direct, topic))
        return self._watches[-1]

    def fault(
        self,
        api: ApiKey,
        action: Action,
        side: Side,
        *,
        nth: int = 1,
        times: int = 1,
        match: Callable[[Hit], bool] | None = None,
        then: Callable[[Hit], None] | None = None,
        **more: Any,
    ) -> Fault:
        """Injects it on every broker; :meth:`assert_fired` fails unless it hit something."""
        fault = Fault(api, action, side, nth=nth, times=times, match=match, then=then, **more)
        self._expected.append(fault)
        return self.faults.add(fault)

    def worker_dies(
        self,
        match: Callable[[Hit], bool],
        action: Action = Action.PASS,
        side: Side = Side.RESPONSE,
    ) -> Fault:
        """When its Produce request, or the answer to it, is here."""
        return self.fault(
            ApiKey.PRODUCE,
            action,
            side,
            match=match,
            then=lambda hit: kill_and_wait(sender_of(hit)),
        )

    def assert_fired(self) -> None:
        silent = [fault for fault in self._expected if fault.fired == 0]
        assert not silent, f"faults that never fired: {silent}"

    def scenario(self, name: str, partitions: int = 4, *, bad: int = 0, **options: str) -> Scenario:
        """``bad``: of so many rows, one of each kind of those that become dead letters."""
        return Scenario(self, name, partitions, options, bad)


class Scenario:
    """One run of one load: a topic, a prefix, a truth file, and options that lead there."""

    def __init__(
        self, world: FaultyCluster, name: str, partitions: int, options: dict[str, str], bad: int
    ) -> None:
        self.world = world
        self.run = f"{name}-{uuid.uuid4().hex[:8]}"
        self.bad = bad
        configs = {"max.message.bytes": str(records.MOST_BYTES)} if bad else {}
        self.topic = world.kafka.create_topic(self.run, partitions, configs)
        self.letters = world.kafka.create_topic(f"dlq.{self.run}") if bad else None
        self.watch = world.watch(self.topic)
        self.prefix = f"x.{self.run}"
        self.home = world.home / self.run
        self.home.mkdir()
        self.truth = self.home / "truth.jsonl"
        self.checkpoint = self.home / "checkpoint"
        self.options = {
            "kafka.bootstrap.servers": world.bootstrap,
            "topic": self.topic,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": self.prefix,
            "kafka.transaction.timeout.ms": "300000",
            "kafka.request.timeout.ms": "5000",
            "kafka.delivery.timeout.ms": "60000",
            "kafka.max.block.ms": "60000",
            # Frames that can be read by whoever looks for a task's rows in them.
            "kafka.compression.type": "none",
            **{key.replace("_", "."): value for key, value in options.items()},
        }
        if self.letters is not None:
            self.options |= {
                "errors.tolerance": "all",
                "errors.deadletterqueue.topic.name": self.letters,
                "kafka.batch.size": str(records.MOST_BYTES // 2),
            }
        if self.options["deliveryGuarantee"] != "exactly-once":
            for name in ("transactionalIdPrefix", "kafka.transaction.timeout.ms"):
                self.options.pop(name)

    def batch(self, number: int = 0, rows: int = 400, **more: Any) -> dict[str, Any]:
        """A command for ``Driver.run("batch", ...)``."""
        return {
            "run": self.run,
            "truth": str(self.truth),
            "options": self.options,
            "batch": number,
            "first": number * rows,
            "rows": rows,
            "bad": self.bad,
            **more,
        }

    def stream(self, *, rows: int = 400, until: int | None = None, **more: Any) -> dict[str, Any]:
        """A command for ``Driver.run("stream", ...)``."""
        return {
            "run": self.run,
            "truth": str(self.truth),
            "options": self.options,
            "checkpoint": str(self.checkpoint),
            "rows": rows,
            "bad": self.bad,
            **({} if until is None else {"until": until}),
            **more,
        }

    def foreach(self, **more: Any) -> dict[str, Any]:
        """A command for ``Driver.run("foreach", ...)``."""
        return self.stream(name=self.run, **more)

    def kill_stream(self, victim: Driver, held: Fault, *, tasks: int) -> None:
        """``victim`` runs the stream until a request is ``held``, and is killed then, whole."""
        victim.begin("stream", **self.stream(tasks=tasks))
        victim.wait_until_hit(held)
        victim.kill()

    def marks(self) -> Path:
        path = self.home / "marks"
        path.mkdir(exist_ok=True)
        return path

    def batches(self) -> list[Batch]:
        return read_truth(self.truth)

    def committed(self) -> int:
        """The newest batch of the stream that is OK; -1 when there is none."""
        if not self.truth.exists():
            return -1
        done = [b.number for b in self.batches() if b.result is Result.OK]
        return max(done, default=-1)

    def wait_for_batch(self, number: int, driver: Driver, what: str = "") -> None:
        """Until batch ``number`` of the stream that ``driver`` runs is OK. AssertionError, with the
        driver's answer or the end of its log, when the stream ends before, or after :data:`LONG_S`.
        """
        wanted = f"batch {number} of {self.run} {what}".strip()
        driver.wait_until(
            lambda: self.committed() >= number, wanted, lambda: f"batch {self.committed()}"
        )

    def checkpointed(self) -> int:
        """The newest batch in the checkpoint's commit log; -1 when there is none. (What a killed
        driver had seen of it may not have come to the truth file.)
        """
        names = [path.name for path in (self.checkpoint / "commits").glob("*")]
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def ongoing(self) -> set[str]:
        """Ids of tasks, whose transactions are open."""
        found = checker.transactions(self.world.direct, self.prefix)
        return {i for i, state in found.items() if state == "Ongoing" and "~~" not in i}

    def check(self, *, settle_s: float = checker.SETTLE_S) -> Report:
        self.world.assert_fired()
        report = checker.check(
            self.world.direct,
            self.topic,
            self.batches(),
            run=self.run,
            prefix=self.prefix,
            also=[COMMIT_LOG],
            settle_s=settle_s,
            letters=self.letters,
            bad=self.bad,
        )
        self.watch.close()
        worst = self.watch.worst(clean_ends(self.truth))
        if worst is not None:
            report.stalled_s = worst.seconds
            if worst.seconds > STALL_S:
                report.add(Wrong.STALLED, str(worst))
        self.world.found("found", report)
        return report

    def with_report(self) -> Scenario:
        """The same scenario, whose writes leave reports for :meth:`assert_audited`."""
        self.options["reportPath"] = str(self.home / "report.jsonl")
        return self

    def assert_audited(self, *, rows: int, letters: int) -> None:
        """The audit of the newest report finds its rows, dead letters included, and no others."""
        reports = Path(self.options["reportPath"]).read_text(encoding="utf-8").splitlines()
        result = audit(reports[-1], **{"kafka.bootstrap.servers": self.world.direct})
        assert result.verdict is AuditVerdict.COMPLETE, result
        assert (result.found, result.dead_letters) == (rows, letters)

    def assert_clean(self, *, settle_s: float = checker.SETTLE_S) -> Report:
        report = self.check(settle_s=settle_s)
        assert report.clean, str(report)
        return report


def of_log(hit: Hit) -> bool:
    """It is about the commit log's own transaction."""
    return b"~~log" in hit.request


_OF_A_TASK = re.compile(rb"~g[0-9]+\.[^~]+~[0-9]+")


def of_data(hit: Hit) -> bool:
    """It is about a task's transaction. (DescribeTransactions has the decision's beside them.)"""
    return b"~~" not in hit.request or _OF_A_TASK.search(hit.request) is not None


def of_attempt(task: int, attempt: int) -> Callable[[Hit], bool]:
    """A Produce request with rows of that attempt of a task."""
    place = re.compile(rb"\|%d\|d[0-9a-f]{6}\.%d" % (task, attempt))
    return lambda hit: place.search(hit.request) is not None


def of_batch(batch: int, task: int) -> Callable[[Hit], bool]:
    """A Produce request with rows of that task of a batch."""
    return lambda hit: b"|%d|%d|" % (batch, task) in hit.request


@contextmanager
def proxied_cluster(nodes: int, home: Path, **options: Any) -> Iterator[FaultyCluster]:
    """``options`` are KafkaCluster's. Each node advertises its proxy to clients; ``direct`` reads
    through the brokers' own listener.
    """
    faults = Faults()
    proxies = [Proxy(faults=faults) for _ in range(nodes)]
    cluster = KafkaCluster(nodes, **options)
    try:
        for node, proxy in zip(cluster.nodes, proxies, strict=True):
            properties = node.properties
            address, port = node.address(), node.port()
            listeners = properties["advertised.listeners"].replace(
                f"PLAINTEXT://{address}", f"PLAINTEXT://127.0.0.1:{proxy.port}"
            )
            assert str(proxy.port) in listeners
            properties["advertised.listeners"] = listeners
            proxy.target = ("127.0.0.1", port)
        with cluster:
            direct = ",".join("{}:{}".format(*node.probe_address) for node in cluster.nodes)
            through = ",".join(f"127.0.0.1:{proxy.port}" for proxy in proxies)
            yield FaultyCluster(RealKafka(direct, cluster), through, faults, home)
    finally:
        for proxy in proxies:
            proxy.close()
        cluster.stop()
        shutil.rmtree(home, ignore_errors=True)
