"""What a user does with the sink, and what is done to it: decided before an application begins."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tests.simulation.processes import Blow
from tests.simulation.spark_world import QUERY, TIMEOUT_MS, SparkLife

#: What operators do.
OPERATIONS = ("sweep", "abort run", "commit", "look")


class Kind(Enum):
    STREAM = "stream"
    FOREACH_BATCH = "foreach_batch"
    #: Two writes of a foreachBatch, decided together.
    TRANSACTION = "transaction"
    #: txnAppId and txnVersion: run again until it ends well.
    VERSIONS = "job with txnAppId"
    #: Never run again.
    JOB = "job"


@dataclass(frozen=True)
class ApplicationLife(SparkLife):
    """Probabilities are per batch, unless they say something else."""

    batches: int = 2
    #: Of an attempt that raises, of one that is started twice, of one that takes up to half of its
    #: transaction's time.
    fails: float = 0.0
    speculative: float = 0.0
    slow: float = 0.0
    #: Of a second start of the query, beside the one that runs.
    twice: float = 0.0
    heals_after_ms: int | None = None
    #: Between the starts of two tasks of a stage, so that one worker runs several of them.
    stagger_ms: int = 0
    kind: Kind = Kind.STREAM
    #: Spark tells nothing of the query in a foreachBatch's tasks (Connect, a thread pool).
    connect: bool = False
    #: The user stops the query somewhere in the batch.
    stops: float = 0.0
    operators: float = 0.0
    #: Of a write that had no rows when it was run first.
    empty_first: float = 0.0
    #: Somebody else under the same name, once, when a batch is done: with this batch, or with 0.
    stranger_at: int | None = None
    stranger_query: str = QUERY
    #: Other keys are in the log's partition, and who writes them dies in it.
    crowded: bool = False
    #: A broker is registered that nobody reaches.
    unreachable: bool = False
    #: The rights to end transactions are gone for a while.
    rights: float = 0.0
    #: Of a task's attempt that begins late, when others have prepared long ago.
    late: float = 0.0
    late_ms: int = TIMEOUT_MS * 4 // 3
    #: Milliseconds for which a sweep's requests are on their way; the first InitProducerId, or
    #: AddPartitionsToTxn, of a task.
    late_sweeps: int = 0
    late_init: int = 0
    late_add: int = 0
    #: Down when the driver begins, back when its first batch is done.
    absent_node: int = 0
    marker_ms: int = 2
    #: The log's leader is cut off in the first commit, until another driver is in its own.
    deposed: bool = False
    #: So many answers about the end of the log's writes are lost.
    mute_log: int = 0
    #: So long nobody coordinates a transaction of the first decision.
    lost_coordinator: int = 0
    #: What operators do (``_operate``).
    operations: tuple[str, ...] = OPERATIONS
    #: How long nobody starts the query again.
    away_ms: tuple[int, ...] = (0, 100, 3_000)
    #: max.block.ms, request.timeout.ms, delivery.timeout.ms
    times_ms: tuple[int, int, int] = (20_000, 5_000, 20_000)

    @property
    def absences(self) -> bool:
        """Somebody may be away for so long that transactions end by time."""
        frozen = any(s.blow is Blow.FREEZE and s.ms > 15_000 for s in self.strikes)
        return frozen or max(self.away_ms) > 15_000

    @property
    def calm(self) -> bool:
        """Nothing but the situation itself may disturb it."""
        disturbed = (
            self.strikes,
            self.rights,
            self.slow,
            self.late,
            self.late_init,
            self.late_add,
            self.mute_log,
            self.deposed,
            self.lost_coordinator,
        )
        return self.heals_after_ms is None and not any(disturbed)
