"""Spark's streaming engine, as far as a sink sees it: drivers, task attempts, and what kills them.

What is real: the driver's side (:class:`ExactlyOnceDriver`), the tasks' (:class:`WriteTask`, the
worker's ids and warm producers), and the producer. What is Spark here does what Spark does: a
micro-batch is planned, its tasks run in processes of their own, up to four attempts each, failed
and beaten attempts are told nothing, commit gets one message per task and is followed by Spark's
own record of it, a driver that died is started anew under another run id and plans the same
micro-batch again.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.exactly_once.transaction_commit import (
    payload_of,
    prepared_transactions,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
    Worker,
    WorkerIds,
    producers_of_task,
)
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.producer_cache import ProducerCache
from spark_kafka_sink.datasource.write.write_task import TaskIdentity, WriteTask
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.transaction.transaction_states import PreparedTransaction
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.exactly_once import Batch, ExactlyOnceDriver, Owner
from spark_kafka_sink.transactions.ownership import Numbering
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.processes import Machine, Process, Strike
from tests.simulation.scheduler import START_MS, Scheduler, SimulationError
from tests.simulation.seeded_cluster import ClusterFaults, SeededCluster
from tests.simulation.world import Timeline

PREFIX = "orders"
QUERY = "query-0"
TOPIC = "t"
PARTITIONS = 3
LOG_TOPIC = "__kprod_commits"
TIMEOUT_MS = 60_000
#: Starts of the query after which the world is made perfect, and after which it must be done.
PATIENCE, MOST_RUNS = 8, 20
#: Attempts of a task (spark.task.maxFailures).
MOST_ATTEMPTS = 4


@dataclass(frozen=True)
class SparkLife:
    """What a seed, or a test, decides before a query begins."""

    seed: int
    batches: int = 2
    tasks: int = 2
    rows: int = 3
    transaction_version: int = 2
    network: NetworkFaults = field(default_factory=lambda: NetworkFaults(latency_ms=2))
    cluster: ClusterFaults = field(default_factory=ClusterFaults)
    preemption: float = 0.0
    strikes: tuple[Strike, ...] = ()
    #: Probabilities: of an attempt that raises, of one that is started twice, of a task without
    #: rows, of an attempt that takes up to half of its transaction's time.
    fails: float = 0.0
    speculative: float = 0.0
    empty: float = 0.0
    slow: float = 0.0
    #: Of a second start of the query, beside the one that runs.
    twice: float = 0.0
    heals_after_ms: int | None = None
    #: Between the starts of two tasks of a stage, so that one worker runs several of them.
    stagger_ms: int = 0
    #: How often a task gets a new worker though another one is free.
    new_worker: float = 0.2
    #: The driver's processes keep their connections from one call to the next.
    warm_driver: bool = False


@dataclass(eq=False)
class PythonWorker:
    """A worker process of Spark: it lives on from task to task, and ends with one that raised."""

    process: Process
    kept: Worker
    busy: bool = False
    lost: bool = False

    @property
    def free(self) -> bool:
        return not (self.busy or self.lost or self.process.dead)


@dataclass(eq=False)
class Attempt:
    """One attempt of a task; ``message`` is what Spark gets of one that ended well."""

    task: int
    number: int
    worker: PythonWorker
    ended: bool = False
    message: TaskCommitMessage | None = None

    @property
    def over(self) -> bool:
        return self.ended or self.worker.process.dead


@dataclass(eq=False)
class Run:
    """One start of the query."""

    id: str
    process: Process
    workers: list[PythonWorker] = field(default_factory=list)
    ended: bool = False
    #: Of a warm driver, when nothing went wrong with it.
    kept: ExactlyOnceDriver | None = None


class SparkWorld:
    """``live`` is called once."""

    def __init__(self, life: SparkLife) -> None:
        self.life = life
        self.trace: list[str] = []
        self.fired: Counter[str] = Counter()
        #: Spark's own records of micro-batches that are committed.
        self.commits: list[int] = []
        #: (run id, micro-batch, error): what each start ended with.
        self.errors: list[tuple[str, int, KafkaError]] = []
        fate = random.Random(f"world {life.seed}")
        self.fate = random.Random(f"spark {life.seed}")
        self.scheduler = Scheduler(random.Random(f"turns {life.seed}"), life.preemption)
        self.scheduler.most_turns = 1_000_000
        self.cluster = SeededCluster(
            {TOPIC: PARTITIONS},
            fate,
            life.cluster,
            too_large={},
            transaction_version=life.transaction_version,
            versions={} if life.transaction_version == 2 else {0: 11, 26: 4},
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
        if life.heals_after_ms is not None:
            self.timeline.after(life.heals_after_ms, self.heal)
        self._runs: list[Run] = []
        self._attempts: list[Attempt] = []

    def note(self, what: str) -> None:
        self.trace.append(f"{self.scheduler.now - START_MS:>8} {what}")

    def heal(self) -> None:
        self.note("the world heals")
        self.cluster.heal()
        self.machine.calm()
        self.scheduler.lost_ms = (1, 2, 7)

    # -- Spark --

    def live(self) -> None:
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
            self._query()
        finally:
            for process in self.machine.processes:
                process.kill()

    def _query(self) -> None:
        """Start the query, and start it again whenever it ended, until every batch is done."""
        while len(self.commits) < self.life.batches:
            if len(self._runs) >= PATIENCE:
                self.heal()
            if len(self._runs) >= MOST_RUNS:
                raise SimulationError(f"the query is not done after {MOST_RUNS} starts")
            run = self._start()
            if self.fate.random() < self.life.twice:
                # An operator's mistake: the same checkpoint, twice at once.
                self.scheduler.sleep(self.fate.randint(0, 300))
                other = self._start()
                self.scheduler.block(lambda r=other: r.ended or r.process.dead, NEVER)
            self.scheduler.block(lambda r=run: r.ended or r.process.dead, NEVER)
            self.scheduler.sleep(self.fate.choice((0, 100, 3_000)))
        self.scheduler.block(lambda: all(r.ended or r.process.dead for r in self._runs), NEVER)
        self.note("the query is done")
        # Zombies may still be at work.
        self.scheduler.block(lambda: all(a.over for a in self._attempts), NEVER)

    def _start(self) -> Run:
        process = self.machine.process("driver")
        run = Run(f"run-{len(self._runs)}", process)
        self._runs.append(run)
        process.start(lambda: self._drive(run), "micro-batches")
        return run

    def _drive(self, run: Run) -> None:
        try:
            while len(self.commits) < self.life.batches:
                number = len(self.commits)
                try:
                    self._micro_batch(run, number)
                except KafkaError as error:
                    self.note(f"{run.id}: {type(error).__name__}: {error.message}")
                    self.errors.append((run.id, number, error))
                    return
                self.note(f"{run.id}: Spark notes batch {number}")
                if len(self.commits) == number:
                    self.commits.append(number)
        finally:
            run.ended = True

    def _micro_batch(self, run: Run, number: int) -> None:
        with self._driver_side(run) as planner:
            plan = _plan(planner.plan(PREFIX))
        messages, whole = self._stage(run, number, plan)
        owner = owner_of(run.id, plan)
        prepared = prepared_transactions(messages, owner)
        if not whole:
            self._abort(run, owner, number, prepared, tasks_may_run=True)
            raise KafkaError(f"a task of batch {number} failed {MOST_ATTEMPTS} times")
        try:
            with self._driver_side(run) as committer:
                how = committer.commit(owner, Batch(number, prepared, payload_of(messages, TOPIC)))
        except KafkaError:
            self._abort(run, owner, number, prepared, tasks_may_run=False)
            raise
        self.fired[f"= commits: {how.value}"] += 1

    def _abort(
        self,
        run: Run,
        owner: Owner,
        number: int,
        prepared: tuple[PreparedTransaction, ...],
        *,
        tasks_may_run: bool,
    ) -> None:
        try:
            with self._driver_side(run) as aborter:
                swept = aborter.abort(owner, number, prepared, tasks_may_run=tasks_may_run)
                self.fired["= orphans swept by an abort"] += len(swept)
        except KafkaError as error:
            self.note(f"{run.id}: abort: {type(error).__name__}: {error.message}")

    @contextmanager
    def _driver_side(self, run: Run) -> Iterator[ExactlyOnceDriver]:
        """As ``exactly_once.shared_driver``, of one process."""
        kept, run.kept = run.kept, None
        driver = self._new_driver_side(run) if kept is None else kept
        try:
            yield driver
        except BaseException:
            driver.close()
            raise
        if self.life.warm_driver:
            run.kept = driver
        else:
            driver.close()

    def _new_driver_side(self, run: Run) -> ExactlyOnceDriver:
        network = run.process.network()
        config = self._config("driver")
        return ExactlyOnceDriver(
            config,
            LOG_TOPIC,
            clock=self.scheduler,
            new_client=lambda c, m, k: new_network_client(c, m, k, selector=network),
        )

    def _config(self, client_id: str) -> ProducerConfig:
        return ProducerConfig.parse(
            {
                "bootstrap.servers": "127.0.0.1:9093,127.0.0.1:9094,127.0.0.1:9095",
                "client.id": client_id,
                "request.timeout.ms": "5000",
                "delivery.timeout.ms": "20000",
                "max.block.ms": "20000",
                "transaction.timeout.ms": str(TIMEOUT_MS),
                "buffer.memory": "1000000",
                "batch.size": "200",
            }
        )

    # -- tasks --

    def _stage(
        self, run: Run, number: int, plan: TransactionPlan
    ) -> tuple[list[TaskCommitMessage], bool]:
        """The message of each task that has one; False when some task failed too often."""
        attempts = []
        for task in range(self.life.tasks):
            attempts.append(self._launch(run, number, task, 0, plan))
            if self.life.stagger_ms:
                self.scheduler.sleep(self.life.stagger_ms)
        if self.fate.random() < self.life.speculative:
            task = self.fate.randrange(self.life.tasks)
            attempts.append(self._launch(run, number, task, MOST_ATTEMPTS, plan))
            self.fired["= speculative attempts"] += 1
        messages: dict[int, TaskCommitMessage] = {}
        while True:
            self.scheduler.block(lambda: any(a.over for a in attempts), NEVER)
            for attempt in [a for a in attempts if a.over]:
                attempts.remove(attempt)
                if attempt.task in messages:
                    continue  # commit denied: Spark drops its message, and tells nobody
                if attempt.message is not None and not attempt.worker.process.dead:
                    messages[attempt.task] = attempt.message
                    continue
                if any(a.task == attempt.task for a in attempts):
                    continue
                again = attempt.number % MOST_ATTEMPTS + 1
                if again == MOST_ATTEMPTS:
                    self.note(f"{run.id}: task {attempt.task} failed too often")
                    return [messages[task] for task in sorted(messages)], False
                attempts.append(self._launch(run, number, attempt.task, again, plan))
            if len(messages) == self.life.tasks:
                return [messages[task] for task in sorted(messages)], True

    def _launch(
        self, run: Run, number: int, task: int, attempt: int, plan: TransactionPlan
    ) -> Attempt:
        free = [worker for worker in run.workers if worker.free]
        if free and self.fate.random() >= self.life.new_worker:
            worker = self.fate.choice(free)
        else:
            token = f"{self.fate.getrandbits(48):012x}"
            kept = Worker(WorkerIds(token), ProducerCache())
            worker = PythonWorker(self.machine.process("worker"), kept)
            run.workers.append(worker)
        worker.busy = True
        found = Attempt(task, attempt, worker)
        self._attempts.append(found)
        identity = TaskIdentity(
            partition_id=task,
            attempt=attempt,
            task_attempt_id=len(self._attempts),
            query_id=QUERY,
            run_id=run.id,
            batch_id=number,
        )

        def body() -> None:
            try:
                found.message = self._write(worker, identity, plan)
                if self.fate.random() < self.life.fails / 2:
                    self.fired["= workers lost with a prepared transaction"] += 1
                    worker.process.kill()
            except KafkaError as error:
                self.note(f"{worker.process.name}: {type(error).__name__}: {error.message}")
                worker.lost = True  # Spark ends the worker of a task that raised
            finally:
                worker.busy = False
                found.ended = True

        worker.process.start(body, f"batch {number} task {task} attempt {attempt}")
        return found

    def _write(
        self, worker: PythonWorker, identity: TaskIdentity, plan: TransactionPlan
    ) -> TaskCommitMessage:
        producers = producers_of_task(
            plan,
            self._config("task"),
            None,
            identity,
            factory=lambda config, _: self._producer(worker.process, config),
            worker=worker.kept,
        )
        task = WriteTask(
            ColumnPlan(topic=TOPIC, value_column=0, partition_column=1),
            producers,
            identity,
            transaction_time=plan.time,
            monotonic_ms=self.scheduler.now_ms,
            wall_ms=self.scheduler.wall_ms,
        )
        if plan.is_done(identity):
            return task.drop(self._batches(identity), count=plan.verify)
        return task.run(self._batches(identity))

    def _producer(self, process: Process, config: ProducerConfig) -> KafkaProducer:
        network = process.network()
        self.note(f"{process.name} opens {config.transactional_id}")
        producer = KafkaProducer(
            config,
            clock=self.scheduler,
            new_client=lambda c, m, k: new_network_client(c, m, k, selector=network),
            start_thread=process.start,
        )
        process.guard(producer)
        return producer

    def _batches(self, identity: TaskIdentity) -> Iterator[pa.RecordBatch]:
        """The rows of a task, in two pieces."""
        rows = self.rows(identity.batch_id, identity.partition_id)
        half = len(rows) // 2
        for first, last in ((0, half), (half, len(rows))):
            yield _batch(rows, first, last, identity)
            if self.fate.random() < self.life.slow:
                self.scheduler.sleep(self.fate.randint(0, TIMEOUT_MS // 2))
            if self.fate.random() < self.life.fails:
                self.fired["= attempts that raised"] += 1
                raise KafkaError("the user's code raised")

    def rows(self, number: int, task: int) -> list[int]:
        """Partitions of the task's rows: of one task and batch always the same."""
        fate = random.Random(f"rows {self.life.seed} {number} {task}")
        if fate.random() < self.life.empty:
            return []
        return [fate.randrange(PARTITIONS) for _ in range(self.life.rows)]

    # -- what came of it --

    def _settle(self) -> None:
        """Let brokers end by time what nobody ended."""
        self.heal()
        for _ in range(8):
            self.scheduler.now += TIMEOUT_MS // 2
            for source in self.scheduler.sources:
                source.happen(self.scheduler.now)

    def happened(self) -> Counter[str]:
        """What was done to the query, and how its starts ended."""
        found = self.fired + self.cluster.fired
        for process in self.machine.processes:
            for network in process.networks:
                found += network.fired
        found += Counter(f"= struck: {s.role} {s.blow.value}" for s in self.machine.met)
        found += Counter(f"= starts ended by {type(e).__name__}" for _, _, e in self.errors)
        found["= batches"] += len(self.commits)
        return found

    def seen(self, *, committed: bool = True) -> dict[int, list[tuple[int, int, int, int]]]:
        """(batch, task, attempt, row) of each record, by partition, in the order of offsets."""
        found = {}
        for tp, log in self.cluster.logs.items():
            if tp.topic == TOPIC:
                records = log.records(committed=committed)
                found[tp.partition] = [_row(r.value or b"") for r in records]
        return found


def _row(value: bytes) -> tuple[int, int, int, int]:
    batch, task, attempt, row = value.split(b":")[:4]
    return int(batch), int(task), int(attempt), int(row)


def _batch(rows: list[int], first: int, last: int, identity: TaskIdentity) -> pa.RecordBatch:
    where = b"%d:%d:%d" % (identity.batch_id, identity.partition_id, identity.attempt)
    values = [b"%b:%d:" % (where, row) + b"x" * 40 for row in range(first, last)]
    return pa.RecordBatch.from_arrays(
        [pa.array(values, pa.binary()), pa.array(rows[first:last], pa.int32())],
        names=["value", "partition"],
    )


def _plan(state: CommitState) -> TransactionPlan:
    """What planning ships (``transaction_plan.plan_transactions``)."""
    return TransactionPlan(
        key=PREFIX,
        state=state,
        numbering=Numbering.STREAM,
        context=None,
        number=None,
        driver="",
        verify=True,
        transaction_timeout_ms=TIMEOUT_MS,
        log_topic=LOG_TOPIC,
    )


def owner_of(run_id: str, plan: TransactionPlan, query_id: str = QUERY) -> Owner:
    """Who commits what ``plan`` has planned."""
    state = plan.state
    return Owner(PREFIX, run_id, query_id, state.generation, state.incarnation)
