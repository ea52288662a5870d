"""What users do with the sink in the simulated world: queries, ``foreach_batch``, jobs; and what is
done to them.

:class:`Application` lives one of them through the code that Spark calls (``spark_sink.py``): each
planning, each commit and each abort is a call of a process of its own, which may be killed alone
or with its driver, frozen, or cut off. Beside it there may be a second start of the same query, a
stranger under its name, operators, other keys in the log's partition, an unreachable broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    BatchError,
    CommitOutcomeUnknownError,
    ConfigError,
    KafkaError,
    PartialCommitError,
)
from spark_kafka_sink.datasource.foreach_batch import foreach_batch
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.committer import KILLED_AFTER_MS
from spark_kafka_sink.transactions.driver_transactions import TopicRecord
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_key
from tests.simulation.processes import Process
from tests.simulation.scheduler import SimulationError
from tests.simulation.spark_application_life import ApplicationLife, Kind
from tests.simulation.spark_application_tasks import ApplicationTasks
from tests.simulation.spark_blocks import NAME, Blocks
from tests.simulation.spark_checkpoints import SOURCE, Checkpoints
from tests.simulation.spark_disturbances import Disturbances
from tests.simulation.spark_observer import Observer
from tests.simulation.spark_operators import Operators
from tests.simulation.spark_sink import SERVERS, Frame, Sink
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TOPIC, SparkWorld
from tests.simulation.spark_writes import (
    READERS,
    REPORTS,
    STRANGER,
    LostCallError,
    Outcome,
    Start,
    Write,
)

T = TypeVar("T")

TIMEOUT = "kafka.transaction.timeout.ms"
#: What one call may take in a world where nothing is wrong with it. (An abort without a commit
#: message waits twice until Spark has killed the tasks, if its first search finds nothing open.)
CALM_MS = 2 * KILLED_AFTER_MS + 3_000
#: And while another driver of the same query lives: each fences the other's transaction in the log,
#: waits for its markers and begins again, until one of them reads that it was superseded.
TWO_DRIVERS_MS = 20_000
#: So long after the end of an abort nothing may hang of tasks that it had to kill.
CLEAN_MS = 5_000
#: Starts after which the world is made perfect, and after which it must be done.
PATIENCE, MOST_RUNS = 8, 20


class Application(SparkWorld):
    """``live`` is called once; ``judge`` then says what was broken."""

    life: ApplicationLife

    def __init__(self, life: ApplicationLife) -> None:
        super().__init__(life)
        if life.heals_after_ms is not None:
            self.timeline.after(life.heals_after_ms, self.heal)
        self.sink = Sink(self.machine, life.seed, warm=life.warm_driver)
        self.runs: list[Start] = []
        self.writes: list[Write] = []
        #: Those that were committed, in this order.
        self.order: list[Write] = []
        #: Spark's own records of batches that are committed.
        self.commits: list[int] = []
        #: (run id, batch, error): what each start ended with.
        self.errors: list[tuple[str, int, KafkaError]] = []
        #: Starts that ran beside each other.
        self.pairs: list[tuple[Start, Start]] = []
        self._torn = self.healed = False
        self.observer = Observer(self)
        self.disturbances = Disturbances(self)
        self.operators = Operators(self)
        self.tasks = ApplicationTasks(self)
        self.blocks = Blocks(self)
        self.checkpoints = Checkpoints() if life.knows_offsets else None
        self.disturbances.lay()
        self.machine.stop = self.disturbances.stop_now
        if life.calm:
            self.scheduler.lost_ms = (1, 2, 7)
        block, request, delivery = life.times_ms
        #: The options of every write.
        self.given = {
            SERVERS: "127.0.0.1:9093,127.0.0.1:9094,127.0.0.1:9095",
            "topic": TOPIC,
            "deliveryGuarantee": "exactly-once",
            "transactionalIdPrefix": PREFIX,
            "commitLogTopic": LOG_TOPIC,
            "kafka.request.timeout.ms": str(request),
            "kafka.delivery.timeout.ms": str(delivery),
            "kafka.max.block.ms": str(block),
            TIMEOUT: str(life.timeouts_ms[0]),
            "kafka.buffer.memory": "1000000",
            "kafka.batch.size": "200",
        }
        if life.report:
            self.given["reportTopic"] = REPORTS

    def topics(self) -> dict[str, int]:
        found = super().topics()
        if self.life.report:
            found[REPORTS] = 1
        return found | ({SOURCE: 1} if self.life.knows_offsets else {})

    @property
    def longest_timeout_ms(self) -> int:
        return max(self.life.timeouts_ms)

    @property
    def key(self) -> str:
        named = self.life.kind in (Kind.FOREACH_BATCH, Kind.TRANSACTION, Kind.VERSIONS)
        return log_key(PREFIX, NAME if named else None)

    # -- a life --

    def live(self) -> None:
        with self.sink.in_place(), self.observer.listening():
            super().live()

    @property
    def is_done(self) -> bool:
        return len(self.commits) >= self.life.batches

    def play(self) -> None:
        life, fate = self.life, self.fate
        if life.crowded:
            self.disturbances.start_neighbours()
        while not self.is_done and not self._torn:
            # (Two may have been started at once.)
            if len(self.runs) >= PATIENCE and not self.healed:
                self.heal()
            if len(self.runs) >= MOST_RUNS:
                last = self.errors[-1][2] if self.errors else "no error"
                raise SimulationError(f"it is not done after {MOST_RUNS} starts: {last}")
            run = self._start()
            if life.sibling and len(self.runs) == 1:
                self.disturbances.start_sibling(run)
            if fate.random() < life.twice:
                self.scheduler.sleep(fate.randint(0, 900))
                self.start_another()
            self.scheduler.block(lambda: all(r.over for r in self.runs if r.is_main), NEVER)
            self._resolve()
            if self.is_shut_out:
                break
            if not self.is_done:
                self.scheduler.sleep(fate.choice(life.away_ms))
        self.scheduler.block(lambda: all(r.over for r in self.runs), NEVER)
        self.note("all is done")
        self.scheduler.block(lambda: all(a.over for a in self.attempted), NEVER)
        helpers = self.disturbances.helpers + self.operators.helpers
        self.scheduler.block(lambda: all(p.over for p in helpers), NEVER)

    def _resolve(self) -> None:
        """An operator decides what becomes of a torn batch."""
        if self._torn and self.life.resolved_as:
            self._torn = False
            self.operators.resolve(len(self.commits))

    @property
    def is_shut_out(self) -> bool:
        """A sibling, or a stranger, has written this batch, and each start says so."""
        written = any(
            w.tag >= STRANGER and self.observer.is_committed(w)
            for w in self.writes
            if self.life.sibling or w.number == len(self.commits)
        )
        told = (BatchError, ConfigError, LostCallError)
        last = [isinstance(error, told) for _, _, error in self.errors[-3:]]
        return written and len(last) == 3 and all(last)

    def start_another(self) -> None:
        """Beside the one that runs."""
        if not self.is_done:
            self.pairs.append((self.runs[-1], self._start()))

    def _start(self) -> Start:
        run = self.new_start(f"run-{len(self.runs)}", "driver")
        self.disturbances.at_a_start(run)
        run.process.start(lambda: self._drive(run), "batches")
        return run

    def new_start(self, name: str, role: str, process: Process | None = None) -> Start:
        timeouts = self.life.timeouts_ms
        run = Start(
            name,
            process or self.machine.process(role),
            begun_ms=self.scheduler.now,
            timeout_ms=timeouts[len(self.runs) % len(timeouts)],
        )
        self.runs.append(run)
        kills = run.process.kill

        def kill() -> None:
            run.died_ms = min(run.died_ms, self.scheduler.now)
            kills()

        run.process.kill = kill
        return run

    def _drive(self, run: Start) -> None:
        life, fate = self.life, self.fate
        try:
            while not self.is_done and not self._torn:
                number = len(self.commits)
                if life.kind is Kind.JOB:
                    self.commits.append(number)
                if fate.random() < life.stops and len(self.runs) < PATIENCE:
                    self.disturbances.stop_soon(run)
                if fate.random() < life.operators and len(self.runs) < PATIENCE:
                    self.operators.soon()
                if life.repeats and number:
                    self.disturbances.repeat(run, number - 1)
                try:
                    self.one(run, number)
                except KafkaError as error:
                    self.note(f"{run.id}: {type(error).__name__}: {error.message}")
                    self.errors.append((run.id, number, error))
                    # (Not before: the end of a transaction that failed hides its own errors, and
                    # the next start tells of the torn batch.)
                    if isinstance(error, PartialCommitError):
                        self._torn = True
                    if isinstance(error, ConfigError):
                        self.blocks.corrected = True
                        self.cluster.groups.members.clear()
                    run.failed = True
                    if life.kind is Kind.JOB and not run.stopped:
                        continue
                    return
                if life.unnoted and fate.random() < life.unnoted and len(self.runs) < PATIENCE:
                    self.fired["= drivers that died before Spark noted a batch"] += 1
                    run.process.kill()
                    self.scheduler.block(lambda: False, NEVER)
                self.note(f"{run.id}: Spark notes batch {number}")
                if self.checkpoints is not None:
                    self.checkpoints.end(run.checkpoint, number)
                if len(self.commits) == number:
                    self.commits.append(number)
                if number == 0 and not self.is_done:
                    self.disturbances.until_the_next_trigger(run)
                if number == 0 and life.stranger_at is not None and run is self.runs[0]:
                    self.disturbances.start_stranger()
        finally:
            run.ended = True
            run.died_ms = min(run.died_ms, self.scheduler.now)

    def one(self, run: Start, number: int, tag: int | None = None) -> None:
        """A batch of the application."""
        kind, tag = self.life.kind, number if tag is None else tag
        if self.checkpoints is not None:
            first = 0 if run.is_main and tag < STRANGER else 5
            self.checkpoints.begin(run.checkpoint, run.query, number, first)
            self.checkpoints.begin("old", "query-old", number, 1_000)
        options = self.options_of(run)
        empty = (
            kind is Kind.VERSIONS
            and not any(w.tag == tag for w in self.writes)
            and self.fate.random() < self.life.empty_first
        )
        write = Write(run, number, tag, options, kind is Kind.STREAM, run.query, empty)
        query = None if self.life.connect else run.query
        if kind is Kind.FOREACH_BATCH:
            if run.writer is None or self.life.made_in_function:
                run.writer = foreach_batch(NAME, **options)

            def save(given: dict[str, str], _: int | None) -> None:
                write.options = given
                self.save(write)

            run.writer(Frame(save, query, run_id=run.id), number)  # type: ignore[arg-type]
            return
        if kind is Kind.TRANSACTION:
            self.blocks.run(run, number, tag, query)
            return
        if kind is Kind.VERSIONS:
            options |= {"txnAppId": NAME, "txnVersion": str(number)}
        self.save(write)
        if empty:
            self.one(run, number, tag)

    def options_of(self, run: Start) -> dict[str, str]:
        """Later drivers know the broker only that is cut off."""
        life, options = self.life, self.given | {TIMEOUT: str(run.timeout_ms)}
        deposed = self.disturbances.deposed
        if deposed is not None and run is not self.runs[0]:
            options[SERVERS] = f"127.0.0.1:{9092 + deposed}"
        if self.checkpoints is not None:
            old = life.old_checkpoint and not self.blocks.corrected
            options["checkpointLocation"] = self.checkpoints.path("old" if old else run.checkpoint)
            if life.offsets and run.checkpoint == "own":
                options["offsetsGroup"] = READERS
        return options

    @staticmethod
    def is_doubtful(error: BaseException | None) -> bool:
        """It does not say that nothing is visible."""
        return isinstance(error, CommitOutcomeUnknownError | PartialCommitError | LostCallError)

    def save(self, write: Write) -> None:
        self.writes.append(write)
        try:
            self._write_batch(write)
        except KafkaError as error:
            write.error = error
            doubtful = self.is_doubtful(error)
            write.outcome = Outcome.DOUBTFUL if doubtful else Outcome.FAILED
            if not doubtful:
                self.observer.check_failed(write)
                self.observer.check_replay(write)
            raise
        if write.part is None:
            write.outcome = Outcome.TOLD

    def _write_batch(self, write: Write) -> None:
        run, sink = write.run, self.sink
        if write.broken and self.fate.random() < 0.5:
            raise KafkaError("a column is missing")
        write.is_replay = self.observer.is_done(write.number)
        write.planned = self._call(
            run,
            "plan",
            lambda: sink.plan(write.options, streaming=write.streaming, driver=run.token),
        )
        self.observer.check_planned(run)
        messages, whole = self.tasks.run(write)
        write.messages = messages
        if not whole:
            self._undo(write, tasks_may_run=True)
            raise LostCallError("the user stopped it" if run.stopped else "a task failed too often")
        if not self.healed and self.fate.random() < self.life.rights:
            self.disturbances.take_rights()
        begun, at_work = self.scheduler.now, self.observer.at_work(run)
        write.is_replay = self.observer.is_done(write.number)
        try:
            how = self._call(
                run,
                "commit",
                lambda: sink.commit(
                    write.options, write.planned, messages, write.batch_id, self._report_of(write)
                ),
            )
        except KafkaError as error:
            given_up = "was aborted, and commits nothing" in error.message
            stream = self.life.kind is Kind.STREAM  # (A transaction's own end may abort it.)
            if given_up and stream and not run.undone and not self.life.operators:
                self.observer.breaks(f"{run.id} was aborted, and not by its own driver")
            self._undo(write, tasks_may_run=False)
            raise
        self.fired[f"= commits: {how.value}"] += 1
        if how is Commit.COMMITTED:
            self.fired[f"= committed: {self.life.kind.value}"] += 1
        write.how = how
        if how is Commit.COMMITTED:
            self.order.append(write)
        if how is not Commit.PREPARED:
            what = "abort" if write.aborts else "commit"
            self.observer.check_nothing_hangs(write, begun, what)
            self.observer.check_noted(write)
            if not at_work:
                self.observer.check_swept_for_good(run, begun)

    def _report_of(self, write: Write) -> TopicRecord | None:
        name = b"%d:%d" % (write.tag, write.part or 0)
        return TopicRecord(REPORTS, name) if self.life.report else None

    def _undo(self, write: Write, *, tasks_may_run: bool) -> None:
        """Spark's abort, and the end of its tasks."""
        run, begun = write.run, self.scheduler.now
        run.undone = True
        if tasks_may_run:
            self.tasks.kill_soon(run.workers)
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
        if not write.aborts:  # (else its own commit has failed to abort them, and said so)
            self.observer.check_nothing_hangs(write, begun, "abort")

    def _call(self, run: Start, role: str, what: Callable[[], T], *, stoppable: bool = True) -> T:
        """``what``, by a Python process of the driver's. LostCallError when that dies, or the user
        stops the query meanwhile: then it goes on, and nothing waits for it.
        """
        process = run.pool.pop(role, None)
        if process is None or process.dead:
            process = self.machine.process(role, run.process)
        process.marks.clear()
        if role == "commit":
            self.disturbances.at_a_commit(run)
        found: list[T] = []
        failed: list[KafkaError] = []
        begun, said = self.scheduler.now, self.observer.said[process]
        alive = [one for one in self.runs if not one.over]

        def body() -> None:
            try:
                found.append(what())
            except KafkaError as error:
                failed.append(error)

        task = process.start(body, role)

        def over() -> bool:
            return task.done or process.dead or (stoppable and run.stopped)

        self.scheduler.block(over, NEVER)
        self.observer.warned = self.observer.said[process] > said
        if failed:
            raise failed[0]
        if not found:
            raise LostCallError(f"the process of the {role} is gone")
        if self.life.warm_driver:
            run.pool[role] = process
        took = self.scheduler.now - begun
        longest = CALM_MS if alive == [run] else TWO_DRIVERS_MS
        if self.life.calm and not self.life.late_sweeps and took > longest:
            self.observer.breaks(f"{run.id}: {role} took {took} ms")
        return found[0]

    # -- what is done to it --

    def heal(self) -> None:
        super().heal()
        self.healed = True
        self.cluster.marker_ms = 2

    # -- what came of it --

    @property
    def partial(self) -> list[Write]:
        """Those that were reported as visible in part."""
        numbers = {n for _, n, e in self.errors if isinstance(e, PartialCommitError)}
        return [write for write in self.writes if write.number in numbers]

    def was_struck(self, write: Write) -> bool:
        """Its driver is dead, or was away, so that it was not ended."""
        return write.outcome is not Outcome.TOLD

    def reports(self) -> Counter[tuple[int, int]]:
        """(batch, write of a block) of each that is visible."""
        log = self.cluster.logs[TopicPartition(REPORTS, 0)]
        values = [record.value or b"" for record in log.records(committed=True)]
        return Counter((int(v.split(b":")[0]), int(v.split(b":")[1])) for v in values)

    def happened(self) -> Counter[str]:
        """With how its starts ended."""
        found = super().happened()
        found += Counter(f"= starts ended by {type(e).__name__}" for _, _, e in self.errors)
        found["= batches"] += len(self.commits)
        return found

    def wanted(self, write: Write) -> set[tuple[int, int, int]]:
        """(batch, task, row) of a write that was reported as written."""
        return {
            (write.tag, task + 100 * (write.part or 0), row)
            for task in range(self.life.tasks)
            for row in range(len(self.tasks.partitions(write, task)))
        }
