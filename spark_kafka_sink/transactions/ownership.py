"""The rule that determines which run may decide about the batches of a key. A key is the name of a
query or a job in the commit log.

:class:`Owner` checks a run against the log's state. ``table.py`` chooses the step that follows.

Planning, commit and abort run in different processes, and two drivers may run the same query. The
log stops one of the drivers. A decision works like a compare-and-swap of the key's state: a driver
fences the earlier writers, reads the state, and compares it by this rule.

The *owner* is the run that may commit the key's batches. When another run takes over the key, the
earlier owner is *superseded*: its commits are refused. Each take-over raises the *generation*, a
number in the log's state. An example with two drivers of one query, A and B. The run of A owns the
key:

1. A and B plan batch N, both at generation 1.
2. A commits N: it opens the key (fences earlier writers, and reads the state), and writes N as
   decided and then as done.
3. B commits N: it opens the key, and finds that N is done. B drops its rows, and takes nothing
   over.
4. B commits N+1: it opens the key, and finds generation 1, as at its planning. So B takes over:
   generation 2, and the run of A is superseded.
5. A commits N+1: it opens the key, finds that its run is superseded, and stops.

So each batch is visible once. If A commits N+1 before B, B also drops its rows of N+1.

With ``foreach_batch``, B already takes over in step 3. The query of such a batch may be unknown. So
A and B may be drivers of two queries with the same name, and the take-over stops one of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from spark_kafka_sink.transactions.commit_state import CommitState, Standing
from spark_kafka_sink.transactions.results import (
    Commit,
    LogLost,
    Refuse,
    RunAborted,
    TakenOver,
    refused,
)


class Numbering(Enum):
    """The order in which the batches of a key follow each other."""

    #: A stream's micro-batches: one after another, none left out.
    STREAM = "stream"
    #: The micro-batches that a foreachBatch function writes, in ascending order; it may skip some.
    MICRO_BATCHES = "micro-batches"
    #: The txnVersions of a job, in ascending order.
    VERSIONS = "versions"
    #: A job without txnAppId: it has one batch only, which is never repeated.
    ONCE = "once"

    @property
    def is_of_micro_batches(self) -> bool:
        """Whether a run writes many micro-batches. The workers of such a run reuse their
        transactional ids.
        """
        return self in (Numbering.STREAM, Numbering.MICRO_BATCHES)


@dataclass(frozen=True, slots=True)
class Owner:
    """The run that wants to commit or abort a batch. Perhaps it does not own the key yet:
    :meth:`may_decide` shows whether it may commit.

    * ``key``: the name of the query or the job in the commit log.
    * ``run_id``: a stream's run id. For a batch job, planning generates it.
    * ``query_id``: empty if the query is unknown.
    * ``generation``: the generation of the key when the batch was planned. The generation is a
      number in the commit log that grows when another run takes over the key.
    * ``numbering``: the order of the key's batches.
    """

    key: str
    run_id: str
    query_id: str
    generation: int
    numbering: Numbering = Numbering.STREAM

    def may_decide(self, state: CommitState) -> bool:
        """Whether this run may commit its batch. True in two cases:

        * The run may take over the key: the key still has the generation at which the batch was
          planned, and the run is not in the list ``superseded`` of the state.
        * The run owns the key, and no other run took over between the planning of the batch and the
          take-over of this run.

        For example, a batch is planned at generation 5, and the key is still at generation 5. The
        run takes over, which raises the generation to 6. From then on, the run may commit its
        batches of generation 5, 6 and later, but not its batches of generation 4.
        """
        standing = state.standing(self.run_id, self.generation)
        return standing is Standing.OWNER or (
            standing is Standing.UNKNOWN and state.generation == self.generation
        )

    def refusal(self, state: CommitState) -> Refuse | None:
        """The reason why this run may not commit its batch, or None if it may. There are three
        reasons:

        * Another run has taken over the key.
        * This run was aborted.
        * Since the batch was planned, the log has lost the state of the key, or an operator has
          reset the state.
        """
        if self.may_decide(state):
            return None
        forgotten = not state.newest_run or state.generation < self.generation
        if forgotten and self.generation and self.numbering is not Numbering.ONCE:
            return refused(LogLost(self.generation))
        is_others = state.run_id not in ("", self.run_id)
        is_taken = is_others and self.generation < state.take_over[1]
        # (Without an owner it is not known which run has taken over last.)
        no_other = is_others or self.generation == state.generation
        is_newest = self.run_id == state.newest_run
        of_versions = self.numbering is Numbering.VERSIONS
        is_aborted = self.run_id in state.superseded and (is_newest or no_other)
        if is_aborted and not is_taken:
            return refused(RunAborted(self.run_id, is_newest, of_versions))
        reason = TakenOver(
            self.run_id,
            self.generation,
            state.run_id,
            state.newest_run,
            state.generation,
            is_taken,
            of_versions,
        )
        return Refuse(Commit.SUPERSEDED, reason)
