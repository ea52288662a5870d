"""Performs the steps that ``table.py`` chooses for the commit of a batch, the abort of a batch, or
an operator's command.

Every write of the commit log is one of these steps, except for the writes of
``datasource/jobs/backfill_ledger.py``. ``deciding.py`` checks whether a batch may be decided.
``outcomes.py`` interprets unclear responses.

The decision to commit a batch is written to the commit log in a transaction of the log's writer.
EndTxn(commit) of this transaction is the *commit point* of the batch. Before the commit point, the
protocol only aborts the batch's own transactions. After it, the protocol only commits them. If this
driver does not commit them, the driver of the next start does.

There are three exceptions, in which transactions are aborted after the commit point:

* No transaction of the batch is committed yet, and brokers have aborted some because these are near
  or beyond their timeout, or will do so soon. Then all are aborted, and the batch is written again.
* Some transactions are committed, and brokers have aborted others because of their timeout. Then
  the batch is PARTIAL, and an operator resolves it.
* An operator aborts transactions of the batch: ``kprod txn abort --force``, or ``kprod txn resolve
  --as replay``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import random
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.clock import Latch
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import KafkaError, warn
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.abort_results import result_of_abort
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.by_hand import abort_exactly, end_rest
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, LogChangedError
from spark_kafka_sink.transactions.deciding import decision_deadline, prepared_once, unready
from spark_kafka_sink.transactions.ending import (
    abort_and_see,
    end_decided,
)
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.result_errors import error_of, raise_refusal
from spark_kafka_sink.transactions.results import AbortResult, Commit, Refuse, raised
from spark_kafka_sink.transactions.steps import (
    AbortAll,
    AbortBatch,
    AbortExactly,
    AbortUnknown,
    CommitBatch,
    Confirm,
    Decide,
    EndAll,
    EndRest,
    Goal,
    LookAt,
    Open,
    PrepareOwn,
    Read,
    Remove,
    Return,
    RollForward,
    Search,
    Step,
    Sweep,
    View,
    Write,
    Writing,
    failure_of,
    opened,
    with_decision,
    with_failure,
    with_read,
    with_removed,
    with_seen,
    with_sweep,
    with_write,
    without_write,
)
from spark_kafka_sink.transactions.sweep import is_orphan, open_ids, sweep, warn_unseen
from spark_kafka_sink.transactions.table import decided_ids, decides_next, next_step
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_id

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import LastLook, TransactionClient
    from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog, LogSession

_log = logging.getLogger(__name__)

_ONGOING: Final = TransactionState.ONGOING
#: The longest time from Spark's request that a task stop to the kill of its Python process. Spark
#: checks every 2 s, waits for spark.python.task.killTimeout (2 s by default), and sends the signal
#: (2.0 to 4.0 s were measured). Then a second sweep aborts the task's last transaction.
KILLED_AFTER_MS: Final = 5_000


class Committer:
    """Commits and aborts batches, and ends the decided batches of earlier drivers. A batch is
    decided if the commit log has the decision to commit the batch. The requests are sent over the
    connections of ``client``.

    Each step before a decision may take max.block.ms. The commit of a decided batch may take
    max.block.ms or delivery.timeout.ms, whichever is longer. A batch is decided only if its
    transactions are far enough from their timeouts (``lease.py``).
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
        """Ends the decided batch that an earlier driver has left in the commit log, if there is
        one. A batch is decided if the log has the decision to commit the batch. Returns the state
        of ``key`` after the batch has ended.

        As a rule, the batch is committed. Exception: the batch is undone if none of its
        transactions is committed, and one of these is true:

        * Brokers have aborted some of its transactions.
        * ``only_lost`` is False, and some of its transactions are near their timeout.

        To undo a batch means to abort all its transactions. After that, the query or the job must
        write the batch again.

        ``check`` is called with the state of ``key``. It raises CommitError or SupersededError if
        the caller can't continue from this state. This method raises the same error.

        Raises PartialCommitError if the batch is committed only in part. Raises
        CommitOutcomeUnknownError if the batch can't be ended in time.
        """

        def refusal(state: CommitState) -> Refuse | None:
            try:
                check(state)
            except KafkaError as error:
                return raised(error)
            return None

        return self.perform(RollForward(key, refusal, only_lost)).state

    def commit(self, owner: Owner, batch: Batch) -> Commit:
        """Makes all rows of ``batch`` visible to read_committed consumers, or raises an error.
        Returns the kind of success, such as ALREADY_DONE if the same batch was committed before.

        Exception: if ``batch`` is one write of a block (``spark_kafka_sink.transaction``), this
        method only records the write. The commit at the end of the block makes the rows visible.

        The type of an error shows which rows are visible:

        * :class:`BatchError`: each subclass says in its docstring which rows are visible.
        * Any other KafkaError: nothing is decided, and no row is visible. The batch's transactions
          may still be open, until the first of these events: Spark calls :meth:`abort`, another
          commit begins, or the transaction timeout ends.
        """
        how = self.perform(CommitBatch(owner, batch)).how
        assert how is not None
        return how

    def abort(
        self,
        owner: Owner,
        number: int,
        transactions: Sequence[PreparedTransaction],
        *,
        tasks_may_run: bool,
        may_be_committed: bool = True,
    ) -> AbortResult:
        """Aborts batch ``number``, whose prepared transactions are ``transactions``. Then aborts
        orphans, which are open transactions that will not be committed:

        * Open transactions of the run ``owner.run_id`` that were planned at the generation
          ``owner.generation`` or earlier. The generation is a number in the key's state, and each
          take-over of the key raises it.
        * Open transactions of superseded runs, which can't commit any more.

        Exceptions: if the batch is already decided, nothing is aborted, and a warning is logged. If
        another batch is decided, the transactions of that decision are not aborted.

        With ``tasks_may_run``, tasks of the batch may still open transactions. So the abort waits
        for KILLED_AFTER_MS, in which Spark kills the tasks, and searches for orphans a second time.

        Returns the ids of the aborted orphans, and how many rows of the batch are visible. With
        ``may_be_committed``, a commit of the batch may have begun. Then the result is UNKNOWN if
        nothing shows how the batch has ended.
        """
        goal = AbortBatch(owner, number, tuple(transactions), tasks_may_run)
        view = self.perform(goal)
        result = result_of_abort(goal, view, may_be_committed=may_be_committed)
        if result.is_decided:
            _warn_decided(owner.key, number, view.state)
        return result

    def abort_unknown(self, key: str, mine: Callable[[TransactionalId], bool]) -> tuple[str, ...]:
        """Aborts a batch of ``key`` whose run is not known to the caller, because no task has sent
        a commit message. Returns the ids of the aborted transactions.

        ``mine`` returns True for the transactional ids of the batch. The ids of the batch's open
        transactions contain the run. This run becomes superseded: it can't commit any more. Then
        the open transactions of all superseded runs are aborted. Exception: a transaction stays
        open if a decision names it.

        The call waits at least KILLED_AFTER_MS, in which Spark kills the tasks of the batch.
        """
        return self.perform(AbortUnknown(key, mine)).swept

    def perform(self, goal: Goal) -> View:
        """Does the work that ``goal`` describes, such as the commit of a batch, step by step.
        Returns all facts and results as a :class:`View`. Raises a KafkaError if the work fails.
        """
        view = self.view_of(goal)
        if view.refused is None:
            return view
        error = error_of(goal.key, view.refused)
        cause = None if view.failed is None else view.failed.error
        raise error from (None if cause is error else cause)

    def view_of(self, goal: Goal) -> View:
        """As :meth:`perform`, but raises no error if the work fails. In this case the field
        ``refused`` of the view has the reason.
        """
        return _Performance(self._decisions, self._client, goal).to_its_end()


class _Performance:
    """Does the work that one goal describes, such as the commit of a batch. ``table.next_step``
    chooses each step.

    Most steps have a method of their own. For example, ``_opened`` performs the step Open. Each of
    these methods returns the :class:`View`: all facts that are known so far, with the results of
    the step.
    """

    def __init__(self, log: CommitLog, client: TransactionClient, goal: Goal) -> None:
        self._log = log
        self._client = client
        self._goal = goal
        self._session: LogSession | None = None
        #: The leaders that the last check of a decision has seen.
        self._look: LastLook | None = None

    def to_its_end(self) -> View:
        """Performs one step after the other, until the goal is reached or has failed. Returns all
        facts and results.
        """
        goal = self._goal
        view = View(name=uuid.uuid4().hex[:8], until_ms=self._client.deadline())
        while True:
            step = next_step(goal, view)
            if isinstance(step, Return):
                if step.how is Commit.COMMITTED and view.is_left_open:
                    _warn_left_open(goal.key)
                self._leave_open(step)
                return replace(view, how=step.how)
            if isinstance(step, Refuse):
                return replace(view, refused=step)
            try:
                view = self._after(step, view)
            except KafkaError as error:
                now = self._client.clock.now_ms()
                view = with_failure(view, step, failure_of(error), error, now)

    def _after(self, step: Step, view: View) -> View:
        """Performs ``step``. Returns a copy of ``view`` with the step's results."""
        client = self._client
        match step:
            case LookAt(decision):
                return self._looked_at(decision, view)
            case EndAll():
                return self._ended(step, view)
            case PrepareOwn():
                goal = self._goal
                assert isinstance(goal, CommitBatch)
                own = prepared_once(client, goal.owner, goal.batch, step, view.prepared)
                return replace(view, own=own, prepared=own)
            case AbortAll(transactions):
                ended, seen = abort_and_see(client, transactions, client.deadline())
                return replace(view, is_aborted=ended, before_abort=seen)
            case Search():
                return self._searched(step, view)
            case Sweep():
                return self._swept(step, view)
            case AbortExactly():
                return replace(view, by_hand=abort_exactly(client, step))
            case EndRest():
                return replace(view, contrary=end_rest(client, step))
        return self._after_log(step, view)

    def _after_log(self, step: Step, view: View) -> View:
        """Performs a step that reads or writes the commit log. Returns a copy of ``view`` with the
        step's results.
        """
        client = self._client
        match step:
            case Read():
                found, is_settled = self._log.read(self._goal.key, client.deadline())
                return with_read(view, found or CommitState(), is_settled=is_settled)
            case Open():
                return self._opened(step, view)
            case Remove():
                self._pause(step)
                self._log.remove(self._goal.key, client.deadline())
                return with_removed(view)
            case Confirm():
                self._open_session.confirm(client.deadline())
                return replace(view, is_confirmed=True)
            case Write():
                return self._written(step, view)
            case Decide(state):
                return self._decided(state, view)
        raise AssertionError(step)

    @property
    def _open_session(self) -> LogSession:
        assert self._session is not None
        return self._session

    def _pause(self, step: Open | Remove) -> None:
        clock = self._client.clock
        if step.up_to_ms:
            pause = min(random() * step.up_to_ms, step.most_ms)  # noqa: S311 - no secret
            clock.wait(Latch(), clock.now_ms() + round(pause))

    def _opened(self, step: Open, view: View) -> View:
        self._pause(step)
        clock = self._client.clock
        begun_ms = clock.now_ms()
        session = self._left_open(view)
        if session is None:
            session = self._log.open(self._goal.key, self._client.deadline())
        self._session = session
        if isinstance(self._goal, CommitBatch):
            _warn_of_an_empty_log(self._goal.owner, self._goal.batch, session.state)
        if view.first_run is None:
            view = replace(view, first_run=session.state.newest_run)
        return opened(view, session.state, clock.wall_ms(), begun_ms)

    def _left_open(self, view: View) -> LogSession | None:
        """Returns the session of the key that an earlier commit of this process has kept. Its use
        saves the opening of the key. Returns None if there is no kept session, or if it may not be
        used.

        It may be used if both of these are true: this is the first opening by a commit, and the
        next step of this commit is to write the decision.
        """
        if view.openings or not isinstance(self._goal, CommitBatch):
            return None
        session = self._log.kept(self._goal.key)
        if session is None:
            return None
        # Another process may have fenced the session since that commit. Only a write shows this: it
        # fails, and then this commit opens a new session.
        known = opened(view, session.state, self._client.clock.wall_ms())
        return session if decides_next(self._goal, known) else None

    def _leave_open(self, end: Return) -> None:
        session = self._session
        if end.how is Commit.COMMITTED and session is not None and session.is_written:
            self._log.keep(session)

    def _looked_at(self, tried: Decision, view: View) -> View:
        try:
            found = self._client.describe(tried.ids, self._client.deadline())
        except KafkaError as error:
            return with_seen(view, error)
        return with_seen(view, tuple(found[i] for i in tried.ids))

    def _written(self, step: Write, view: View) -> View:
        key = self._goal.key
        if step.why is Writing.UNDONE and view.state.decision is not None:
            _warn_undone(key, view.state.decision.number)
        if step.why is Writing.DONE:
            self._client.refresh_brokers()  # the sweep that follows asks all of them
        try:
            self._write(step.state, self._client.deadline())
        except KafkaError as error:
            if not step.may_fail:
                raise
            _warn_not_written(key, step.why, error)
            return without_write(view, step)
        return with_write(view, step)

    def _decided(self, state: CommitState, view: View) -> View:
        """Writes the decision in ``state`` to the commit log. EndTxn(commit) of this write is the
        commit point of the batch. Returns a copy of ``view`` with the decision.

        The batch's transactions are checked before this EndTxn. The EndTxn can't take effect long
        after the check: when the timeout of the write's transaction (the lease) is over, the
        coordinator aborts the write.
        """
        decision = state.decision
        assert decision is not None
        deadline = decision_deadline(self._client)
        checked_ms = self._client.clock.now_ms()
        self._write(state, deadline, lambda: self._check(decision, deadline))
        return with_decision(view, state, checked_ms + self._open_session.lease_ms)

    def _check(self, decision: Decision, deadline_ms: int) -> None:
        """Raises an error if ``decision`` may not be committed now."""
        key = self._goal.key
        raise_refusal(key, unready(self._client, decision, log_id(key), deadline_ms))
        self._look = self._client.last_look

    def _write(
        self,
        state: CommitState | None,
        deadline_ms: int,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Writes the state to the commit log, or removes the key if ``state`` is None. The steps
        Write and Decide both use this method. ``check`` is called before the write is committed.
        """
        self._open_session.write(state, deadline_ms, check=check)

    def _ended(self, step: EndAll, view: View) -> View:
        """Performs the step :class:`EndAll`: commits all transactions of the decision, or aborts
        all of them. Returns a copy of ``view`` with the outcome of each transaction.
        """
        decision, config = step.decision, self._client.config
        if not view.is_fresh:
            _log.info(
                "kprod %s: batch %d was decided; committing it now", self._goal.key, decision.number
            )
        ended = end_decided(
            self._client,
            decision.transactions,
            self._client.deadline(max(config.max_block_ms, config.delivery_timeout_ms)),
            checked_until_ms=view.young_until_ms,
            look=self._look,
            only_lost=step.only_lost,
        )
        return replace(view, ended=ended)

    def _searched(self, step: Search, view: View) -> View:
        goal = self._goal
        assert isinstance(goal, AbortUnknown)
        if step.when_killed:
            self._await_killed_tasks()
        found = open_ids(self._client, goal.key, self._client.deadline(), goal.mine)
        return replace(view, found=frozenset(found), searches=view.searches + 1)

    def _swept(self, step: Sweep, view: View) -> View:
        """Aborts orphans: transactions that are still open, and that will not be committed. Returns
        a copy of ``view`` with the ids of the aborted transactions.

        If ``step.may_fail`` is true, an error is only logged. Then a later sweep aborts the
        orphans, or they time out.
        """
        key, state = self._goal.key, view.state
        if step.when_killed:
            self._await_killed_tasks()
        try:
            ended, is_left_open = sweep(
                self._client,
                key,
                lambda one: is_orphan(one, step, state),
                self._client.deadline(),
                keep=decided_ids(state),
                spared=step.spared,
                patient=not step.may_fail,
            )
        except KafkaError as error:
            if not step.may_fail:
                raise
            warn_unseen(key, f"orphaned transactions could not be searched: {error.message}")
            return with_sweep(view, step, (), is_left_open=False)
        if ended and step.may_fail:
            _log.info("kprod '%s': ended %d orphaned transactions", key, len(ended))
        return with_sweep(view, step, ended, is_left_open=is_left_open)

    def _await_killed_tasks(self) -> None:
        clock = self._client.clock
        clock.wait(Latch(), clock.now_ms() + KILLED_AFTER_MS)


# --- what the log of the driver shows ----------------------------------------------------------


def _warn_of_an_empty_log(owner: Owner, batch: Batch, state: CommitState) -> None:
    is_later = owner.numbering.is_of_micro_batches and batch.number > 0
    if state == CommitState() and is_later and owner.refusal(state) is None:
        warn(
            _log,
            Kind.COMMIT_LOG_EMPTY,
            "kprod '%s': the commit log has no entry for it, and this is batch %d. Either it "
            "is the first one that is written exactly-once under this name, or the topic of "
            "commitLogTopic was deleted: then a batch that Spark runs again may come twice",
            owner.key,
            batch.number,
        )


def _warn_not_written(key: str, why: Writing, error: KafkaError) -> None:
    if why is Writing.FORGOTTEN:
        _log.info("kprod abort of '%s' left its record: %s", key, error.message)
    elif why is Writing.ABORTED:
        warn_unseen(key, f"open transactions of its own run were not aborted: {error.message}")
    elif isinstance(error, LogChangedError):
        _log.info("kprod '%s': the next one that opens the key records it as done", key)
    else:
        warn(
            _log,
            Kind.DONE_NOT_NOTED,
            "kprod '%s': the batch is committed, but could not be recorded as done: %s",
            key,
            error.message,
        )


def _warn_left_open(key: str) -> None:
    warn_unseen(
        key,
        "open transactions of its own run were not aborted, because another thread or driver has "
        "opened the key, and may have decided them",
    )


def _warn_decided(key: str, number: int, state: CommitState) -> None:
    warn(
        _log,
        Kind.DECIDED_NOT_ABORTED,
        "kprod: batch %d of '%s' is decided, so it is not aborted; %s",
        number,
        key,
        "a part of it is lost: 'kprod txn resolve' ends it"
        if state.lost
        else "'kprod txn commit' ends it, or the next start of a query",
    )


def _warn_undone(key: str, number: int) -> None:
    warn(
        _log,
        Kind.BATCH_UNDONE,
        "kprod '%s': batch %d was decided, and some of its transactions were aborted, or brokers "
        "were about to abort them, before any was committed (as a rule its driver was away for too "
        "long of their kafka.transaction.timeout.ms): all are aborted, and nothing of it is "
        "visible; a query writes it again, a job must be run again",
        key,
        number,
    )
