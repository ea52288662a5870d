"""The driver ends the transactions of a batch: decide durably, end each, note that it is done.

Owns: the order of these steps, for commit and for the roll forward at planning. Never: who may take
them (``ownership.py``), an abort that Spark asks for (``aborter.py``), a request
(``coordinators.py``), what a doubtful answer means (``outcomes.py``).

**The commit point** is the log's own transaction: once its EndTxn(commit) is answered, batch N is
DECIDED, and whoever comes next commits its transactions. Before, nobody ends any of them but to
abort; after, nobody aborts any.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from spark_kafka_sink.clock import Clock
from spark_kafka_sink.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    KafkaError,
    KafkaTimeoutError,
    PartialCommitError,
)
from spark_kafka_sink.producer.transaction_states import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, Phase
from spark_kafka_sink.transactions.coordinators import Coordinators
from spark_kafka_sink.transactions.decision_log import DecisionLog, LogSession
from spark_kafka_sink.transactions.ending import abort_all, commit_all
from spark_kafka_sink.transactions.outcomes import is_prepared
from spark_kafka_sink.transactions.ownership import Owner, insist
from spark_kafka_sink.transactions.sweep import Sweeper

_log = logging.getLogger(__name__)

#: Ids that an error names; it tells how many there are.
_NAMED = 5
#: How long planning waits for a write to the log that is under way. A write takes milliseconds.
_READ_MS = 3_000
#: Of a transaction's time, that much must be left for the commit: 10 %, and 30 s of a longer one.
_MARGIN_MS = 30_000


def margin_ms(timeout_ms: int) -> int:
    """How much of transaction.timeout.ms the driver's commit may need (judgement: a tenth, and at
    least 30 s, but never more than half of it).
    """
    return max(timeout_ms // 10, min(_MARGIN_MS, timeout_ms // 2))


@dataclass(frozen=True, slots=True)
class Batch:
    """Micro-batch ``number``, or version of a job; its prepared transactions, one per task that
    wrote a row.

    ``forget``: nobody will ask for this key again (a job without txnAppId).
    """

    number: int
    transactions: tuple[PreparedTransaction, ...] = field(repr=False)
    forget: bool = False


class Commit(Enum):
    """How a commit ended that ended well."""

    COMMITTED = "committed"
    ALREADY_DONE = "done before"
    EMPTY = "no rows"


class Committer:
    """Commits and rolls forward, for as long as its log and its coordinators are open.

    ``block_ms`` bounds what comes before a decision (max.block.ms), ``end_ms`` the ending of what
    is decided (delivery.timeout.ms), ``transaction_timeout_ms`` is the tasks' option.
    """

    def __init__(
        self,
        log: DecisionLog,
        coordinators: Coordinators,
        clock: Clock,
        *,
        block_ms: int,
        end_ms: int,
        transaction_timeout_ms: int,
        sweeper: Sweeper | None = None,
    ) -> None:
        self._decisions = log
        self._coordinators = coordinators
        self._sweeper = Sweeper(coordinators) if sweeper is None else sweeper
        self._clock = clock
        self._block_ms = block_ms
        self._end_ms = end_ms
        self._transaction_timeout_ms = transaction_timeout_ms

    # -- planning -----------------------------------------------------------------------------

    def roll_forward(self, key: str) -> CommitState:
        """What the log says of ``key``, after a batch that an earlier driver decided is ended.

        Raises PartialCommitError for a batch that lost rows and that nobody resolved yet, and
        CommitOutcomeUnknownError when its transactions can't be ended now.
        """
        try:
            state = self._decisions.read(key, self._clock.now_ms() + _READ_MS)
        except KafkaTimeoutError:
            # A driver that died in the middle of a write left it open, and readers wait for it
            # until its time is over. Whoever opens the log ends it. (If that driver lives, it is
            # stuck for longer than a write ever takes; its write fails now, and it stops.)
            session = self._decisions.open(key, self._before())
            return self._rolled_forward(key, session)
        if state is None:
            return CommitState()
        _check_resolved(key, state)
        if state.phase is Phase.DONE:
            return state
        return self._rolled_forward(key, self._decisions.open(key, self._before()))

    def _rolled_forward(self, key: str, session: LogSession) -> CommitState:
        state = session.state or CommitState()
        _check_resolved(key, state)
        if state.phase is not Phase.DECIDED:
            return state
        assert state.decision is not None
        _log.info("kprod %s: batch %d was decided; ending it now", key, state.decision.number)
        state = self._finish(key, session, state)
        # Not `_note_done`: who goes on without the note takes these ids for the next batch, and
        # the log, which still says DECIDED, names transactions that nobody can find again.
        session.write(state, self._before())
        return state

    # -- commit -------------------------------------------------------------------------------

    def commit(self, owner: Owner, batch: Batch) -> Commit:
        """Make ``batch`` visible as a whole, or raise.

        Raises SupersededError (another driver owns the key), CommitError (nothing is visible, and
        what was prepared is aborted or will be), CommitOutcomeUnknownError (nothing is undone; the
        next planning finds out) and PartialCommitError.
        """
        if batch.forget and not batch.transactions:
            return Commit.EMPTY

        def attempt(session: LogSession) -> Commit:
            return self._commit(owner, batch, session)

        return insist(owner, lambda: self._decisions.open(owner.key, self._before()), attempt)

    def _commit(self, owner: Owner, batch: Batch, session: LogSession) -> Commit:
        owner.check(session.state)
        before = self._rolled_forward(owner.key, session)
        state = before.taken_over(owner.run_id, owner.query_id or owner.counted_by)
        if self._done_before(owner, batch, session.state, state):
            self._abort_all(batch)
            # Not `state`, which is not written: whom it calls superseded may still decide.
            self._sweep(owner, before)
            return Commit.ALREADY_DONE
        if owner.is_stream and state.generation != before.generation:
            state = state.without(self._runs_before(owner))
        if not batch.transactions:
            session.write(state.skipped_to(batch.number), self._before())
            self._sweep(owner, state)
            return Commit.EMPTY
        self._check_prepared(owner, batch)
        state = state.decided(Decision(batch.number, batch.transactions))
        self._decide(owner, batch, session, state)
        state = self._finish(owner.key, session, state)
        self._note_done(owner.key, session, None if batch.forget else state)
        self._sweep(owner, state)
        return Commit.COMMITTED

    def _runs_before(self, owner: Owner) -> list[str]:
        """Other runs with transactions under our prefix, as we take over. The log need not know
        them: a driver that dies before its first commit is in none of its records, and what its
        tasks left open would stall consumers until its time is over.

        None of them can commit any more, so that they count as superseded, and are swept::

            A, B and C have planned when the log was at generation 1; their tasks have begun
            A dies. B takes over: generation 2
            C commits: it was planned at 1, the log is at 2 and B's: C stops, whatever we do here

        Who plans from now on plans at 2, and begins its transactions after we have looked.
        """
        return sorted(self._sweeper.runs(owner.prefix, self._before()) - {owner.run_id})

    def _note_done(self, key: str, session: LogSession, state: CommitState | None) -> None:
        """Every transaction is committed. That must not fail for want of a note of it: whoever ran
        the job again would double its rows. The next planning ends the batch once more, which
        changes nothing, and notes it then, or fails before a task starts.
        """
        try:
            session.write(state, self._before())
        except KafkaError as error:
            _log.warning(
                "kprod '%s': the batch is committed, but the commit log could not be told so: %s",
                key,
                error.message,
            )

    def _done_before(
        self, owner: Owner, batch: Batch, before: CommitState | None, state: CommitState
    ) -> bool:
        """True when a batch of that number is committed, and this one is to be dropped."""
        if before is None or not before.generation:
            return False  # nobody ever committed anything under this key
        if not owner.is_stream:
            _check_counted_by(owner, before, batch.number)
            return batch.number <= state.last_done
        if before.query_id and before.query_id != owner.query_id:
            raise _other_query(owner, batch.number, before.query_id, state.last_done)
        if batch.number == state.last_done:
            return True
        if batch.number != state.last_done + 1:
            raise _other_query(owner, batch.number, before.query_id, state.last_done)
        return False

    def _check_prepared(self, owner: Owner, batch: Batch) -> None:
        """Each is open, ours, and open for a while longer; else all are aborted and we raise."""
        deadline = self._before()
        timeout_ms = self._transaction_timeout_ms
        oldest_ms = timeout_ms - margin_ms(timeout_ms)
        ids = [t.transactional_id for t in batch.transactions]
        found = self._coordinators.describe(ids, deadline)
        gone = [t for t in batch.transactions if not is_prepared(t, found[t.transactional_id])]
        late: list[str] = []
        if not gone:
            old = self._coordinators.older_than(owner.prefix, oldest_ms, deadline)
            if old is None:
                # Brokers before 3.8: by our clock, which is not theirs.
                begun = self._clock.wall_ms() - oldest_ms
                old = frozenset(i for i in ids if 0 <= found[i].start_ms < begun)
            late = [i for i in ids if i in old]
        if not gone and not late:
            return
        self._abort_all(batch)
        if gone:
            first = found[gone[0].transactional_id]
            raise CommitError(
                f"batch {batch.number} of '{owner.key}' can't be committed: {len(gone)} of "
                f"{len(ids)} transactions are not open any more (first: "
                f"{gone[0].transactional_id}, now {first.state.value}); nothing of it is visible",
                hint=f"a transaction may stay open for kafka.transaction.timeout.ms ({timeout_ms} "
                "ms) from its task's first row to the end of the last task: write in smaller "
                "batches, or raise it (the broker's transaction.max.timeout.ms permitting)",
            )
        raise CommitError(
            f"batch {batch.number} of '{owner.key}' took too long: {len(late)} of {len(ids)} "
            f"transactions are open for more than {oldest_ms} ms (first: {late[0]}), too near to "
            f"kafka.transaction.timeout.ms ({timeout_ms} ms); nothing of it is visible",
            hint="write in smaller batches, or raise kafka.transaction.timeout.ms (the broker's "
            "transaction.max.timeout.ms permitting)",
        )

    def _decide(self, owner: Owner, batch: Batch, session: LogSession, state: CommitState) -> None:
        try:
            session.write(state, self._before())
        except CommitOutcomeUnknownError as error:
            raise _unknown(
                f"whether batch {batch.number} of '{owner.key}' was decided is not known: "
                f"{error.message}",
                tuple(t.transactional_id for t in batch.transactions),
            ) from error

    def _finish(self, key: str, session: LogSession, state: CommitState) -> CommitState:
        """End what is decided; the state in which that is done."""
        decision = state.decision
        assert decision is not None
        deadline = self._after()
        ended = commit_all(self._coordinators, decision.transactions, self._clock, deadline)
        if ended.lost:
            session.write(state.partly_lost(ended.lost), deadline + self._block_ms)
            raise _partial(key, decision.number, len(decision.transactions), ended.lost)
        doubtful = ended.unknown + ended.unclear
        if doubtful:
            raise _unknown(
                f"batch {decision.number} of '{key}' is decided, but the outcome of "
                f"{len(doubtful)} of its {len(decision.transactions)} transactions is not known "
                f"({_names(doubtful)})",
                doubtful,
            )
        return state.finished()

    def _abort_all(self, batch: Batch) -> None:
        abort_all(self._coordinators, batch.transactions, self._before())

    def _sweep(self, owner: Owner, state: CommitState) -> None:
        """After a batch is done, by what the log says (``state``). What is not swept now is ended
        by time, so it fails nothing.
        """
        runs = {owner.run_id, *(state.superseded if owner.is_stream else ())}
        try:
            swept = self._sweeper.sweep(owner.prefix, runs, self._before())
        except KafkaError as error:
            _log.warning(
                "kprod '%s': orphaned transactions could not be looked for: %s",
                owner.key,
                error.message,
            )
            return
        if swept:
            _log.info("kprod '%s': ended %d orphaned transactions", owner.key, len(swept))

    # -- deadlines ----------------------------------------------------------------------------

    def _before(self) -> int:
        return self._clock.now_ms() + self._block_ms

    def _after(self) -> int:
        return self._clock.now_ms() + self._end_ms


def _names(ids: Sequence[str]) -> str:
    more = f", +{len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return ", ".join(ids[:_NAMED]) + more


def _check_resolved(key: str, state: CommitState) -> None:
    if state.phase is Phase.PARTIAL:
        assert state.decision is not None
        raise _partial(key, state.decision.number, len(state.decision.transactions), state.lost)


def _partial(key: str, number: int, of: int, lost: tuple[str, ...]) -> PartialCommitError:
    return PartialCommitError(
        f"batch {number} of '{key}' is committed in part: the broker aborted {len(lost)} of its "
        f"{of} transactions ({_names(lost)}), and their rows are missing",
        hint=f"'kprod txn resolve {key} --batch {number} --as done' goes on without them, '--as "
        "replay' writes the whole batch again (the others' rows come twice); it happens when a "
        "driver stays away for longer than kafka.transaction.timeout.ms after its decision",
        transactional_ids=lost,
    )


def _unknown(message: str, ids: tuple[str, ...]) -> CommitOutcomeUnknownError:
    return CommitOutcomeUnknownError(
        message,
        hint="nothing was undone: start the query again and it finds out; 'kprod txn describe' "
        "shows what the brokers know",
        transactional_ids=ids,
    )


def _check_counted_by(owner: Owner, state: CommitState, number: int) -> None:
    """A micro-batch of another query than those before would be taken for one of theirs, and
    dropped. (Which query it is, nobody may know: then this knows nothing.)
    """
    if owner.counted_by and state.query_id and owner.counted_by != state.query_id:
        raise CommitError(
            f"'{owner.key}' is at version {state.last_done} of query {state.query_id}, and query "
            f"{owner.counted_by} wants to write micro-batch {number} under it",
            hint="two queries share a name, or a checkpoint was deleted: give foreach_batch (or "
            "txnAppId) a name that was never used",
        )


def _other_query(owner: Owner, number: int, query_id: str, last_done: int) -> CommitError:
    return CommitError(
        f"'{owner.key}' is at batch {last_done} of query {query_id or 'unknown'}, and query "
        f"{owner.query_id} wants to commit batch {number}",
        hint="the query runs twice, its checkpoint was deleted or put back, it ran without "
        "exactly-once for a while, or two queries share a transactionalIdPrefix; if that is meant, "
        f"'kprod txn reset {owner.key}' forgets the old one",
    )
