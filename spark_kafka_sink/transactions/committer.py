"""The driver commits the transactions of a batch: decide durably, commit each, record it as done.

Owns: the order of these steps, for commit and for the roll forward at planning. Never: which run
may take them (``ownership.py``), an abort by Spark (``aborter.py``), what a doubtful response means
(``outcomes.py``).

**The commit point** is the log's own transaction: once its EndTxn(commit) has succeeded, batch N is
DECIDED, and the next driver commits its transactions if this one does not. Before it, they can only
be aborted; after it, only committed. The exception is a decision of which brokers aborted a part
before anything was committed: then all of it is aborted, and the batch is written again.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, TypeVar

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    ErrorCode,
    InvalidTxnStateError,
    KafkaError,
    KafkaTimeoutError,
    PartialCommitError,
    ProducerFencedError,
    SupersededError,
    named,
    warn,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import (
    NOTHING_DONE,
    CommitState,
    Decision,
    Done,
    LogChangedError,
    LogOutcomeUnknownError,
    NoLeaderError,
    Part,
    Payload,
    Phase,
)
from spark_kafka_sink.transactions.driver_transactions import TopicRecord, prepare
from spark_kafka_sink.transactions.ending import abort_all, end_decided, near_timeout
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from spark_kafka_sink.transactions.outcomes import Outcome, is_committed, is_prepared, outcome_of
from spark_kafka_sink.transactions.ownership import Numbering, Owner, when_open
from spark_kafka_sink.transactions.sweep import is_superseded, sweep, warn_unseen
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_id

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient
    from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog, LogSession

T = TypeVar("T")

_log = logging.getLogger(__name__)

#: Ids that an error lists; it has the number of all.
_NAMED = 5
#: The worker parts in the ids of the driver's own transactions.
_OFFSETS, _REPORT = "offsets", "report"
_LATE = "brokers were slow, or this driver was paused; the batch is to be written again"
_NOTHING_UNDONE = (
    "nothing was undone: start the query again, and it resolves the batch; for a job without "
    "txnAppId 'kprod txn commit' does, and another run writes all rows again"
)
#: What became of a decision's transactions, and the hint.
_NOT_ENDED = "could not all be ended", _NOTHING_UNDONE
_NOT_RECORDED = "are ended, which could not be recorded in the commit log", _NOTHING_UNDONE
_UNDONE = "are aborted and nothing of it is visible, which could not be recorded", _LATE


@dataclass(frozen=True, slots=True)
class Block:
    """Several writes of one batch that are decided together; ``token`` distinguishes it from every
    other block. ``writes`` is None for one of them, which is only recorded, and their number for
    the last step, which has no rows and decides all of them.

    ``number`` is that of one write, from 0 on. The driver's own transaction of the write has it in
    its id: writes in threads would end each other's under one id. (A number that was counted in the
    log would not do: both may read it before one of them has written its part.)

    ``letters`` are those of one write, as in :class:`Part`; ``check_letters`` raises for the sums
    of all, before they are decided.
    """

    token: str
    writes: int | None = None
    letters: tuple[int, int] = (0, 0)
    check_letters: Callable[[int, int], None] | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Micro-batch ``number``, or version of a job; its prepared transactions, one per task that
    wrote a row.

    ``payload`` is what all tasks wrote, or would have written when they found the batch done (None:
    not counted). ``digest`` identifies the batch's input; empty when that is unknown.
    """

    number: int
    transactions: tuple[PreparedTransaction, ...] = field(repr=False)
    payload: Payload | None = None
    digest: str = ""
    block: Block | None = None
    #: Committed with the rows, each in a transaction of the driver's own, which asks for two-phase
    #: commit if the tasks' did.
    offsets: GroupOffsets | None = None
    report: TopicRecord | None = None
    two_phase_commit: bool = False

    @property
    def is_recorded_only(self) -> bool:
        return self.block is not None and self.block.writes is None


class Commit(Enum):
    """How a successful commit ended."""

    COMMITTED = "committed"
    ALREADY_DONE = "done before"
    EMPTY = "no rows"
    PREPARED = "prepared, to be decided with other writes"


@dataclass(slots=True)
class _Attempts:
    """Shared by the attempts of one commit. The log may have ``decision``, and had ``decided``."""

    name: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    decision: Decision | None = None
    decided: Decision | None = None
    #: The driver's own transactions.
    prepared: tuple[PreparedTransaction, ...] = ()


class Committer:
    """Commits and rolls forward, over the connections of ``client``.

    max.block.ms bounds each step before a decision, delivery.timeout.ms committing what is decided.
    How old a transaction may be is its own.
    """

    def __init__(self, log: CommitLog, client: TransactionClient) -> None:
        self._decisions = log
        self._client = client

    def roll_forward(
        self,
        key: str,
        check: Callable[[CommitState], None] = lambda _: None,
        *,
        only_lost: bool = False,
    ) -> CommitState:
        """The state of ``key``, after committing a batch that an earlier driver decided, or undoing
        it: as in :func:`end_decided`. ``check`` raises CommitError for a state that it refuses.

        Raises PartialCommitError for a batch that lost rows and is not resolved yet, and
        CommitOutcomeUnknownError when its transactions can't be committed now.
        """
        found, settled = self._decisions.read(key, self._client.deadline())
        state = found or CommitState()
        if settled and state.phase is Phase.DONE:
            try:
                check(state)
                return state
            except SupersededError:
                raise
            except CommitError:
                pass  # it counts only when it is confirmed, which needs a session

        def attempt(session: LogSession) -> CommitState:
            state = self._rolled_forward(key, session, only_lost=only_lost)
            check(state)
            return state

        # Opening the log aborts what a driver that crashed left open; a running one opens it again.
        return self._when_open(key, attempt)

    def _when_open(self, key: str, attempt: Callable[[LogSession], T]) -> T:
        """What ``attempt`` refuses counts only when the log was read from its leader. (That another
        run has taken over is true wherever it was read, and a write would fence that run.)
        """

        def confirmed(session: LogSession) -> T:
            try:
                return attempt(session)
            except (SupersededError, CommitOutcomeUnknownError):
                raise
            except CommitError:
                session.confirm(self._client.deadline())
                raise

        return when_open(self._client, self._decisions, key, confirmed)

    def _rolled_forward(
        self, key: str, session: LogSession, *, only_lost: bool = False
    ) -> CommitState:
        decision = session.state.decision
        if decision is None:
            return session.state
        _log.info("kprod %s: batch %d was decided; committing it now", key, decision.number)
        state = self._finish(key, session, session.state, only_lost=only_lost)
        # Not `_write_done`, which may fail: the next batch would use these ids, while the log,
        # still at DECIDED, names transactions that can't be described any more.
        is_done = state.last_done == decision.number
        with _decided(key, decision, _NOT_RECORDED if is_done else _UNDONE):
            session.write(state, self._client.deadline())
        return state

    def commit(self, owner: Owner, batch: Batch) -> Commit:
        """Make ``batch`` visible as a whole, or raise.

        Raises SupersededError (another driver owns the key), CommitError (nothing is visible, and
        what was prepared is aborted or will be), CommitOutcomeUnknownError (nothing is undone; the
        next planning resolves it) and PartialCommitError.
        """
        if owner.numbering is Numbering.ONCE and not batch.transactions:
            return Commit.EMPTY
        attempts = _Attempts()
        try:
            return self._when_open(
                owner.key, lambda session: self._commit(owner, batch, session, attempts)
            )
        except KafkaError as error:
            if batch.is_recorded_only and isinstance(error, LogOutcomeUnknownError):
                raise CommitError(
                    f"a write of batch {batch.number} of '{owner.key}' may not be recorded, so its "
                    f"block decides nothing: {error.message}",
                    hint="see which brokers are down, then write the batch again",
                ) from error
            if attempts.decided is None or isinstance(error, CommitError):
                raise
            with _decided(owner.key, attempts.decided):
                raise

    def _ended_by_others(self, key: str, tried: Decision) -> bool:
        """Whether ``tried``, which may have been in the log and is not any more, is committed;
        False: nothing of it is. Raises PartialCommitError, and CommitOutcomeUnknownError where
        coordinators don't say it.
        """

        def unknown(why: str, ids: tuple[str, ...]) -> CommitOutcomeUnknownError:
            return CommitOutcomeUnknownError(
                f"batch {tried.number} of '{key}' may be decided: the commit log does not have its "
                f"decision, which others may have ended, and {why}",
                hint="look whether its rows are visible before it is written again",
                transactional_ids=ids,
            )

        try:
            found = self._client.describe(tried.ids, self._client.deadline())
        except KafkaError as error:
            what = f"its {len(tried.ids)} transactions can't be looked at: {error.message}"
            raise unknown(what, tried.ids) from error
        pairs = [(t, found[t.transactional_id]) for t in tried.transactions]
        committed = [t.transactional_id for t, now in pairs if is_committed(t, now)]
        if len(committed) == len(pairs):
            return True
        # (With version 1 the abort of what its id wrote after its commit looks the same.)
        lost = tuple(
            t.transactional_id
            for t, now in pairs
            if outcome_of(t, now) is Outcome.LOST
            and (t.transaction_version > 1 or now.producer_epoch == t.producer_epoch)
        )
        if committed and lost:
            raise _partial(key, tried, lost)
        open_ = [t.transactional_id for t, now in pairs if is_prepared(t, now)]
        ids = tuple(i for i in tried.ids if i not in (*committed, *lost, *open_))
        if ids or committed:
            ids = ids or tuple(open_)
            shown = f"{len(ids)} of its {len(pairs)} transactions"
            raise unknown(f"the outcome of {shown} is not known ({named(ids, _NAMED)})", ids)
        return False

    def _commit(
        self, owner: Owner, batch: Batch, session: LogSession, attempts: _Attempts
    ) -> Commit:
        found, tried, decision = session.state, attempts.decision, session.state.decision
        if decision is not None and tried is not None and set(decision.ids) == set(tried.ids):
            # Also when an operator has aborted the run since: some of it may be visible.
            attempts.decided = decision
            found = self._finish(owner.key, session, found)
            if is_done := found.last_done == decision.number:
                self._write_done(owner, session, found)
        else:
            # By a thread of this driver. (Another run may have undone it, and written the batch.)
            decided, by_us = attempts.decided, found.newest_run == owner.run_id
            is_done = by_us and decided is not None and found.has_done(decided)
            is_done = is_done or (tried is not None and self._ended_by_others(owner.key, tried))
        if is_done:
            self._sweep(owner, found, own_run=owner.numbering is not Numbering.VERSIONS)
            return Commit.COMMITTED
        attempts.decided = None
        # (A version that is repeated, and wrote nothing, decides nothing.)
        is_repeated = not batch.transactions and found.done_batch(batch.number) is not None
        if owner.numbering is not Numbering.VERSIONS or not is_repeated:
            self._check_owner(owner, batch, found)
        state = self._rolled_forward(owner.key, session)
        if self._done_before(owner, batch, state, attempts.name):
            how, state = Commit.ALREADY_DONE, self._dropped(owner, batch, state, attempts)
        elif batch.is_recorded_only:
            self._record(owner, batch, session, attempts)
            return Commit.PREPARED
        else:
            how, state = self._decide_and_end(owner, batch, session, attempts)
        # A version that decides nothing must not end what a thread of its run is about to decide.
        shared = how is not Commit.COMMITTED and owner.numbering is Numbering.VERSIONS
        if how is Commit.COMMITTED:
            self._write_done(owner, session, state)
        elif state != session.state:
            session.write(state, self._client.deadline())
        self._sweep(owner, state, own_run=not shared)
        return how

    def _check_owner(self, owner: Owner, batch: Batch, found: CommitState) -> None:
        owner.check(found)
        if found == CommitState() and owner.numbering.is_of_micro_batches and batch.number > 0:
            warn(
                _log,
                Kind.COMMIT_LOG_EMPTY,
                "kprod '%s': the commit log has no entry for it, and this is batch %d. Either it "
                "is the first one that is written exactly-once under this name, or the topic of "
                "commitLogTopic was deleted: then a batch that Spark runs again may come twice",
                owner.key,
                batch.number,
            )

    def _dropped(
        self, owner: Owner, batch: Batch, state: CommitState, attempts: _Attempts
    ) -> CommitState:
        """The batch is done: abort what its tasks wrote all the same, and return the next state."""
        abort_all(self._client, batch.transactions, self._client.deadline())
        # Others don't take over: the runs that such a state lists as superseded may decide.
        if owner.numbering is Numbering.MICRO_BATCHES:
            # The query id may be unknown. Two queries with one name and equal payloads would keep
            # dropping each other's batches; taking over stops the other one.
            state = self._taken_over(owner, state)
            if batch.block is not None and batch.block.writes is None and batch.payload is not None:
                part = Part((), batch.payload, attempts.name)
                state = state.with_part(batch.number, batch.block.token, part)
            elif not batch.is_recorded_only:
                state = state.without_parts()
        return state

    def _record(self, owner: Owner, batch: Batch, session: LogSession, attempts: _Attempts) -> None:
        """One write of a block, which waits for its decision."""
        assert batch.block is not None
        token = batch.block.token
        state = self._taken_over(owner, session.state)
        parts = state.parts_by(batch.number, token)
        if any(part.name == attempts.name for part in parts):
            return  # by the previous attempt
        own = self._prepared_once(owner, batch, batch.block.number, attempts)
        part = Part(
            batch.transactions + own, batch.payload or Payload(), attempts.name, batch.block.letters
        )
        session.write(state.with_part(batch.number, token, part), self._client.deadline())

    def _decide_and_end(
        self, owner: Owner, batch: Batch, session: LogSession, attempts: _Attempts
    ) -> tuple[Commit, CommitState]:
        """Decide the batch, and end its transactions. Returns the log's next state, too."""
        before = session.state
        state = self._taken_over(owner, before)
        decision = _decision(owner, batch, state)
        own = self._prepared_once(owner, batch, 0, attempts)
        decision = replace(decision, transactions=decision.transactions + own)
        if not decision.transactions:
            if owner.numbering is Numbering.VERSIONS:
                return Commit.EMPTY, before  # its rows may come later: it doesn't count as written
            return Commit.EMPTY, state.skipped_to(
                Done(batch.number, decision.payloads, decision.digest)
            )
        checked_ms = self._client.clock.now_ms()
        state = self._decide(owner, session, state.decided(decision), attempts)
        attempts.decision = attempts.decided = decision
        state = self._finish(owner.key, session, state, checked_ms=checked_ms)
        if state.last_done != decision.number:
            with _decided(owner.key, decision, _UNDONE):
                session.write(state, self._client.deadline())
            raise CommitError(
                f"batch {decision.number} of '{owner.key}' was decided, and brokers had aborted "
                "its transactions before they were committed; nothing of it is visible",
                hint="this driver was paused for longer than kafka.transaction.timeout.ms allows; "
                "write the batch again",
            )
        return Commit.COMMITTED, state

    def _taken_over(self, owner: Owner, state: CommitState) -> CommitState:
        return state.taken_over(owner.run_id, owner.query_id, self._client.clock.wall_ms())

    def _prepared_once(
        self, owner: Owner, batch: Batch, number: int, attempts: _Attempts
    ) -> tuple[PreparedTransaction, ...]:
        """The driver's own transactions of ``batch``: those of an earlier attempt of the commit, if
        they are still open, as each new one needs another id.
        """
        found = self._client.describe(
            [t.transactional_id for t in attempts.prepared], self._client.deadline()
        )
        if not all(is_prepared(t, found[t.transactional_id]) for t in attempts.prepared):
            attempts.prepared = ()
        attempts.prepared = attempts.prepared or self._prepared_by_us(owner, batch, number)
        return attempts.prepared

    def _prepared_by_us(
        self, owner: Owner, batch: Batch, number: int
    ) -> tuple[PreparedTransaction, ...]:
        """The driver's own transactions of ``batch``, which share its decision."""
        deadline = self._client.deadline()
        try:
            return tuple(
                prepare(
                    self._client,
                    self._own_id(owner, name, number, deadline),
                    content,
                    deadline,
                    two_phase_commit=batch.two_phase_commit,
                )
                for name, content in ((_REPORT, batch.report), (_OFFSETS, batch.offsets))
                if content is not None
            )
        except (ProducerFencedError, InvalidTxnStateError) as error:
            # A driver that takes over meanwhile ends it: whether one did is in the log, which is
            # read again.
            raise LogChangedError(
                f"another client has ended the transaction of '{owner.key}' with the offsets or "
                f"the report of batch {batch.number}: {error.message}",
                hint="write the batch again; if no other driver was started, an operator did "
                "('kprod txn abort' or 'sweep')",
            ) from error

    def _own_id(self, owner: Owner, name: str, number: int, deadline: int) -> str:
        """The first one whose last transaction was committed, if it had one, as a worker takes it
        (``transactional_producers.py``).
        """
        tried = 0
        while True:
            # (Each retry of a commit may skip one: more at a time, the more there are.)
            ids = [
                str(TransactionalId(owner.key, owner.run_id, worker, number, owner.generation))
                for n in range(tried, 2 * tried + 1)
                for worker in [f"{name}.{n}" if n else name]
            ]
            found = self._client.describe(ids, deadline)
            for one in (found[i] for i in ids):
                if one.state.is_committed or one.error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    return one.transactional_id
            tried += len(ids)

    def _write_done(self, owner: Owner, session: LogSession, state: CommitState) -> None:
        """Record that all are committed. A failure must not fail the commit: a repeated job would
        duplicate its rows. The next planning commits again, which changes nothing, and records it.
        """
        is_once = owner.numbering is Numbering.ONCE
        try:
            session.write(None if is_once else state, self._client.deadline())
        except LogChangedError:
            _log.info("kprod '%s': the next one that opens the key records it as done", owner.key)
        except KafkaError as error:
            warn(
                _log,
                Kind.DONE_NOT_NOTED,
                "kprod '%s': the batch is committed, but could not be recorded as done: %s",
                owner.key,
                error.message,
            )

    def _done_before(self, owner: Owner, batch: Batch, state: CommitState, name: str) -> bool:
        """True when a batch of that number is committed, so that this one is dropped. Raises
        CommitError when it can't be the same batch.
        """
        check_number(owner.key, owner.numbering, owner.query_id, batch.number, state)
        if batch.number > state.last_done:
            return False
        if batch.transactions and state.done_batch(batch.number) is None:
            # It was not done when it was planned, and wrote; a later one was committed meanwhile.
            raise CommitError(
                f"batch {batch.number} of '{owner.key}' was being written while batch "
                f"{state.last_done} was committed; nothing of it is visible",
                hint="two jobs with one txnAppId ran at the same time: write its versions in "
                "ascending order, one after the other",
            )
        check_payload(owner.key, batch, state, name)
        return True

    def _check_prepared(self, owner: Owner, decision: Decision, deadline: int) -> None:
        """Raises CommitError, and aborts all, unless each is prepared and far from its timeout.
        Their partitions have leaders, and so has the decision's own: without its marker the next
        start would write the batch again, and without an abort's it could not read the log.
        """
        ids, log = decision.ids, log_id(owner.key)
        found = dict(self._client.describe((*ids, log), deadline))
        own = {log: found.pop(log)}
        gone = [
            t.transactional_id
            for t in decision.transactions
            if not is_prepared(t, found[t.transactional_id])
        ]
        late = frozenset() if gone else near_timeout(self._client, found, margin_ms, deadline)
        if not gone and not late:
            away = self._client.leaderless(found | own, deadline)
            while log in away and self._client.clock.now_ms() < deadline:
                self._client.loop.pause(6, deadline)  # about 0.1 s
                with suppress(KafkaTimeoutError):  # then it is what was seen last
                    away = self._client.leaderless(found | own, deadline)
            if away:
                left = sorted({str(tp) for partitions in away.values() for tp in partitions})
                raise NoLeaderError(
                    f"batch {decision.number} of '{owner.key}' can't be committed: {len(left)} of "
                    f"its partitions have no leader ({named(left, _NAMED)}), and rows that are "
                    "committed now may stay invisible there; nothing of it is visible",
                    hint="see which brokers are down, then write the batch again",
                    kind=Kind.NO_LEADER,
                )
            return
        abort_all(self._client, decision.transactions, self._client.deadline())
        first = next(i for i in ids if i in gone or i in late)
        timeout_ms = found[first].timeout_ms
        what = (
            f"can't be committed: {len(gone)} of {len(ids)} transactions are not open any more "
            f"(first: {first}, now {found[first].state.value})"
            if gone
            else f"took too long: {len(late)} of {len(ids)} transactions are near their "
            f"kafka.transaction.timeout.ms (first: {first}, open for more than "
            f"{timeout_ms - margin_ms(timeout_ms)} ms of {timeout_ms} ms)"
        )
        raise CommitError(
            f"batch {decision.number} of '{owner.key}' {what}; nothing of it is visible",
            hint="a transaction may stay open for kafka.transaction.timeout.ms from its task's "
            "first row to the end of the last task: write in smaller batches, or raise it (the "
            "broker's transaction.max.timeout.ms permitting)",
        )

    def _decide(
        self, owner: Owner, session: LogSession, state: CommitState, attempts: _Attempts
    ) -> CommitState:
        """The commit point. The transactions are checked within the lease of the log's transaction,
        so that a decision is never made later than its check allows.
        """
        decision = state.decision
        assert decision is not None
        # So that what is decided is ended within the other half of the margin.
        half_of_margin = margin_ms(self._client.config.transaction_timeout_ms) // 2
        deadline = self._client.deadline(min(self._client.config.max_block_ms, half_of_margin))
        try:
            session.write(
                state, deadline, check=lambda: self._check_prepared(owner, decision, deadline)
            )
        except LogOutcomeUnknownError as error:
            attempts.decision = decision
            raise LogOutcomeUnknownError(
                f"whether batch {decision.number} of '{owner.key}' was decided is not known "
                f"(transactions {named(decision.ids, _NAMED)}): {error.message}",
                hint=_NOTHING_UNDONE,
                transactional_ids=decision.ids,
            ) from error
        except KafkaTimeoutError as error:
            raise KafkaTimeoutError(
                f"batch {decision.number} of '{owner.key}' was not decided in time, and nothing of "
                f"it is visible: {error.message}",
                hint="; ".join(filter(None, [_LATE, error.hint])),
                code=error.code,
                kind=error.kind,
            ) from error
        return state

    def _finish(
        self,
        key: str,
        session: LogSession,
        state: CommitState,
        *,
        checked_ms: int | None = None,
        only_lost: bool = False,
    ) -> CommitState:
        """End what is decided; returns the state with the batch done, or undone. ``checked_ms`` is
        when this process has checked its transactions, within the lease of the decision.
        """
        decision = state.decision
        assert decision is not None
        if state.lost:
            raise _partial(key, decision, state.lost)
        config = self._client.config
        deadline = self._client.deadline(max(config.max_block_ms, config.delivery_timeout_ms))
        with _decided(key, decision):
            ended = end_decided(
                self._client,
                decision.transactions,
                deadline,
                checked_until_ms=0 if checked_ms is None else checked_ms + session.lease_ms,
                only_lost=only_lost,
            )
            if set(ended.lost) == set(decision.ids):
                _warn_undone(key, decision.number)
                return state.undone()
            if ended.lost:
                session.write(state.partly_lost(ended.lost), self._client.deadline())
                raise _partial(key, decision, ended.lost)
            if ended.unknown:
                # It may be done (another thread, a deposed leader), with ids that were used since.
                session.write(state, self._client.deadline())
            if doubtful := ended.unknown + ended.unclear:
                raise CommitOutcomeUnknownError(
                    f"batch {decision.number} of '{key}' is decided, but the outcome of "
                    f"{len(doubtful)} of its {len(decision.ids)} transactions is not known "
                    f"({named(doubtful, _NAMED)})",
                    hint="brokers or a partition's leader were away, or this driver was paused; "
                    f"{_NOTHING_UNDONE}"
                    if ended.unclear
                    else "their transactional ids have expired (transactional.id.expiration.ms), "
                    "so no restart can resolve the batch; check the topic, then continue with "
                    f"'kprod txn resolve {key} --batch {decision.number} --force'",
                    transactional_ids=doubtful,
                )
        return state.finished()

    def _sweep(self, owner: Owner, state: CommitState, *, own_run: bool) -> None:
        """Sweep after a batch is done, by the log's ``state``. What is not ended now is swept
        later, or times out, so errors are only logged.
        """
        try:
            ended = sweep(
                self._client,
                owner.key,
                lambda one: own_run if one.run == owner.run_id else is_superseded(one, state),
                self._client.deadline(),
            )
        except KafkaError as error:
            warn_unseen(owner.key, f"orphaned transactions could not be searched: {error.message}")
            return
        if ended:
            _log.info("kprod '%s': ended %d orphaned transactions", owner.key, len(ended))


def check_number(
    key: str, numbering: Numbering, query_id: str, number: int, state: CommitState
) -> None:
    """Raises CommitError unless batch ``number`` of query ``query_id`` (empty: not known) is the
    last or the next one: a batch that is dropped by mistake is lost silently.
    """
    if state.last_done == NOTHING_DONE or numbering is Numbering.ONCE:
        return  # nothing was committed under this key
    if numbering is Numbering.VERSIONS:
        oldest = min((one.number for one in state.done), default=state.last_done)
        if oldest < number < state.last_done and state.done_batch(number) is None:
            raise CommitError(
                f"version {number} of '{key}' was never written, and version {state.last_done} is "
                "done already",
                hint="versions of one txnAppId must be written in ascending order: use a separate "
                "txnAppId for backfills",
            )
        return
    other = query_id and state.query_id and query_id != state.query_id
    left_out = numbering is Numbering.STREAM and number > state.last_done + 1
    if other or left_out or number < state.last_done:
        raise CommitError(
            f"'{key}' is at batch {state.last_done} of query {state.query_id or 'unknown'}, and "
            f"query {query_id or 'unknown'} is about to write batch {number}",
            hint="the query runs twice, its checkpoint was deleted, copied or restored, it ran "
            "without exactly-once for a while, or two queries share a transactionalIdPrefix or a "
            "name of foreach_batch: use a different one for each query; if that is intended, "
            f"'kprod txn reset {key}' removes the old state",
        )


def check_payload(key: str, batch: Batch, state: CommitState, name: str = "") -> None:
    """Raises CommitError when ``batch``, which is about to be dropped, is not the one that was
    written with its number: it has another digest or, where one is unknown, other rows. An earlier
    attempt of the commit may have recorded its part ``name``.
    """
    done = state.done_batch(batch.number)
    if done is None:
        return
    if batch.digest and done.digest:
        if batch.digest != done.digest:
            raise _other_rows(key, batch.number, f"input {done.digest}", f"input {batch.digest}")
        return
    parts = () if batch.block is None else state.parts_by(batch.number, batch.block.token)
    found = [part.payload for part in parts if not name or part.name != name]
    if batch.payload is not None and (batch.block is None or batch.is_recorded_only):
        found.append(batch.payload)
    if not found or not done.payloads:
        return
    if batch.block is not None and len(found) < (batch.block.writes or 0):
        return  # some of its writes were not counted
    missing, more = Counter(done.payloads), Counter(found)
    if not more <= missing or (not batch.is_recorded_only and more != missing):
        before, now = named(done.payloads, _NAMED), named(found, _NAMED)
        raise _other_rows(key, batch.number, before, now)


def _other_rows(key: str, number: int, written: str, now: str) -> CommitError:
    return CommitError(
        f"batch {number} of '{key}' is done with {written}, and is to be written again with {now}: "
        "other rows under a done number, which would be dropped",
        hint="a checkpoint was copied or restored, a version was used for other data, or the query "
        "is not deterministic; in that case, or if the rows may be dropped, set "
        "verifyReplays=false",
    )


def _decision(owner: Owner, batch: Batch, state: CommitState) -> Decision:
    """The decision for the batch, or for all recorded writes of its block."""
    block = batch.block
    if block is None:
        payload = batch.payload or Payload()
        return Decision(batch.number, batch.transactions, (payload,), batch.digest)
    parts = state.parts_by(batch.number, block.token)
    if len(parts) != block.writes:
        raise CommitError(
            f"batch {batch.number} of '{owner.key}' has {block.writes} writes, and the commit log "
            f"has {len(parts)} successful ones of this block; nothing of it is visible",
            hint="a write failed, the block ended while one was still running, or another block of "
            "this name has begun meanwhile",
        )
    if block.check_letters is not None:
        block.check_letters(*(sum(part.letters[i] for part in parts) for i in (0, 1)))
    transactions = tuple(t for part in parts for t in part.transactions) + batch.transactions
    payloads = tuple(part.payload for part in parts)
    return Decision(batch.number, transactions, payloads, batch.digest)


def _warn_undone(key: str, number: int) -> None:
    warn(
        _log,
        Kind.BATCH_UNDONE,
        "kprod '%s': batch %d was decided, and brokers had aborted some of its transactions, or "
        "were about to, before any was committed (its driver was away for too long of their "
        "kafka.transaction.timeout.ms): all are aborted, and nothing of it is visible; a query "
        "writes it again when it is started, a job must be run again",
        key,
        number,
    )


@contextmanager
def _decided(key: str, decision: Decision, but: tuple[str, str] = _NOT_ENDED) -> Iterator[None]:
    """What fails in here is decided: the error's type keeps the caller from writing it again."""
    try:
        yield
    except KafkaError as error:
        unclear = isinstance(error, LogOutcomeUnknownError)  # which is tried again, by its type
        clear = (CommitOutcomeUnknownError, PartialCommitError, SupersededError)
        if isinstance(error, clear) and not unclear:
            raise
        raise (LogOutcomeUnknownError if unclear else CommitOutcomeUnknownError)(
            f"batch {decision.number} of '{key}' is decided, but its {len(decision.ids)} "
            f"transactions ({named(decision.ids, _NAMED)}) {but[0]}: {error.message}",
            hint="; ".join(filter(None, [error.hint, but[1]])),
            transactional_ids=decision.ids,
        ) from error


def _partial(key: str, decision: Decision, lost: tuple[str, ...]) -> PartialCommitError:
    number, of = decision.number, len(decision.ids)
    return PartialCommitError(
        f"batch {number} of '{key}' is committed in part: the broker aborted {len(lost)} of its "
        f"{of} transactions ({named(lost, _NAMED)}), and their rows are missing",
        hint=f"'kprod txn resolve {key} --batch {number} --as done' continues without them, '--as "
        "replay' lets the query, or another run of the job, write all of it again (the others' "
        "rows come twice); it happens when a driver is away for longer than "
        "kafka.transaction.timeout.ms after its decision, or an operator aborts it by force",
        transactional_ids=lost,
    )
