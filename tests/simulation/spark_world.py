"""The world of Spark's processes: a simulated cluster, the machine, workers and their attempts.

What is real: the driver's side of exactly-once, the tasks' (:class:`WriteTask`, the worker's ids,
warm producers), and the producer. Who plans, commits and aborts is a :class:`Scene`, which a test
writes, or an :class:`Application`, which a seed draws.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.exactly_once.transactional_producers import Worker, WorkerIds
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.producer_cache import ProducerCache
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.processes import Machine, Process, Strike
from tests.simulation.scheduler import START_MS, Scheduler
from tests.simulation.seeded_cluster import NODES, ClusterFaults, SeededCluster
from tests.simulation.spark_tasks import Attempt, PythonWorker
from tests.simulation.world import Timeline

PREFIX = "orders"
QUERY = "query-0"
TOPIC = "t"
PARTITIONS = 3
#: Of rows that can't be sent, and the partition that these name.
DEAD_LETTERS = "dlq"
NO_PARTITION = -7
LOG_TOPIC = "__kprod_commits"
TIMEOUT_MS = 60_000
#: Produce and EndTxn of brokers with transactions of version 1.
_BEFORE_4 = {0: 11, 26: 4}


@dataclass(frozen=True)
class SparkLife:
    """What a seed, or a test, decides before a query begins."""

    seed: int
    tasks: int = 2
    rows: int = 3
    transaction_version: int = 2
    network: NetworkFaults = field(default_factory=lambda: NetworkFaults(latency_ms=2))
    cluster: ClusterFaults = field(default_factory=ClusterFaults)
    preemption: float = 0.0
    strikes: tuple[Strike, ...] = ()
    #: The probability of a task without rows.
    empty: float = 0.0
    #: The probability of a row that can't be sent.
    bad: float = 0.0
    #: How often a task gets a new worker though another one is free.
    new_worker: float = 0.2
    #: The driver's processes keep their connections from one call to the next.
    warm_driver: bool = False
    nodes: int = NODES
    #: By its number, the newest version of an API that brokers have; 0: they don't have it.
    versions: Mapping[int, int] = field(default_factory=dict)
    #: Their DescribeConfigs, which they don't have without.
    broker_configs: Mapping[str, str] | None = None


@dataclass(eq=False)
class Run:
    """One start of the query."""

    id: str
    process: Process
    workers: list[PythonWorker] = field(default_factory=list)
    ended: bool = False

    @property
    def over(self) -> bool:
        return self.ended or self.process.dead


class SparkWorld:
    """``live`` is called once."""

    def __init__(self, life: SparkLife) -> None:
        self.life = life
        self.trace: list[str] = []
        self.fired: Counter[str] = Counter()
        fate = random.Random(f"world {life.seed}")
        self.fate = random.Random(f"spark {life.seed}")
        self.scheduler = Scheduler(random.Random(f"turns {life.seed}"), life.preemption)
        self.scheduler.most_turns = 1_000_000
        self.cluster = SeededCluster(
            self.topics(),
            fate,
            life.cluster,
            too_large={},
            nodes=life.nodes,
            transaction_version=life.transaction_version,
            versions={**({} if life.transaction_version == 2 else _BEFORE_4), **life.versions},
            broker_configs=life.broker_configs,
            trace=self.note,
        )
        self.machine = Machine(
            self.scheduler,
            self.cluster,
            self.cluster.ports,
            fate,
            self.note,
            list(life.strikes),
            life.network,
        )
        self.cluster.on_down = self.machine.cut_node
        self.timeline = Timeline(self.scheduler)
        self.scheduler.sources.append(self.timeline)
        self.attempted: list[Attempt] = []

    def topics(self) -> dict[str, int]:
        """Those that are there from the beginning, and their partitions."""
        return {TOPIC: PARTITIONS} | ({DEAD_LETTERS: 1} if self.life.bad else {})

    def note(self, what: str) -> None:
        self.trace.append(f"{self.scheduler.now - START_MS:>8} {what}")

    def heal(self) -> None:
        self.note("the world heals")
        self.cluster.heal()
        self.machine.calm()
        self.scheduler.lost_ms = (1, 2, 7)

    # -- Spark --

    def live(self) -> None:
        """Run :meth:`play`; then time ends what is open."""
        before = random.getstate()
        random.seed(self.life.seed)
        try:
            self.scheduler.run(self._spark)
            self._settle()
        finally:
            self.machine.bury()
            random.setstate(before)

    def _spark(self) -> None:
        try:
            self.play()
        finally:
            for process in self.machine.processes:
                process.kill()

    @property
    def longest_timeout_ms(self) -> int:
        return TIMEOUT_MS

    def play(self) -> None:
        """What is lived, in a process of its own; at its end all are killed."""
        raise NotImplementedError

    def worker_of(self, run: Run) -> PythonWorker:
        """A worker for a task: one that is free, or a new one."""
        free = [worker for worker in run.workers if worker.free]
        if free and self.fate.random() >= self.life.new_worker:
            worker = self.fate.choice(free)
        else:
            kept = Worker(WorkerIds(f"{self.fate.getrandbits(48):012x}"), ProducerCache())
            process = self.machine.process("worker", run.process, dies_with_it=False)
            worker = PythonWorker(process, kept)
            run.workers.append(worker)
        worker.busy = True
        return worker

    def attempt(
        self,
        worker: PythonWorker,
        task: int,
        number: int,
        name: str,
        write: Callable[[], TaskCommitMessage],
    ) -> Attempt:
        """Have ``write`` run in the worker's process."""
        found = Attempt(task, number, worker)
        self.attempted.append(found)

        def body() -> None:
            try:
                found.message = write()
            except KafkaError as error:
                self.note(f"{worker.process.name}: {type(error).__name__}: {error.message}")
                worker.lost = True  # Spark ends the worker of a task that raised
            finally:
                worker.busy = False
                found.ended = True

        worker.process.start(body, f"{name} task {task} attempt {number}")
        return found

    def rows(self, number: int, task: int) -> list[int]:
        """Partitions of the task's rows: of one task and batch always the same."""
        fate = random.Random(f"rows {self.life.seed} {number} {task}")
        if fate.random() < self.life.empty:
            return []
        rows = [fate.randrange(PARTITIONS) for _ in range(self.life.rows)]
        if self.life.bad:
            rows = [NO_PARTITION if fate.random() < self.life.bad else row for row in rows]
        return rows

    # -- what came of it --

    def _settle(self) -> None:
        """Let brokers take what was on its way, and then abort what timed out."""
        self.heal()
        for step_ms in (1_000, *[self.longest_timeout_ms // 2] * 8):
            self.scheduler.now += step_ms
            for source in self.scheduler.sources:
                source.happen(self.scheduler.now)

    def happened(self) -> Counter[str]:
        """What was done to it."""
        found = self.fired + self.cluster.fired
        for process in self.machine.processes:
            for network in process.networks:
                found += network.fired
        found += Counter(f"= struck: {s.role} {s.blow.value}" for s in self.machine.met)
        found += Counter({"= dead letters": len(self.seen().get(NO_PARTITION, ()))})
        return found

    def seen(self, *, committed: bool = True) -> dict[int, list[tuple[int, int, int, int]]]:
        """(batch, task, attempt, row) of each record, by partition, in the order of offsets; dead
        letters are those of NO_PARTITION.
        """
        found = {}
        for tp, log in self.cluster.logs.items():
            if tp.topic in (TOPIC, DEAD_LETTERS):
                records = log.records(committed=committed)
                partition = tp.partition if tp.topic == TOPIC else NO_PARTITION
                found[partition] = [_row(r.value or b"") for r in records]
        return found


def _row(value: bytes) -> tuple[int, int, int, int]:
    batch, task, attempt, row = value.split(b":")[:4]
    return int(batch), int(task), int(attempt), int(row)
