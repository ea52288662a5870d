"""The rule that determines which run may commit the batches of a key.

* A *key* is the name of a query or a job in the commit log. The log has a state for each key.
* A *run* is one start of a query or a job. The *owner* of a key is the run that may commit the
  key's batches.
* If another run takes over the key, the earlier owner is *superseded*: its commits are refused.
* The *generation* is a number in the state of the key. Each take-over raises it.
* A run *plans* a batch before the tasks start, and remembers the generation of that time.

:class:`Owner` is a run that wants to commit a batch. It applies the rule to the state of the key.
``table.py`` chooses the step that follows.

A driver first fences the earlier writers of the key, then reads the state, and applies the rule to
it. Its later write of a decision fails if another driver has fenced it since. So the decision is
written only if no other driver has changed the state after the read.
If two drivers run the same query, one of them is stopped, and each batch is visible once. For
example, a stream has the drivers A and B. The run of A owns the key at generation 1:

1. A and B plan batch 1.
2. A commits batch 1.
3. B finds that batch 1 is committed, and drops its own rows.
4. A and B plan batch 2, both at generation 1.
5. B finds that the key still has generation 1. So B commits batch 2, and takes over the key: the
   generation is now 2.
6. A finds that its run is superseded, and stops. The rows that A wrote for batch 2 never become
   visible.
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
    """The way in which the batches of a query or a job are numbered. A batch has the rows that are
    committed together. ``number_refusal`` in ``batches.py`` has the numbers that each way allows.
    """

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
    """A run that wants to commit or abort a batch. It is the owner of the key, or may become the
    owner by its commit. :meth:`may_decide` shows whether it may commit the batch.

    * ``key``: the name of the query or the job in the commit log.
    * ``run_id``: a stream's run id. For a batch job, planning generates it.
    * ``query_id``: empty if the query is unknown.
    * ``generation``: the generation of the key when the batch was planned. The generation is a
      number in the commit log that grows when another run takes over the key.
    * ``numbering``: the way in which the key's batches are numbered.
    """

    key: str
    run_id: str
    query_id: str
    generation: int
    numbering: Numbering = Numbering.STREAM

    def may_decide(self, state: CommitState) -> bool:
        """Whether this run may decide its batch, which makes the commit of the batch possible. True
        in two cases:

        * The run owns the key, and planned the batch at the generation directly before this run's
          take-over, or later.
        * The run is not superseded, and the key still has the generation at which the batch was
          planned. Then the run may take over the key.

        For example, a take-over by the run raises the generation from 5 to 6. Then the run may
        commit batches that it planned at generation 5 or 6, but not at 4.
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
