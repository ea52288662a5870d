"""Who may decide about the batches of a key: the compare half of every compare-and-swap.

Owns: :class:`Owner`, its check against what the log says, and what is done when somebody opens the
log behind us. Never: a decision (``committer.py``), a transaction of the data.

**The fence lives in the log.** Planning, commit and abort run in different, short-lived processes,
and two drivers may believe in the same query. Two drivers A (older) and B (newer) of one query::

    A plans N (generation 1, run a)     B plans N (generation 1 is the log's)
    A commits: opens the log, writes DECIDED N, ends, writes DONE N
    B commits: opens the log; the log's run is a, its generation has not moved since B planned:
               B takes over (generation 2, a is superseded). N is done already: dropped
    A commits N+1: opens the log, finds itself superseded, stops

So the later starter wins, at the earlier one's next commit at the latest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from spark_kafka_sink.errors import CommitError, SupersededError
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.decision_log import LogSession
from spark_kafka_sink.transactions.transactional_ids import log_key, prefix_of_key

T = TypeVar("T")

#: How often whoever is right shuts out somebody who opened the log behind it.
DUELS: Final = 3


@dataclass(frozen=True, slots=True)
class Owner:
    """Who commits or aborts: as planned (``generation``) and as run (``run_id``, ``query_id``).

    ``run_id`` is a stream's run id or a batch job's uuid; ``query_id`` is empty in batch jobs.
    ``generation`` is the log's when the batch was planned. ``counted_by`` is the query whose
    micro-batches a job's versions are (foreach_batch), empty when it isn't known or there is none.
    """

    key: str
    run_id: str
    query_id: str
    generation: int
    counted_by: str = ""

    @property
    def prefix(self) -> str:
        return prefix_of_key(self.key)

    @property
    def is_stream(self) -> bool:
        return bool(self.query_id)

    @property
    def is_only_run(self) -> bool:
        """Nobody else will ever have this key (a job without txnAppId)."""
        return self.key == log_key(self.prefix, self.run_id)

    def check(self, state: CommitState | None) -> None:
        """Raises SupersededError when somebody else has taken the key over, CommitError when this
        run was aborted.
        """
        if state is None or state.run_id == self.run_id:
            return
        if self.was_aborted(state):
            raise CommitError(
                f"run {self.run_id} of '{self.key}' was aborted, and commits nothing any more",
                hint="nothing of its last batch is visible, and the next start writes it again; "
                "Spark aborted it (the driver's log says why, before this), or an operator did "
                "('kprod txn abort' or 'sweep')",
            )
        if self.is_superseded(state):
            raise SupersededError(
                f"another driver has taken over '{self.key}': run {state.run_id} (generation "
                f"{state.generation}) in place of run {self.run_id} (generation "
                f"{self.generation}); this one must stop",
                hint="a query runs twice with one checkpoint, or two queries share a "
                "transactionalIdPrefix (give each query a prefix of its own), or an operator ended "
                "this run's transactions ('kprod txn abort' or 'sweep'; then start it again)"
                if self.is_stream
                else "two jobs with one txnAppId ran at the same time: nothing of this one is "
                "visible; run it again, one after the other",
            )

    def is_superseded(self, state: CommitState | None) -> bool:
        """Somebody else has the key now."""
        if state is None or state.run_id == self.run_id:
            return False
        return self.run_id in state.superseded or state.generation != self.generation

    def was_aborted(self, state: CommitState | None) -> bool:
        """This run was given up, and nobody has taken over since."""
        return state is not None and not state.run_id and self.run_id in state.superseded


def insist(owner: Owner, open_: Callable[[], LogSession], attempt: Callable[[LogSession], T]) -> T:
    """What ``attempt`` gives, with a key that ``open_`` has opened: it checks who owns the key, and
    writes. It is made again when somebody opened the key between its check and its write.

    Without that, the last breath of a superseded driver stops the one that superseded it::

        B opens the log, and finds that it may take over
        A, stalled until now, opens the log: B is fenced
        A finds itself superseded, and stops
        B's write is refused

    B's next attempt finds what A left: nothing, or A's decision.
    """
    for left in reversed(range(DUELS)):
        session = open_()
        try:
            return attempt(session)
        except SupersededError:
            owner.check(session.state)  # it was superseded before, and knew it
            if not left:
                raise
    raise AssertionError
