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
from enum import Enum
from random import random
from typing import Final, TypeVar

from spark_kafka_sink.clock import Clock, Latch
from spark_kafka_sink.errors import CommitError, KafkaError, SupersededError
from spark_kafka_sink.transactions.commit_state import CommitState, LogOutcomeUnknownError, Standing
from spark_kafka_sink.transactions.transactional_ids import prefix_of_key

T = TypeVar("T")
OpenedT = TypeVar("OpenedT")

#: How often whoever is right shuts out somebody who opened the log behind it.
_DUELS: Final = 5


class Numbering(Enum):
    """How the batches of a key follow each other."""

    #: A stream's micro-batches: one after another, none left out.
    STREAM = "stream"
    #: Those that a foreachBatch function writes, which may leave some out; none comes late.
    MICRO_BATCHES = "micro-batches"
    #: In ascending order: the txnVersions of a job.
    VERSIONS = "versions"
    #: There is one batch only, and nobody asks for it again: a job without txnAppId.
    ONCE = "once"

    @property
    def is_of_micro_batches(self) -> bool:
        """One run writes many batches, and its workers use their ids again."""
        return self in (Numbering.STREAM, Numbering.MICRO_BATCHES)


@dataclass(frozen=True, slots=True)
class Owner:
    """Who commits or aborts: as planned (``generation`` and ``incarnation`` are the log's then) and
    as run.

    ``run_id`` is a stream's run id, or what planning made for a job. ``query_id`` is empty where it
    isn't known.
    """

    key: str
    run_id: str
    query_id: str
    generation: int
    incarnation: str = ""
    numbering: Numbering = Numbering.STREAM

    @property
    def prefix(self) -> str:
        return prefix_of_key(self.key)

    def may_decide(self, state: CommitState | None) -> bool:
        """It owns the key, or may take it over: nobody has since it planned."""
        if state is None:
            return True
        standing = state.standing(self.run_id)
        return standing is Standing.OWNER or (
            standing is Standing.UNKNOWN
            and (state.generation, state.incarnation) == (self.generation, self.incarnation)
        )

    def check(self, state: CommitState | None) -> None:
        """Raises SupersededError when somebody else has taken the key over, CommitError when this
        run was aborted, or when the log has lost what it said when the batch was planned.
        """
        forgotten = state is None or (not state.run_id and not self.may_decide(state))
        if forgotten and self.generation and self.numbering is not Numbering.ONCE:
            raise CommitError(
                f"the commit log knows nothing of '{self.key}' any more, which was at generation "
                f"{self.generation} when this batch was planned; nothing of it is visible",
                hint="its topic (commitLogTopic) was deleted or made anew, or somebody reset the "
                "key; the next start goes on without what was known",
            )
        if state is None or self.may_decide(state):
            return
        # (Nobody has taken over since it planned, but for itself.)
        nobody_else = self.generation == state.generation or self.run_id == state.run_id
        if nobody_else and self.run_id in state.superseded:
            raise CommitError(
                f"run {self.run_id} of '{self.key}' was aborted, and commits nothing any more",
                hint="nothing of its last batch is visible, and the next start writes it again; "
                "Spark aborted it (the driver's log says why, before this), or an operator did "
                "('kprod txn abort' or 'sweep')",
            )
        raise SupersededError(
            f"another driver has taken over '{self.key}': run {state.run_id or 'none'} (generation "
            f"{state.generation}) in place of run {self.run_id} (generation "
            f"{self.generation}); this one must stop",
            hint="two jobs with one txnAppId ran at the same time: nothing of this one is "
            "visible; run it again, one after the other"
            if self.numbering is Numbering.VERSIONS
            else "a query runs twice with one checkpoint, or two queries share a "
            "transactionalIdPrefix or a name of foreach_batch (give each query one of its own), or "
            "an operator ended this run's transactions ('kprod txn abort' or 'sweep'; then start "
            "it again)",
        )


def retry_when_fenced(
    open_: Callable[[], OpenedT],
    attempt: Callable[[OpenedT], T],
    check: Callable[[OpenedT], None] = lambda opened: None,  # noqa: ARG005 - nothing to check
    *,
    clock: Clock | None = None,
) -> T:
    """What ``attempt`` gives, with what ``open_`` has opened: it checks who owns a key, and writes.
    It is made again when somebody opened the key between its check and its write; ``check`` raises
    when that is no wonder, because the key is somebody else's.

    Without that, the last breath of a superseded driver stops the one that superseded it::

        B opens the log, and finds that it may take over
        A, stalled until now, opens the log: B is fenced
        A finds itself superseded, and stops
        B's write is refused

    B's next attempt finds what A left: nothing, or A's decision. It is also made again when nobody
    knows whether the write is in the log: whoever opens it fences what is on its way, and reads.

    Two commits that both may take over would shut each other out until both give up. So with a
    ``clock`` each pauses at random, for up to twice as long as its attempt took: one of them gets
    its turn.
    """
    unknown: LogOutcomeUnknownError | None = None
    for left in reversed(range(_DUELS)):
        begun = 0 if clock is None else clock.now_ms()
        try:
            opened = open_()
        except KafkaError as error:
            if unknown is None:
                raise
            raise unknown from error
        try:
            return attempt(opened)
        except LogOutcomeUnknownError as error:
            unknown = error
            if not left:
                raise
        except SupersededError:
            unknown = None
            check(opened)
            if not left:
                raise
            if clock is not None:
                now = clock.now_ms()
                pause = random() * 2 * (now - begun)  # noqa: S311 - no secret
                clock.wait(Latch(), now + round(pause))
    raise AssertionError
