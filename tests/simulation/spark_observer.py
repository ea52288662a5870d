"""What is seen of an application while it lives, and what of that must not be."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import CommitError, SupersededError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import CommitState, Decision
from spark_kafka_sink.transactions.lease import lease_ms, margin_ms
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id, parse
from tests.fakes.fake_cluster.transaction_coordinator import State, Transaction
from tests.fakes.record_reader import parse_batch
from tests.simulation.processes import Process
from tests.simulation.spark_application_life import Kind
from tests.simulation.spark_world import LOG_TOPIC, TIMEOUT_MS
from tests.simulation.spark_writes import Start, Write

if TYPE_CHECKING:
    from tests.simulation.spark_application import Application

#: A late scan for a transaction that has timed out.
SCAN_MS = 10_000
#: So long a driver believes what it knows of the brokers.
KNOWN_MS = 10_000


@dataclass(frozen=True)
class End:
    """How a coordinator decided about a prepared transaction."""

    committed: bool
    at_ms: int
    #: How long it had been open, and how long it might be.
    age_ms: int
    timeout_ms: int = TIMEOUT_MS

    @property
    def timed_out(self) -> bool:
        return not self.committed and self.age_ms >= self.timeout_ms


class Observer:
    """``broken`` is what was not as it must be; ``ends`` are those of prepared transactions."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self.broken: list[str] = []
        #: By (transactional id, producer id, epoch).
        self.ends: dict[tuple[str, int, int], End] = {}
        #: What the log says now, and of that the transactions that are to be committed.
        self._logged: CommitState | None = None
        self._standing: set[tuple[str, int, int]] = set()
        #: What was decided of each batch, the last last.
        self.decisions: list[Decision] = []
        #: How often each process warned.
        self.said: Counter[Process] = Counter()
        #: The call that ended last warned of something.
        self.warned = False
        app.cluster.on_decided = self.decided

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Warnings are counted, by the process that has its turn."""
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
        task = self._app.scheduler.current
        if task is not None:
            self._app.note(f"warning: {text}")
            found = next((p for p in self._app.machine.processes if task in p.tasks), None)
            if found is not None:
                self.said[found] += 1

    def decided(self, transaction: Transaction, committed: bool) -> None:
        """A coordinator has decided about it."""
        now = self._app.scheduler.now
        age = now - transaction.start_ms
        keys = self._keys_of(transaction, committed)
        for key in keys:
            self.ends.setdefault(key, End(committed, now, age, transaction.timeout_ms))
        if not committed and self._standing & set(keys):
            # (The oldest may be about to time out: then all are undone.)
            known = self._app.cluster.transactions.transactions
            standing = [known[one] for one, _, _ in self._standing]
            if all(now - t.start_ms < _undone_at_ms(t.timeout_ms) for t in standing):
                name = transaction.transactional_id
                self.breaks(f"decided, and {name} is aborted when it is open for {age} ms")
            self._standing.clear()  # one was over: the others may be undone
        if committed and transaction.transactional_id == log_id(self._app.key):
            self._check_decision(transaction)
            for process in self._app.machine.processes[-40:]:
                if process.role == "commit" and not process.dead:
                    process.mark("decided")

    def _check_decision(self, of_the_log: Transaction) -> None:
        """A decision stands on transactions that live for a while: what was checked behind the
        beginning of ``of_the_log`` is in the log within the lease, or never.
        """
        now = self._app.scheduler.now
        before, self._logged = self._logged, self.newest()
        state = self._logged
        decision = None if state is None or state.lost else state.decision
        decided = () if decision is None else decision.ids
        if decision is not None and decision not in self.decisions:
            self.decisions.append(decision)
        self._standing = {
            (t.transactional_id, t.producer_id, t.producer_epoch)
            for t in (() if decision is None else decision.transactions)
        }
        if self._logged is not None and before is not None:
            owner = self._logged.run_id
            if owner not in ("", before.run_id):
                if self._logged.generation <= before.generation:
                    self.breaks(f"{owner} took over, and the generation did not move")
                if owner in before.superseded:
                    self.breaks(f"{owner} took over, and was superseded before")
        for standing in self._standing:
            if standing in self.ends and not self.ends[standing].committed:
                self.breaks(f"decided, and {standing[0]} was aborted before")
        took = now - of_the_log.start_ms
        if took > lease_ms(self._app.longest_timeout_ms) + SCAN_MS:
            self.breaks(f"the log's transaction was open for {took} ms")
        is_new = before is None or before.decision != decision
        for one in decided if is_new else ():
            found = self._app.cluster.transactions.find(one)
            if found is None or found.state is not State.ONGOING:
                continue
            if now - found.start_ms > found.timeout_ms - margin_ms(found.timeout_ms) + took:
                self.breaks(f"decided, and {one} is open for {now - found.start_ms} ms")
        self._app.disturbances.at_a_decision(decided)

    @staticmethod
    def _keys_of(one: Transaction, committed: bool) -> list[tuple[str, int, int]]:
        """Under which it was prepared. (A fence raises the epoch, and every end of version 2; an
        abort of version 1 may be either.)
        """
        moved = one.version >= 2 or (not committed and one.last_epoch == -1)
        epochs = [one.epoch - moved] + [one.epoch] * (one.version < 2 and not committed)
        return [(one.transactional_id, one.producer_id, epoch) for epoch in epochs]

    def check_failed(self, write: Write) -> None:
        """P4: a reported failure is true."""
        committed = [
            one.transactional_id
            for one, end in zip(write.transactions, self.ends_of(write), strict=True)
            if _committed(end)
        ]
        if committed:
            self.breaks(
                f"{write.run.id}: batch {write.number} is called failed "
                f"({type(write.error).__name__}), and {committed} are committed"
            )
        if {one.transactional_id for one in write.transactions} & set(self.decided_ids()):
            self.breaks(
                f"{write.run.id}: batch {write.number} is called failed "
                f"({type(write.error).__name__}), and it is decided"
            )
        if isinstance(write.error, SupersededError) and self._app.life.calm:
            self._check_superseded(write)

    def check_replay(self, write: Write) -> None:
        """A batch that is done, and is the same one, is dropped and never refused."""
        life, state = self._app.life, self.newest()
        # (A version that fails in one thread has its run aborted, and that of the other threads.)
        beside = (
            life.stranger_at is not None, life.sibling, life.twice, life.meanwhile, life.repeats
        )  # fmt: skip
        if any(beside) or life.operators or life.block.varies or self._app.blocks.corrected:
            return
        if self._app.life.mistaken or state is None or state.decision is not None:
            return
        # (Another driver of the query may have done this batch, and the next one: it is refused.)
        if life.kind is not Kind.VERSIONS and write.number < state.last_done:
            return
        # (One that another start has done meanwhile may have been too old before.)
        if type(write.error) is CommitError and write.is_replay:
            self.breaks(f"{write.run.id}: batch {write.number} is done, and refused: {write.error}")

    def check_operators_commit(self, decision: Decision, *, alone: bool) -> None:
        """It commits what it was asked to commit, unless brokers have aborted some of it, or
        another start, as it was about to time out (unless the operator was ``alone``).
        """
        ends = [self.ends.get(_key_of(t)) for t in decision.transactions]
        lost = [end for end in ends if end is not None and not end.committed]
        late = [
            end
            for end in lost
            if end.age_ms >= (end.timeout_ms if alone else _undone_at_ms(end.timeout_ms))
        ]
        if None in ends or (lost and not late):
            self.breaks(f"an operator has committed {decision.number}, and it was aborted: {ends}")

    def check_said(self, decision: Decision, *, committed: bool) -> None:
        """An operator's command says what is true, whoever has ended the batch: also one that was
        undone, and written again by another start.
        """
        ends = [self.ends.get(_key_of(t)) for t in decision.transactions]
        state, aborted = self.newest(), all(end and not end.committed for end in ends)
        if committed and aborted and state is not None and state.done_batch(decision.number):
            return
        wrong = [end for end in ends if end is not None and end.committed is not committed]
        if wrong:
            self.breaks(f"an operator is told {committed=} of {decision.number}: {ends}")

    def _check_superseded(self, write: Write) -> None:
        """Who has to stop for another one finds that one in the log."""
        own, state = write.run_id, self.newest()
        if state is None or (state.run_id == own and own not in state.superseded):
            self.breaks(f"{write.run.id}: superseded by nobody: {write.error}")

    def check_planned(self, run: Start) -> None:
        """Nothing is planned over a decision that is not ended. (Planning may read at a leader that
        was deposed; the commit does not.)
        """
        if self._app.disturbances.deposed is not None or self._app.life.cluster.cut_off:
            return
        others = [
            p
            for p in self._app.machine.processes
            if p.role in ("commit", "plan", "operator", "driver", "stranger")
            and p is not run.process
            and not p.over
        ]
        if not others and self.decided_ids():
            self.breaks(f"{run.id}: planned over a decision")

    def check_nothing_hangs(self, write: Write, begun: int, what: str) -> None:
        """P5: of what was open when the call began, and is this run's or a dead one's, nothing is
        open now; unless it said that it could not see to that, or a task of it still runs.
        """
        run, own, life = write.run, write.run_id, self._app.life
        cluster = self._app.cluster
        if cluster.coordinators.moved_ms >= begun or cluster.up_ms >= begun - KNOWN_MS:
            # An id that moves is in nobody's list for a moment, and a broker that came back is
            # known a moment later.
            return
        if self.warned or self.at_work(run):
            return
        if life.kind is Kind.VERSIONS and write.how is not Commit.COMMITTED:
            return  # a version that another thread writes may be of the same run
        dead = [
            r
            for r in self._app.runs
            if r.died_ms < run.begun_ms
            and what == "commit"
            and write.how is not Commit.ALREADY_DONE  # who drops a batch may not own the key
            and life.kind is not Kind.JOB
            and r.query == run.query
        ]
        article = "an" if what == "abort" else "a"
        self._app.fired[f"= looks for what hangs after {article} {what}"] += 1
        decided, known = self.decided_ids(), cluster.transactions.transactions.values()
        hangs = sorted(
            t.transactional_id
            for t in known
            if t.state is State.ONGOING
            and t.transactional_id not in decided
            and t.start_ms < begun
            and (_run_of(t) == own or (dead and self._opened_by(t) in dead))
        )
        hangs += sorted(
            t.transactional_id
            for t in known
            if t.state is State.EMPTY
            and what == "commit"
            and life.transaction_version >= 2
            and t.epoch >= 0
            and t.since_ms < begun
            and _run_of(t) == own
        )
        if hangs:
            self.breaks(f"{run.id}: open behind the {what} of {write.number}: {hangs}")

    def at_work(self, run: Start) -> bool:
        return any(a.worker in run.workers and not a.over for a in self._app.attempted)

    def check_swept_for_good(self, run: Start, begun: int) -> None:
        """What was ended is not found again by the next commit: only a sweep could have given these
        ids an identity. (With version 1 it does, and leaves them alone then.)
        """
        life = self._app.life
        bad = life.heals_after_ms is not None or life.late_init or life.transaction_version < 2
        if self.warned or bad:
            return
        empty = [
            t.transactional_id
            for t in self._app.cluster.transactions.transactions.values()
            if t.state is State.EMPTY and t.since_ms >= begun and _run_of(t) == run.id
        ]
        if empty:
            self.breaks(f"{run.id}: swept, and to be swept again: {empty}")

    def check_noted(self, write: Write) -> None:
        """What is committed is not called decided any more, unless it said so; what is decided may
        be another's.
        """
        life = self._app.life
        others = life.twice or life.sibling or life.operators or life.repeats
        if self.warned or not life.calm or others:
            return
        if self.decided_ids():
            self.breaks(f"{write.run.id}: batch {write.number} is not noted as done")

    def decided_ids(self) -> tuple[str, ...]:
        """What the log says is to be committed, whether its markers are written or not."""
        state = self.newest()
        return () if state is None or state.decision is None else state.decision.ids

    def is_decided(self, number: int) -> bool:
        """Or done."""
        state = self.newest()
        decision = None if state is None else state.decision
        decided = -1 if decision is None else decision.number
        return state is not None and number <= max(state.last_done, decided)

    def is_done(self, number: int) -> bool:
        state = self.newest()
        return state is not None and state.last_done == number

    def newest(self) -> CommitState | None:
        """What is written last under the key, unless it is aborted."""
        value = self.newest_value()
        return None if value is None else CommitState.decode(self._app.key, value)

    def newest_value(self) -> bytes | None:
        name = self._app.key.encode()
        for tp, log in self._app.cluster.logs.items():
            if tp.topic != LOG_TOPIC:
                continue
            for batch in reversed(log.batches):
                if batch.control or log.is_aborted(batch):
                    continue
                for record in reversed(parse_batch(batch.data).records):
                    if record.key == name:
                        return record.value
        return None

    def breaks(self, what: str) -> None:
        self._app.note(f"BROKEN: {what}")
        self.broken.append(what)

    def _opened_by(self, transaction: Transaction) -> Start | None:
        for run in self._app.runs:
            tokens = {worker.kept.ids.token for worker in run.workers}
            if any(token in transaction.transactional_id for token in tokens):
                return run
        return None

    def ends_of(self, write: Write) -> list[End | None]:
        """Of its transactions; None of one that was not ended."""
        return [self.ends.get(_key_of(t)) for t in write.transactions]

    def is_committed(self, write: Write) -> bool:
        """All its rows are visible."""
        ends = self.ends_of(write)
        return bool(ends) and all(map(_committed, ends))

    def ends_of_decided(self, number: int) -> list[End | None]:
        """Of all that was decided of a batch, when it was decided last."""
        found = [d for d in self.decisions if d.number == number][-1:]
        return [self.ends.get(_key_of(t)) for d in found for t in d.transactions]

    def torn(self) -> list[tuple[Write, list[End | None]]]:
        """Writes of which some transactions were committed and some were not."""
        found = [(write, self.ends_of(write)) for write in self._app.writes]
        return [(write, ends) for write, ends in found if len(set(map(_committed, ends))) > 1]


def _key_of(one: PreparedTransaction) -> tuple[str, int, int]:
    return one.transactional_id, one.producer_id, one.producer_epoch


def _undone_at_ms(timeout_ms: int) -> int:
    """The age from which a decision may be undone: the transaction is about to time out."""
    return timeout_ms - margin_ms(timeout_ms) // 4


def _committed(end: End | None) -> bool:
    return end is not None and end.committed


class _Listener(logging.Handler):
    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


def _run_of(transaction: Transaction) -> str:
    found = parse(transaction.transactional_id)
    return "" if found is None else found.run
