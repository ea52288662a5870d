"""What users do with the sink in the simulated world: queries, ``foreach_batch``, jobs; and what is
done to them.

:class:`Application` lives one of them through the code that Spark calls (``spark_sink.py``): each
planning, each commit and each abort is a call of a process of its own, which may be killed alone
or with its driver, frozen, or cut off. Beside it there may be a second start of the same query, a
stranger under its name, operators, other keys in the log's partition, a broker that nobody reaches.
"""

from __future__ import annotations

import logging
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeVar

import pyarrow as pa

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
    Worker,
    WorkerIds,
)
from spark_kafka_sink.datasource.foreach_batch import ForeachBatch, foreach_batch, transaction
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.producer_cache import ProducerCache
from spark_kafka_sink.datasource.write.write_task import TaskIdentity
from spark_kafka_sink.errors import (
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    PartialCommitError,
    SupersededError,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.partitioning.murmur2 import murmur2_of
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.committer import Commit
from spark_kafka_sink.transactions.decision_log import DecisionLog
from spark_kafka_sink.transactions.lease import lease_ms, margin_ms
from spark_kafka_sink.transactions.transactional_ids import log_id, log_key, parse
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.transaction_coordinator import State, Transaction
from tests.fakes.record_reader import parse_batch
from tests.simulation.processes import Blow, Process
from tests.simulation.scheduler import SimulationError
from tests.simulation.seeded_cluster import NODES
from tests.simulation.spark_sink import Frame, Planned, Sink, config_of
from tests.simulation.spark_world import (
    LOG_TOPIC,
    MOST_ATTEMPTS,
    MOST_RUNS,
    PARTITIONS,
    PATIENCE,
    PREFIX,
    QUERY,
    TIMEOUT_MS,
    TOPIC,
    Attempt,
    PythonWorker,
    Run,
    SparkLife,
    SparkWorld,
)

T = TypeVar("T")

OPERATIONS = ("sweep", "abort run", "commit", "look")

NAME = "sales"
SERVERS = "kafka.bootstrap.servers"
#: Rows of a stranger's batch 0 say that they are of batch 1000.
STRANGER = 1000
#: What one call may take in a world where nothing is wrong with it.
CALM_MS = 8_000
#: The log's transaction is open for so long at most: the lease, and a late scan for it.
LEASE_MS = lease_ms(TIMEOUT_MS) + 10_000
#: So long a driver believes what it knows of the brokers.
KNOWN_MS = 10_000
#: A broker is down, or cut off, for no longer, whatever happens.
_AWAY_MS = 30_000
#: So many others die in the log's partition, one after the other; more only take time.
_NEIGHBOURS = 60
#: Spark kills a task so long after it asked it to stop, and so long after that nothing may hang.
KILLED_MS, CLEAN_MS = 2_000, 5_000


class Kind(Enum):
    STREAM = "stream"
    FOREACH_BATCH = "foreach_batch"
    #: Two writes of a foreachBatch, decided together.
    TRANSACTION = "transaction"
    #: txnAppId and txnVersion: run again until it ends well.
    VERSIONS = "job with txnAppId"
    #: Never run again.
    JOB = "job"


@dataclass(frozen=True)
class ApplicationLife(SparkLife):
    """Probabilities are per batch, unless they say something else."""

    kind: Kind = Kind.STREAM
    #: Spark tells nothing of the query in a foreachBatch's tasks (Connect, a thread pool).
    connect: bool = False
    #: The user stops the query somewhere in the batch.
    stops: float = 0.0
    operators: float = 0.0
    #: Of a write that had no rows when it was run first.
    empty_first: float = 0.0
    #: Somebody else under the same name, once, when a batch is done: with this batch, or with 0.
    stranger_at: int | None = None
    stranger_query: str = QUERY
    #: Other keys are in the log's partition, and who writes them dies in it.
    crowded: bool = False
    #: A broker is registered that nobody reaches.
    unreachable: bool = False
    #: The rights to end transactions are gone for a while.
    rights: float = 0.0
    #: Of a task's attempt that begins late, when others have prepared long ago.
    late: float = 0.0
    late_ms: int = TIMEOUT_MS * 4 // 3
    #: Milliseconds for which a sweep's requests are on their way; the first InitProducerId, or
    #: AddPartitionsToTxn, of a task.
    late_sweeps: int = 0
    late_init: int = 0
    late_add: int = 0
    #: Down when the driver begins, back when its first batch is done.
    absent_node: int = 0
    marker_ms: int = 2
    #: The log's leader is cut off in the first commit, until another driver is in its own.
    deposed: bool = False
    #: So many answers about the end of the log's writes are lost.
    mute_log: int = 0
    #: So long nobody coordinates a transaction of the first decision.
    lost_coordinator: int = 0
    #: What operators do (``_operate``).
    operations: tuple[str, ...] = OPERATIONS
    #: How long nobody starts the query again.
    away_ms: tuple[int, ...] = (0, 100, 3_000)
    #: max.block.ms, request.timeout.ms, delivery.timeout.ms
    times_ms: tuple[int, int, int] = (20_000, 5_000, 20_000)

    @property
    def absences(self) -> bool:
        """Somebody may be away for so long that transactions end by time."""
        frozen = any(s.blow is Blow.FREEZE and s.ms > 15_000 for s in self.strikes)
        return frozen or max(self.away_ms) > 15_000

    @property
    def calm(self) -> bool:
        """Nothing but the situation itself may disturb it."""
        disturbed = (
            self.strikes,
            self.rights,
            self.slow,
            self.late,
            self.late_init,
            self.late_add,
            self.mute_log,
            self.deposed,
            self.lost_coordinator,
        )
        return self.heals_after_ms is None and not any(disturbed)


class Outcome(Enum):
    UNDER_WAY = "under way"
    TOLD = "told as written"
    FAILED = "failed"
    #: The error says that it may be written, or is in part.
    DOUBTFUL = "doubtful"


@dataclass(eq=False)
class Write:
    """One call of ``save()``, or one micro-batch of a stream, by one start of the application."""

    run: Start
    number: int
    #: Its rows say that they are of this batch.
    tag: int
    options: dict[str, str]
    streaming: bool
    query: str
    empty: bool = False
    #: Of a transaction of several writes: which one; None for the one that ends it.
    part: int | None = None
    planned: Planned = b""
    messages: Sequence[TaskCommitMessage] = ()
    outcome: Outcome = Outcome.UNDER_WAY
    how: Commit | None = None
    error: KafkaError | None = None

    @property
    def batch_id(self) -> int | None:
        return self.number if self.streaming else None


@dataclass(eq=False)
class Start(Run):
    """One start of the application: its driver, and what of it is known."""

    begun_ms: int = 0
    #: When it ended, or was killed.
    died_ms: int = NEVER
    failed: bool = False
    stopped: bool = False
    #: Spark has called abort for it.
    undone: bool = False
    #: Processes that wait for the next call, by role.
    pool: dict[str, Process] = field(default_factory=dict)
    query: str = QUERY
    #: What its user made for foreachBatch, in this driver.
    writer: ForeachBatch | None = None

    @property
    def token(self) -> str:
        """The driver's, in transactional ids."""
        return f"d{self.process.nth}{self.process.role[0]}"


@dataclass(frozen=True)
class End:
    """How a coordinator decided about a prepared transaction."""

    committed: bool
    at_ms: int
    #: How long it had been open.
    age_ms: int


class Application(SparkWorld):
    """``live`` is called once; ``judge`` then says what was broken."""

    life: ApplicationLife

    def __init__(self, life: ApplicationLife) -> None:
        super().__init__(life)
        self.sink = Sink(self.machine, life.seed, warm=life.warm_driver)
        self.writes: list[Write] = []
        self.broken: list[str] = []
        #: Those that were committed, in this order.
        self.order: list[Write] = []
        #: By (transactional id, producer id, epoch) of a prepared transaction.
        self.ends: dict[tuple[str, int, int], End] = {}
        #: What the log says now, and of that the transactions that are to be committed.
        self._logged: CommitState | None = None
        self._standing: set[tuple[str, int, int]] = set()
        self._opened: dict[str, Start] = {}
        self._said: Counter[Process] = Counter()
        self._torn = False
        #: Starts that ran beside each other.
        self.pairs: list[tuple[Start, Start]] = []
        self._warned_by = False
        self._healed = self._lost = False
        self._deposed: int | None = None
        self.machine.stop = self._stop_now
        self._lay()
        self._helped: list[Process] = []
        self.cluster.on_decided = self._decided
        block, request, delivery = life.times_ms
        self._given = {
            SERVERS: "127.0.0.1:9093,127.0.0.1:9094,127.0.0.1:9095",
            "topic": TOPIC,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": PREFIX,
            "commitLogTopic": LOG_TOPIC,
            "kafka.request.timeout.ms": str(request),
            "kafka.delivery.timeout.ms": str(delivery),
            "kafka.max.block.ms": str(block),
            "kafka.transaction.timeout.ms": str(TIMEOUT_MS),
            "kafka.buffer.memory": "1000000",
            "kafka.batch.size": "200",
        }
        if life.calm:
            self.scheduler.lost_ms = (1, 2, 7)
        if life.crowded:
            self.cluster.create_topic(LOG_TOPIC, 1, configs={"cleanup.policy": "compact"})
        if life.unreachable:
            self.cluster.brokers[NODES + 1] = 9092 + NODES + 1
            self.machine.ports[9092 + NODES + 1] = NODES + 1
            self.cluster.unreachable.add(NODES + 1)

    def _lay(self) -> None:
        """What is laid in the way from the beginning."""
        life, control = self.life, self.cluster.control
        self.cluster.marker_ms = life.marker_ms
        if life.absent_node and not life.deposed:
            # It is down when the first driver learns who there is.
            self.cluster.stop_broker(life.absent_node)
            self.timeline.after(_AWAY_MS, self._absent_is_back)
        if life.late_sweeps:
            for api in (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN):
                control.hold(api, life.late_sweeps, FOREVER, where=self._sweeps)
        if life.late_init:
            control.hold(ApiKey.INIT_PRODUCER_ID, life.late_init, nth=1, where=_is_a_tasks)
        if life.late_add:
            control.hold(ApiKey.ADD_PARTITIONS_TO_TXN, life.late_add, nth=1)
        if life.mute_log:
            own = log_id(self.key)
            control.drop(
                ApiKey.END_TXN, life.mute_log, where=lambda r: r.body.transactional_id == own
            )

    @property
    def key(self) -> str:
        named = self.life.kind in (Kind.FOREACH_BATCH, Kind.TRANSACTION, Kind.VERSIONS)
        return log_key(PREFIX, NAME if named else None)

    # -- a life --

    def live(self) -> None:
        with self.sink.in_place(), self._listening():
            super().live()

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Which process warned of something."""
        logger = logging.getLogger("spark_kafka_sink")
        before = (logger.propagate, logger.level, logging.root.manager.disable)
        handler = _Listener(self._warned)
        logger.addHandler(handler)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
        logging.disable(logging.NOTSET)
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate, logger.level = before[:2]
            logging.disable(before[2])

    def _warned(self, text: str) -> None:
        task = self.scheduler.current
        if task is not None:
            self.note(f"warning: {text}")
            found = next((p for p in self.machine.processes if task in p.tasks), None)
            if found is not None:
                self._said[found] += 1

    def _query(self) -> None:
        life, fate = self.life, self.fate
        if life.crowded:
            self._start_neighbour()
        while len(self.commits) < life.batches and not self._torn:
            # (Two may have been started at once.)
            if len(self._runs) >= PATIENCE and not self._healed:
                self.heal()
            if len(self._runs) >= MOST_RUNS:
                raise SimulationError(f"it is not done after {MOST_RUNS} starts")
            run = self._start()
            if fate.random() < life.twice:
                self.scheduler.sleep(fate.randint(0, 900))
                other = self._start()
                self.pairs.append((run, other))
                self.scheduler.block(lambda r=other: r.ended or r.process.dead, NEVER)
            self.scheduler.block(lambda r=run: r.ended or r.process.dead, NEVER)
            if len(self.commits) < life.batches:
                self.scheduler.sleep(fate.choice(life.away_ms))
        self.scheduler.block(lambda: all(r.ended or r.process.dead for r in self._runs), NEVER)
        self.note("all is done")
        self.scheduler.block(lambda: all(a.over for a in self._attempts), NEVER)
        self.scheduler.block(lambda: all(_is_over(p) for p in self._helped), NEVER)

    def _start(self) -> Start:
        run = Start(
            f"run-{len(self._runs)}",
            self.machine.process("driver"),
            begun_ms=self.scheduler.now,
        )
        self._runs.append(run)
        run.process.start(lambda: self._drive(run), "batches")
        self._watch(run)
        return run

    def _watch(self, run: Start) -> None:
        """When it died."""
        true = run.process.kill

        def kill() -> None:
            run.died_ms = min(run.died_ms, self.scheduler.now)
            true()

        run.process.kill = kill

    def _drive(self, run: Run) -> None:
        assert isinstance(run, Start)
        life, fate = self.life, self.fate
        try:
            while len(self.commits) < life.batches and not self._torn:
                number = len(self.commits)
                if life.kind is Kind.JOB:
                    self.commits.append(number)
                if fate.random() < life.stops and len(self._runs) < PATIENCE:
                    self._stop_soon(run)
                if fate.random() < life.operators and len(self._runs) < PATIENCE:
                    self._operate_soon()
                try:
                    self._one(run, number)
                except KafkaError as error:
                    self.note(f"{run.id}: {type(error).__name__}: {error.message}")
                    self.errors.append((run.id, number, error))
                    # (Not before: the end of a transaction that failed hides its own errors, and
                    # the next start tells of the torn batch.)
                    if isinstance(error, PartialCommitError):
                        self._torn = True
                    run.failed = True
                    if life.kind is Kind.JOB and not run.stopped:
                        continue
                    return
                self.note(f"{run.id}: Spark notes batch {number}")
                if len(self.commits) == number:
                    self.commits.append(number)
                self._noted(run, number)
                if number == 0 and life.stranger_at is not None and run is self._runs[0]:
                    self._start_stranger()
        finally:
            run.ended = True
            run.died_ms = min(run.died_ms, self.scheduler.now)

    def _noted(self, run: Start, number: int) -> None:
        """Spark has noted the batch."""
        if number == 0 and self.life.absent_node and len(self.commits) < self.life.batches:
            self._absent_is_back()
            self.scheduler.sleep(KNOWN_MS + 2_000)  # until the next trigger

    def _absent_is_back(self) -> None:
        if self.life.absent_node in self.cluster.down:
            self.cluster.start_broker(self.life.absent_node)

    def _one(self, run: Start, number: int, tag: int | None = None) -> None:
        """A batch of the application."""
        kind, tag = self.life.kind, number if tag is None else tag
        options = self._options_of(run)
        empty = (
            kind is Kind.VERSIONS
            and not any(w.tag == tag for w in self.writes)
            and self.fate.random() < self.life.empty_first
        )
        write = Write(run, number, tag, options, kind is Kind.STREAM, run.query, empty)
        query = None if self.life.connect else run.query
        if kind is Kind.FOREACH_BATCH:
            if run.writer is None:
                run.writer = foreach_batch(NAME, **options)

            def save(given: dict[str, str], _: int | None) -> None:
                write.options = given
                self._save(write)

            run.writer(Frame(save, query), number)  # type: ignore[arg-type]
            return
        if kind is Kind.TRANSACTION:
            self._transaction(run, number, tag, query)
            return
        if kind is Kind.VERSIONS:
            options |= {"txnAppId": NAME, "txnVersion": str(number)}
        self._save(write)
        if empty:
            self._one(run, number, tag)

    def _options_of(self, run: Start) -> dict[str, str]:
        """Later drivers know the broker only that is cut off."""
        options = dict(self._given)
        if self._deposed is not None and run is not self._runs[0]:
            options[SERVERS] = f"127.0.0.1:{9092 + self._deposed}"
        return options

    def _transaction(self, run: Start, number: int, tag: int, query: str | None) -> None:
        """Two writes that are decided together by a third one, which has no rows."""
        parts: list[Write] = []

        def save(given: dict[str, str], part: int | None) -> None:
            write = Write(run, number, tag, given, False, run.query, part=part)
            parts.append(write)
            self._save(write)

        with transaction(NAME, number, **self._options_of(run)) as writes:
            for part in range(2):
                writes.write(Frame(save, query, part))  # type: ignore[arg-type]
        for write in parts:
            write.outcome = Outcome.TOLD

    def _save(self, write: Write) -> None:
        self.writes.append(write)
        try:
            self._write_batch(write)
        except KafkaError as error:
            write.error = error
            doubtful = isinstance(
                error, CommitOutcomeUnknownError | PartialCommitError | LostCallError
            )
            write.outcome = Outcome.DOUBTFUL if doubtful else Outcome.FAILED
            if not doubtful:
                self._check_failed(write)
            raise
        if write.part is None:
            write.outcome = Outcome.TOLD

    def _write_batch(self, write: Write) -> None:
        run, sink = write.run, self.sink
        write.planned = self._call(
            run,
            "plan",
            lambda: sink.plan(write.options, streaming=write.streaming, driver=run.token),
        )
        self._check_planned(run)
        messages, whole = self._tasks(write)
        write.messages = messages
        if not whole:
            self._undo(write, tasks_may_run=True)
            raise LostCallError("the user stopped it" if run.stopped else "a task failed too often")
        if not self._healed and self.fate.random() < self.life.rights:
            self._take_rights()
        begun, at_work = self.scheduler.now, self._at_work(run)
        try:
            how = self._call(
                run,
                "commit",
                lambda: sink.commit(write.options, write.planned, messages, write.batch_id),
            )
        except KafkaError as error:
            given_up = "was aborted, and commits nothing" in error.message
            stream = self.life.kind is Kind.STREAM  # (A transaction's own end may abort it.)
            if given_up and stream and not run.undone and not self.life.operators:
                self._breaks(f"{run.id} was aborted, and not by its own driver")
            self._undo(write, tasks_may_run=False)
            raise
        self.fired[f"= commits: {how.value}"] += 1
        if how is Commit.COMMITTED:
            self.fired[f"= committed: {self.life.kind.value}"] += 1
        write.how = how
        if how is Commit.COMMITTED:
            self.order.append(write)
        if how is not Commit.PREPARED:
            context = pickle.loads(write.planned).context
            aborts = context is not None and context.abort
            self._check_nothing_hangs(write, begun, "abort" if aborts else "commit")
            self._check_noted(write)
            if not at_work:
                self._check_swept_for_good(run, begun)

    def _undo(self, write: Write, *, tasks_may_run: bool) -> None:
        """Spark's abort, and the end of its tasks."""
        run, begun = write.run, self.scheduler.now
        run.undone = True
        if tasks_may_run:
            self.timeline.after(self.fate.choice((0, 500, KILLED_MS)), lambda: _kill_busy(run))
        try:
            swept = self._call(
                run,
                "commit",
                lambda: self.sink.abort(
                    write.options,
                    write.planned,
                    write.messages,
                    write.batch_id,
                    tasks_may_run=tasks_may_run,
                    driver=run.token,
                ),
                stoppable=False,
            )
        except KafkaError as error:
            self.note(f"{run.id}: abort: {type(error).__name__}: {error.message}")
            return
        self.fired["= aborts that ended well"] += 1
        self.fired["= orphans swept by an abort"] += len(swept)
        if tasks_may_run:
            self.scheduler.sleep(CLEAN_MS)
        self._check_nothing_hangs(write, begun, "abort")

    def _call(self, run: Start, role: str, what: Callable[[], T], *, stoppable: bool = True) -> T:
        """``what``, by a Python process of the driver's. LostCallError when that dies, or the user
        stops the query meanwhile: then it goes on, and nobody waits for it.
        """
        process = run.pool.pop(role, None)
        if process is None or process.dead:
            process = self.machine.process(role, run.process)
        process.marks.clear()
        if role == "commit" and self.life.deposed:
            if self._deposed is None:
                self._depose()
            elif run is not self._runs[0]:
                self._rejoin_soon()
        found: list[T] = []
        failed: list[KafkaError] = []
        begun, said = self.scheduler.now, self._said[process]

        def body() -> None:
            try:
                found.append(what())
            except KafkaError as error:
                failed.append(error)

        task = process.start(body, role)

        def over() -> bool:
            return task.done or process.dead or (stoppable and run.stopped)

        self.scheduler.block(over, NEVER)
        self._warned_by = self._said[process] > said
        if failed:
            raise failed[0]
        if not found:
            raise LostCallError(f"the process of the {role} is gone")
        if self.life.warm_driver:
            run.pool[role] = process
        took = self.scheduler.now - begun
        if self.life.calm and not self.life.late_sweeps and took > CALM_MS:
            self._breaks(f"{run.id}: {role} took {took} ms")
        return found[0]

    # -- tasks --

    def _tasks(self, write: Write) -> tuple[list[TaskCommitMessage], bool]:
        """The message of each task that has one; False when not all have."""
        run, life = write.run, self.life
        attempts = [self._attempt(write, task, 0) for task in range(life.tasks)]
        if self.fate.random() < life.speculative:
            task = self.fate.randrange(life.tasks)
            attempts.append(self._attempt(write, task, MOST_ATTEMPTS))
            self.fired["= speculative attempts"] += 1
        messages: dict[int, TaskCommitMessage] = {}
        while True:
            self.scheduler.block(lambda: run.stopped or any(a.over for a in attempts), NEVER)
            for attempt in [a for a in attempts if a.over]:
                attempts.remove(attempt)
                if attempt.task in messages:
                    continue
                if attempt.message is not None and not attempt.worker.process.dead:
                    messages[attempt.task] = attempt.message
                    continue
                if any(a.task == attempt.task for a in attempts):
                    continue
                again = attempt.number % MOST_ATTEMPTS + 1
                if again == MOST_ATTEMPTS:
                    return [messages[task] for task in sorted(messages)], False
                attempts.append(self._attempt(write, attempt.task, again))
            if len(messages) == life.tasks:
                _kill_soon(self, run, attempts)
                return [messages[task] for task in sorted(messages)], True
            if run.stopped:
                return [messages[task] for task in sorted(messages)], False

    def _attempt(self, write: Write, task: int, number: int) -> Attempt:
        run, life = write.run, self.life
        free = [worker for worker in run.workers if worker.free]
        if free and self.fate.random() >= life.new_worker:
            worker = self.fate.choice(free)
        else:
            token = f"{self.fate.getrandbits(48):012x}"
            kept = Worker(WorkerIds(token), ProducerCache())
            process = self.machine.process("worker", run.process, dies_with_it=False)
            worker = PythonWorker(process, kept)
            run.workers.append(worker)
        worker.busy = True
        found = Attempt(task, number, worker)
        self._attempts.append(found)
        jobs = (Kind.VERSIONS, Kind.JOB)
        told = write.streaming or (life.kind not in jobs and not life.connect)
        identity = TaskIdentity(
            partition_id=task,
            attempt=number,
            task_attempt_id=len(self._attempts),
            query_id=write.query if told else "",
            run_id=run.id if told else "",
            batch_id=write.number if told else -1,
        )

        def body() -> None:
            try:
                found.message = self.sink.write(
                    worker,
                    write.options | {SERVERS: self._given[SERVERS]},
                    write.planned,
                    identity,
                    self._rows_of(write, identity),
                    ColumnPlan(topic=TOPIC, value_column=0, partition_column=1),
                )
                if found.message.prepared is not None and self.fate.random() < life.fails / 2:
                    self.fired["= workers lost with a prepared transaction"] += 1
                    worker.process.kill()
            except KafkaError as error:
                self.note(f"{worker.process.name}: {type(error).__name__}: {error.message}")
                worker.lost = True
            finally:
                worker.busy = False
                found.ended = True

        worker.process.start(body, f"batch {write.number} task {task} attempt {number}")
        return found

    def _rows_of(self, write: Write, identity: TaskIdentity) -> Iterator[pa.RecordBatch]:
        if not self._healed and self.fate.random() < self.life.late:
            self.scheduler.sleep(self.fate.randint(0, self.life.late_ms))
        rows = self._partitions(write, identity.partition_id)
        half = len(rows) // 2
        for first, last in ((0, half), (half, len(rows))):
            task = identity.partition_id + 100 * (write.part or 0)
            where = b"%d:%d:%d" % (write.tag, task, identity.attempt)
            values = [b"%b:%d:" % (where, row) + b"x" * 40 for row in range(first, last)]
            yield pa.RecordBatch.from_arrays(
                [pa.array(values, pa.binary()), pa.array(rows[first:last], pa.int32())],
                names=["value", "partition"],
            )
            may_be_slow = not self._healed and write.tag < STRANGER
            if may_be_slow and self.fate.random() < self.life.slow:
                self.scheduler.sleep(self.fate.randint(0, TIMEOUT_MS // 2))
            if self.fate.random() < self.life.fails:
                self.fired["= attempts that raised"] += 1
                raise KafkaError("the user's code raised")

    def _partitions(self, write: Write, task: int) -> list[int]:
        """Of each row of a task: the same each time, unless it had none at first."""
        task += 100 * (write.part or 0)
        ends = self.life.kind is Kind.TRANSACTION and write.part is None
        rows = [] if write.empty or ends else self.rows(write.tag, task)
        # A stranger's batch has other rows, and more of them.
        return [*rows, 0, 1] if write.tag >= STRANGER and not ends else rows

    # -- what is done to it --

    def heal(self) -> None:
        super().heal()
        self._healed = True
        self.cluster.marker_ms = 2

    def _stop_now(self, process: Process) -> None:
        """The user stops the query whose call ``process`` makes."""
        for run in self._runs:
            if run.process is process.parent and isinstance(run, Start):
                run.stopped = True

    def _depose(self) -> None:
        """The log's leader is cut off, and the next driver knows no other broker."""
        partition = 0 if self.life.crowded else (murmur2_of(self.key.encode()) & 0x7FFFFFFF) % 16
        log = self.cluster.logs.get(TopicPartition(LOG_TOPIC, partition))
        if log is None or log.leader < 0:
            return
        self._deposed = node = log.leader
        self.fired["= the log's leader was deposed"] += 1
        self.cluster.cut_off(node)
        self.timeline.after(_AWAY_MS, lambda: self.cluster.rejoin(node))

    def _rejoin_soon(self) -> None:
        """When the next driver has read the log there, and can't write to it."""
        node = self._deposed
        assert node is not None
        self.timeline.after(self.fate.randint(500, 4_000), lambda: self.cluster.rejoin(node))

    def _stop_soon(self, run: Start) -> None:
        def stop() -> None:
            if not run.ended and not run.process.dead:
                self.fired["= stopped by the user"] += 1
                self.note(f"{run.id}: the user stops it")
                run.stopped = True

        self.timeline.after(self.fate.choice((5, 20, 40, 60, 100, 200, 600, 2_000)), stop)

    def _start_stranger(self) -> None:
        """Another query under the same name: with a new checkpoint, or a copied one."""
        life = self.life
        assert life.stranger_at is not None
        run = Start("run-s", self.machine.process("stranger"), begun_ms=self.scheduler.now)
        run.query = life.stranger_query
        self._runs.append(run)
        self._watch(run)
        number = life.stranger_at
        self.fired["= strangers under the same name"] += 1

        def body() -> None:
            try:
                self._one(run, number, STRANGER + number)
            except KafkaError as error:
                self.note(f"stranger: {type(error).__name__}: {error.message}")
            finally:
                run.ended = True

        run.process.start(body, "a batch")

    def _start_neighbour(self) -> None:
        """Writes its own key into the log's partition, and dies before the end of each write."""
        self.cluster.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=_is_neighbours)

        def one(number: int) -> None:
            if len(self.commits) >= self.life.batches or number == _NEIGHBOURS:
                return
            process = self.machine.process("neighbour")
            self._helped.append(process)

            def body() -> None:
                config = config_of(tuple(self._given.items())).producer
                client = TransactionClient(
                    config, clock=self.scheduler, new_client=self.sink._client(process)
                )
                log = DecisionLog(client, LOG_TOPIC)
                self.timeline.after(5_000, process.kill)
                deadline = self.scheduler.now + 20_000
                try:
                    log.open(f"eu{number}", deadline).write(
                        CommitState(generation=1, run_id="theirs"), deadline
                    )
                except KafkaError:
                    return

            process.start(body, "writes")
            self.timeline.after(700, lambda: one(number + 1))

        one(0)

    def _take_rights(self) -> None:
        """An administrator's mistake, for seconds: data transactions may not be ended."""
        self.fired["= rights taken"] += 1
        own = log_id(self.key)
        fault = self.cluster.control.answer(
            ApiKey.END_TXN,
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            FOREVER,
            nth=self.fate.choice((1, 1, 2)),
            where=lambda r: r.body.transactional_id != own,
        )
        self.timeline.after(3_000, lambda: setattr(fault, "times", fault.fired))

    def _sweeps(self, request: Request) -> bool:
        """It ends, or fences, a transaction that no task has told of."""
        body = request.body
        if not _is_a_tasks(request) or getattr(body, "committed", False):
            return False
        told = {
            m.prepared.transactional_id
            for write in self.writes[-2:]
            for m in write.messages
            if m.prepared is not None
        }
        from_driver = request.client_id != "spark-kafka-sink"
        return from_driver and str(body.transactional_id) not in told

    def _operate_soon(self) -> None:
        """``kprod txn`` by somebody who knows no better time."""
        what = self.fate.choice(self.life.operations)
        self.timeline.after(
            self.fate.choice((5, 30, 60, 100, 200, 1_000)), lambda: self._operate(what)
        )

    def _operate(self, what: str) -> None:
        if len(self.commits) >= self.life.batches:
            return
        process = self.machine.process("operator")
        self._helped.append(process)
        run = self._runs[-1].id

        def body() -> None:
            try:
                with self.sink.operator(self._given) as operator:
                    if what == "sweep":
                        operator.end(operator.plan_sweep(PREFIX, force=True))
                    elif what == "abort run":
                        operator.end(operator.plan_abort_run(PREFIX, run))
                    elif what == "commit":
                        operator.commit(operator.plan_commit(self.key))
                    else:
                        operator.inspector.overview(PREFIX)
                self.fired[f"= operators: {what}"] += 1
            except KafkaError as error:
                self.note(f"operator: {what}: {type(error).__name__}: {error.message}")

        process.start(body, what)

    # -- what is seen meanwhile --

    def _decided(self, transaction: Transaction, committed: bool) -> None:
        epoch = transaction.epoch - (1 if self._epoch_moved(transaction, committed) else 0)
        key = (transaction.transactional_id, transaction.producer_id, epoch)
        age = self.scheduler.now - transaction.start_ms
        self.ends.setdefault(key, End(committed, self.scheduler.now, age))
        if not committed and key in self._standing:
            # (The oldest may be about to time out: then all are undone.)
            known = self.cluster.transactions.transactions
            oldest = min(known[one].start_ms for one, _, _ in self._standing)
            if self.scheduler.now - oldest < TIMEOUT_MS - margin_ms(TIMEOUT_MS) // 4:
                self._breaks(f"decided, and {key[0]} is aborted when it is open for {age} ms")
            self._standing.clear()  # one was over: the others may be undone
        if committed and transaction.transactional_id == log_id(self.key):
            self._check_decision(transaction)
            for process in self.machine.processes[-40:]:
                if process.role == "commit" and not process.dead:
                    process.mark("decided")

    def _check_decision(self, of_the_log: Transaction) -> None:
        """A decision stands on transactions that live for a while: what was checked behind the
        beginning of ``of_the_log`` is in the log within the lease, or never.
        """
        life, now = self.life, self.scheduler.now
        before, self._logged = self._logged, self._newest()
        state = self._logged
        decision = None if state is None or state.lost else state.decision
        decided = () if decision is None else decision.ids
        self._standing = {
            (t.transactional_id, t.producer_id, t.producer_epoch)
            for t in (() if decision is None else decision.transactions)
        }
        if self._logged is not None and before is not None:
            owner = self._logged.run_id
            if owner not in ("", before.run_id):
                if self._logged.generation <= before.generation:
                    self._breaks(f"{owner} took over, and the generation did not move")
                if owner in before.superseded:
                    self._breaks(f"{owner} took over, and was superseded before")
        for standing in self._standing:
            if standing in self.ends and not self.ends[standing].committed:
                self._breaks(f"decided, and {standing[0]} was aborted before")
        took = now - of_the_log.start_ms
        if took > LEASE_MS:
            self._breaks(f"the log's transaction was open for {took} ms")
        most = TIMEOUT_MS - margin_ms(TIMEOUT_MS) + took
        is_new = before is None or before.decision != decision
        for one in decided if is_new else ():
            found = self.cluster.transactions.find(one)
            if found is None or found.state is not State.ONGOING:
                continue
            if now - found.start_ms > most:
                self._breaks(f"decided, and {one} is open for {now - found.start_ms} ms")
        if life.lost_coordinator and decided and not self._lost:
            self._lost = True
            self.fired["= a coordinator was lost behind the decision"] += 1
            self.cluster.move_coordinator(
                decided[0], self.fate.randint(1, NODES), resigned_ms=life.lost_coordinator
            )

    @staticmethod
    def _epoch_moved(transaction: Transaction, committed: bool) -> bool:
        """A fence raises it, and every end of version 2."""
        return transaction.version >= 2 or (not committed and transaction.last_epoch == -1)

    def _check_failed(self, write: Write) -> None:
        """P4: whoever is told that it failed is told the truth."""
        committed = [
            message.prepared.transactional_id
            for message in write.messages
            if message.prepared is not None
            and (end := self.end_of(message)) is not None
            and end.committed
        ]
        if committed:
            self._breaks(
                f"{write.run.id}: batch {write.number} is called failed "
                f"({type(write.error).__name__}), and {committed} are committed"
            )
        ours = {m.prepared.transactional_id for m in write.messages if m.prepared is not None}
        if ours & set(self._decided_ids()):
            self._breaks(
                f"{write.run.id}: batch {write.number} is called failed "
                f"({type(write.error).__name__}), and it is decided"
            )
        if isinstance(write.error, SupersededError) and self.life.calm:
            self._check_superseded(write)

    def _check_superseded(self, write: Write) -> None:
        """Who has to stop for another one finds that one in the log."""
        context = pickle.loads(write.planned).context if write.planned else None
        own = write.run.id if context is None else context.run
        state = self._newest()
        if state is None or (state.run_id == own and own not in state.superseded):
            self._breaks(f"{write.run.id}: superseded by nobody: {write.error}")

    def _check_planned(self, run: Start) -> None:
        """Nothing is planned over a decision that nobody ends. (Planning may read at a leader that
        was deposed; the commit does not.)
        """
        if self._deposed is not None or self.life.cluster.cut_off:
            return
        others = [
            p
            for p in self.machine.processes
            if p.role in ("commit", "plan", "operator", "driver", "stranger")
            and p is not run.process
            and not _is_over(p)
        ]
        if not others and self._decided_ids():
            self._breaks(f"{run.id}: planned over a decision")

    def _check_nothing_hangs(self, write: Write, begun: int, what: str) -> None:
        """P5: of what was open when the call began, and is this run's or a dead one's, nothing is
        open now; unless it said that it could not see to that, or a task of it still runs.
        """
        run = write.run
        if self.cluster.moved_ms >= begun or self.cluster.up_ms >= begun - KNOWN_MS:
            # An id that moves is in nobody's list for a moment, and a broker that came back is
            # known a moment later.
            return
        if self._warned_by or self._at_work(run):
            return
        context = pickle.loads(write.planned).context
        own = run.id if context is None else context.run
        dead = [
            r
            for r in self._runs
            if isinstance(r, Start)
            and r.died_ms < run.begun_ms
            and what == "commit"
            and write.how is not Commit.ALREADY_DONE  # who drops a batch may not own the key
            and self.life.kind is not Kind.JOB
            and r.query == run.query
        ]
        self.fired[f"= looks for what hangs after {'an' if what == 'abort' else 'a'} {what}"] += 1
        decided = self._decided_ids()
        hangs = sorted(
            t.transactional_id
            for t in self.cluster.transactions.transactions.values()
            if t.state is State.ONGOING
            and t.transactional_id not in decided
            and t.start_ms < begun
            and (run_of(t) == own or (dead and self._opened_by(t) in dead))
        )
        hangs += sorted(
            t.transactional_id
            for t in self.cluster.transactions.transactions.values()
            if t.state is State.EMPTY
            and what == "commit"
            and self.life.transaction_version >= 2
            and t.epoch >= 0
            and t.since_ms < begun
            and run_of(t) == own
        )
        if hangs:
            self._breaks(f"{run.id}: open behind the {what} of {write.number}: {hangs}")

    def _at_work(self, run: Run) -> bool:
        return any(a.worker in run.workers and not a.over for a in self._attempts)

    def _check_swept_for_good(self, run: Run, begun: int) -> None:
        """What was ended is not found again by the next commit: only a sweep could have given these
        ids an identity. (With version 1 it does, and leaves them alone then.)
        """
        life = self.life
        bad = life.heals_after_ms is not None or life.late_init or life.transaction_version < 2
        if self._warned_by or bad:
            return
        empty = [
            t.transactional_id
            for t in self.cluster.transactions.transactions.values()
            if t.state is State.EMPTY and t.since_ms >= begun and run_of(t) == run.id
        ]
        if empty:
            self._breaks(f"{run.id}: swept, and to be swept again: {empty}")

    def _check_noted(self, write: Write) -> None:
        """What is committed is not called decided any more, unless it said so."""
        if self._warned_by or not self.life.calm or self.life.twice or self.life.operators:
            return
        if self._decided_ids():
            self._breaks(f"{write.run.id}: batch {write.number} is not noted as done")

    def _decided_ids(self) -> tuple[str, ...]:
        """What the log says is to be committed, whether its markers are written or not."""
        state = self._newest()
        return () if state is None or state.decision is None else state.decision.ids

    def _newest(self) -> CommitState | None:
        """What is written last under the key, unless it is aborted."""
        name = self.key.encode()
        for tp, log in self.cluster.logs.items():
            if tp.topic != LOG_TOPIC:
                continue
            for batch in reversed(log.batches):
                if batch.control or log.is_aborted(batch):
                    continue
                for record in reversed(parse_batch(batch.data).records):
                    if record.key == name:
                        value = record.value
                        return None if value is None else CommitState.decode(self.key, value)
        return None

    def _breaks(self, what: str) -> None:
        self.note(f"BROKEN: {what}")
        self.broken.append(what)

    def _opened_by(self, transaction: Transaction) -> Start | None:
        for run in self._runs:
            tokens = {worker.kept.ids.token for worker in run.workers}
            if any(token in transaction.transactional_id for token in tokens):
                assert isinstance(run, Start)
                return run
        return None

    @property
    def partial(self) -> list[Write]:
        """Those of which somebody was told that they are visible in part."""
        numbers = {n for _, n, e in self.errors if isinstance(e, PartialCommitError)}
        return [write for write in self.writes if write.number in numbers]

    def was_struck(self, write: Write) -> bool:
        """Its driver is dead, or was away, so that nobody ended it."""
        return write.outcome is not Outcome.TOLD

    def end_of(self, message: TaskCommitMessage) -> End | None:
        found = message.prepared
        assert found is not None
        return self.ends.get((found.transactional_id, found.producer_id, found.producer_epoch))

    def torn(self) -> list[tuple[Write, list[End | None]]]:
        """Writes of which some transactions were committed and some were not."""
        found = []
        for write in self.writes:
            ends = [self.end_of(m) for m in write.messages if m.prepared is not None]
            if len({end is not None and end.committed for end in ends}) > 1:
                found.append((write, ends))
        return found

    def rows(self, number: int, task: int) -> list[int]:
        fate = random.Random(f"rows {self.life.seed} {number} {task}")
        if fate.random() < self.life.empty:
            return []
        return [fate.randrange(PARTITIONS) for _ in range(self.life.rows)]

    def wanted(self, write: Write) -> set[tuple[int, int, int]]:
        """(batch, task, row) of a write that was told as written."""
        return {
            (write.tag, task + 100 * (write.part or 0), row)
            for task in range(self.life.tasks)
            for row in range(len(self._partitions(write, task)))
        }


class LostCallError(KafkaError):
    """Nobody knows what became of it: its process died, or nobody waited for it."""


class _Listener(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


def run_of(transaction: Transaction) -> str:
    found = parse(transaction.transactional_id)
    return "" if found is None else found.run


def _is_a_tasks(request: Request) -> bool:
    return "~~" not in str(request.body.transactional_id)


def _is_neighbours(request: Request) -> bool:
    return str(request.body.transactional_id).startswith("eu")


def _is_over(process: Process) -> bool:
    return process.dead or all(task.done for task in process.tasks)


def _kill_busy(run: Run) -> None:
    for worker in run.workers:
        if worker.busy:
            worker.process.kill()


def _kill_soon(world: Application, run: Run, beaten: Sequence[Attempt]) -> None:
    """Spark kills the attempts that were beaten, soon."""
    workers = [attempt.worker for attempt in beaten]

    def kill() -> None:
        for worker in workers:
            if worker.busy:
                worker.process.kill()

    if workers:
        world.timeline.after(world.fate.choice((0, 500, KILLED_MS)), kill)
