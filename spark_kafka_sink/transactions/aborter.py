"""The driver aborts a batch that was not decided, and the transactions that its tasks left open.

Owns: the order of these steps. Never: a decision (``committer.py``), who owns a key
(``ownership.py``), which orphans are ours (``sweep.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import Latch
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import KafkaError, warn
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog, LogSession
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE, CommitState, Standing
from spark_kafka_sink.transactions.ending import abort_all
from spark_kafka_sink.transactions.ownership import Numbering, Owner, when_open
from spark_kafka_sink.transactions.sweep import is_superseded, open_runs, sweep
from spark_kafka_sink.transactions.transactional_ids import TransactionalId

_log = logging.getLogger(__name__)

_Which = Callable[[TransactionalId], bool]

#: Spark kills a task's Python process at most this long after it asked it to stop: it looks every
#: 2 s, waits for spark.python.task.killTimeout (2 s by default), and sends the signal (2.0 to 4.0 s
#: were measured). Then a second sweep aborts what it still wrote.
KILLED_AFTER_MS = 5_000


class Aborter:
    """Aborts batches, over the connections of ``client``; max.block.ms bounds each step."""

    def __init__(self, log: CommitLog, client: TransactionClient) -> None:
        self._decisions = log
        self._client = client

    def abort(
        self,
        owner: Owner,
        number: int,
        transactions: Sequence[PreparedTransaction],
        *,
        tasks_may_run: bool,
    ) -> tuple[str, ...]:
        """Abort ``transactions`` unless they are decided, and every open transaction of this run;
        returns the ids of the orphans that were swept.

        It may follow a commit that succeeded: a decision is never undone. A superseded run sweeps
        too: the ids of its transactions contain the run id, and no other run decides about them.
        ``tasks_may_run``: a task without a commit message may still write for a moment (Spark kills
        it later), so there is a second sweep.
        """
        mark = partial(self._mark_run_aborted, owner, number)
        session = when_open(self._client, self._decisions, owner.key, mark)
        keep = _decided(session.state)
        if any(t.transactional_id in keep for t in transactions):
            warn(
                _log,
                Kind.DECIDED_NOT_ABORTED,
                "kprod: batch %d of '%s' is decided, so it is not aborted; %s",
                number,
                owner.key,
                "a part of it is lost: 'kprod txn resolve' ends it"
                if session.state.lost
                else "'kprod txn commit' ends it, or the next start of a query",
            )
            return ()
        ended = abort_all(self._client, transactions, self._client.deadline())
        # And of superseded runs: a batch that was rolled forward had no commit that swept them.
        superseded = partial(is_superseded, state=session.state)

        def is_ours(one: TransactionalId) -> bool:
            return one.run == owner.run_id or superseded(one)

        # (A run whose batch is decided may have decided its next version meanwhile.)
        late = superseded if owner.numbering is Numbering.VERSIONS else is_ours
        swept = self._sweep(owner.key, keep, is_ours, late if tasks_may_run else None)
        # (No key means that nothing of it is visible: one that is done keeps it.)
        if ended and owner.numbering is Numbering.ONCE and session.state.last_done == NOTHING_DONE:
            try:
                session.write(None, self._client.deadline())
            except KafkaError as error:
                _log.info("kprod abort of '%s' left its record: %s", owner.key, error.message)
        return swept

    def abort_unknown(self, key: str, mine: _Which) -> tuple[str, ...]:
        """As :meth:`abort`, for a batch without a commit message, so that its run is not known: all
        runs with an open transaction that is ``mine`` are aborted, with their transactions.
        """
        runs = open_runs(self._client, key, self._client.deadline(), mine)
        if not runs:
            # A killed task that had only its identity may still open a transaction with it.
            self._await_killed_tasks()
            runs = open_runs(self._client, key, self._client.deadline(), mine)
            if not runs:
                return ()

        def mark_runs_aborted(session: LogSession) -> LogSession:
            state = session.state
            for run in sorted(runs - set(state.superseded)):
                state = state.with_aborted_run(run)
            if state != session.state:
                session.write(state, self._client.deadline())
            return session

        def is_theirs(one: TransactionalId) -> bool:
            return one.run in runs

        session = when_open(self._client, self._decisions, key, mark_runs_aborted)
        return self._sweep(key, _decided(session.state), is_theirs, is_theirs)

    def _mark_run_aborted(self, owner: Owner, number: int, session: LogSession) -> LogSession:
        """Unless the batch is decided, or the run is superseded: from here on no commit of this run
        decides anything, not even one that begins now.

        Fencing alone stops only a commit that has opened the log before. Spark may call abort
        during a commit that it no longer waits for (its user stopped a query that hung)::

            abort opens the log, and finds no decision
            the commit opens the log, and finds all transactions prepared
            abort ends them
            the commit writes DECIDED: a batch whose transactions are gone
        """
        state, decision = session.state, session.state.decision
        decided = (
            decision is not None and decision.number == number and state.run_id == owner.run_id
        )
        # (A superseded run can't decide, wherever that was read. The write fails when a log that is
        # behind what the run was planned with was read at a leader that is none any more.)
        can_decide = state.standing(owner.run_id, owner.generation) is not Standing.SUPERSEDED
        if can_decide and not decided:
            session.write(state.with_aborted_run(owner.run_id), self._client.deadline())
        return session

    def _sweep(
        self, key: str, keep: Collection[str], is_orphan: _Which, is_late_orphan: _Which | None
    ) -> tuple[str, ...]:
        """``is_late_orphan``: when Spark has killed the tasks (None: none may run)."""

        def ended(which: _Which) -> tuple[str, ...]:
            return sweep(self._client, key, which, self._client.deadline(), keep=keep, patient=True)

        swept = ended(is_orphan)
        if is_late_orphan is not None:
            self._await_killed_tasks()
            swept += ended(is_late_orphan)
        return swept

    def _await_killed_tasks(self) -> None:
        clock = self._client.clock
        clock.wait(Latch(), clock.now_ms() + KILLED_AFTER_MS)


def _decided(state: CommitState) -> frozenset[str]:
    """Transactions that must not be aborted."""
    return frozenset() if state.decision is None else frozenset(state.decision.ids)
