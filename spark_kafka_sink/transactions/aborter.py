"""The driver undoes a batch that was not decided, and ends what its tasks left open.

Owns: the order of these steps. Never: a decision (``committer.py``), who owns a key
(``ownership.py``), which orphans are ours (``sweep.py``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_kafka_sink.clock import Clock, Latch
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.producer.transaction_states import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.coordinators import Coordinators
from spark_kafka_sink.transactions.decision_log import DecisionLog, LogSession
from spark_kafka_sink.transactions.ending import abort_all
from spark_kafka_sink.transactions.ownership import Owner, insist
from spark_kafka_sink.transactions.sweep import Sweeper

_log = logging.getLogger(__name__)

#: Spark kills a task's Python process so long after it asked it to stop, at most
#: (spark.python.task.killTimeout, 2 s by default); what it still produces then is swept once more.
KILLED_AFTER_MS = 3_000


class Aborter:
    """For as long as its log and its coordinators are open. ``block_ms`` bounds each step
    (max.block.ms).
    """

    def __init__(
        self,
        log: DecisionLog,
        coordinators: Coordinators,
        sweeper: Sweeper,
        clock: Clock,
        *,
        block_ms: int,
    ) -> None:
        self._decisions = log
        self._coordinators = coordinators
        self._sweeper = sweeper
        self._clock = clock
        self._block_ms = block_ms

    def abort(
        self,
        owner: Owner,
        number: int,
        transactions: Sequence[PreparedTransaction],
        *,
        tasks_may_live: bool,
    ) -> tuple[str, ...]:
        """Undo what was not decided; gives the ids of the orphans that were swept.

        It may follow a commit that succeeded: a decision is never undone. A driver that was
        superseded sweeps nothing, and ends only ``transactions``: they have its own run in their
        names, so that nobody else decides about them or ends them. ``tasks_may_live``: a task
        without a message may still write for a moment (Spark kills it later), so what it leaves is
        swept once more.
        """

        def open_() -> LogSession:
            return self._decisions.open(owner.key, self._before())

        def give_up(session: LogSession) -> LogSession:
            return self._give_up(owner, number, session)

        session = insist(owner, open_, give_up)
        decision = None if session.state is None else session.state.decision
        keep = () if decision is None else decision.ids
        left = [t for t in transactions if t.transactional_id not in keep]
        if not owner.was_aborted(session.state):
            if owner.is_superseded(session.state):
                _log.warning(
                    "kprod abort sweeps nothing: another driver has taken over '%s' from run %s",
                    owner.key,
                    owner.run_id,
                )
                abort_all(self._coordinators, left, self._before())
            else:
                _log.warning(
                    "kprod: batch %d of '%s' is decided, so it is not aborted; the next start of "
                    "the query ends it",
                    number,
                    owner.key,
                )
            return ()
        ended = abort_all(self._coordinators, left, self._before())
        swept = self._sweep(owner, keep)
        if tasks_may_live:
            self._clock.wait(Latch(), self._clock.now_ms() + KILLED_AFTER_MS)
            swept += self._sweep(owner, keep)
        if ended and owner.is_only_run:
            try:
                session.write(None, self._before())
            except KafkaError as error:
                _log.info("kprod abort of '%s' left its record: %s", owner.key, error.message)
        return swept

    def _give_up(self, owner: Owner, number: int, session: LogSession) -> LogSession:
        """Unless the batch is decided, or the key is not ours: from here on no commit of this run
        decides anything, also not one that begins now.

        The fence alone shuts out only a commit that has opened the log before. Spark may call abort
        beside a commit that it doesn't wait for any more (its user stopped a query that hung)::

            abort opens the log, and finds no decision
            the commit opens the log, and finds all transactions prepared
            abort ends them
            the commit writes DECIDED: a batch whose transactions are gone
        """
        state = session.state
        decision = None if state is None else state.decision
        decided = decision is not None and decision.number == number
        # Without a state nobody owns the key, so it was taken from nobody: not as a state that is
        # new, whose generation is not the one that this run was planned with.
        if not (decided or owner.was_aborted(state) or owner.is_superseded(state)):
            session.write((state or CommitState()).given_up(owner.run_id), self._before())
        return session

    def _sweep(self, owner: Owner, keep: Sequence[str]) -> tuple[str, ...]:
        return self._sweeper.sweep(owner.prefix, {owner.run_id}, self._before(), keep=keep)

    def _before(self) -> int:
        return self._clock.now_ms() + self._block_ms
