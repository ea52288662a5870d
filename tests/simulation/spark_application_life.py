"""What a user does with the sink, and what is done to it: decided before an application begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tests.simulation.processes import Blow
from tests.simulation.spark_world import QUERY, TIMEOUT_MS, SparkLife

#: What operators do.
OPERATIONS = ("sweep", "abort run", "commit", "look")
ALL_OPERATIONS = (*OPERATIONS, "sweep orphans", "abort", "reset")


class Kind(Enum):
    STREAM = "stream"
    FOREACH_BATCH = "foreach_batch"
    #: Two writes of a foreachBatch, decided together.
    TRANSACTION = "transaction"
    #: txnAppId and txnVersion: run again until it ends well.
    VERSIONS = "job with txnAppId"
    #: Never run again.
    JOB = "job"


class Second(Enum):
    """Another block of the same name and number in one call of the user's function."""

    NONE = "none"
    NESTED = "nested"
    #: In a thread, while the first one is open.
    BESIDE = "beside"
    BEHIND = "behind"


@dataclass(frozen=True)
class Block:
    """What the user's function does with ``transaction``."""

    writes: int = 2
    #: Another number each time, as long as the batch is not decided.
    varies: bool = False
    threads: bool = False
    #: The writes come in another order each time.
    shuffled: bool = False
    #: Of a write that can't be planned, or whose rows can't be converted, in the first starts; and
    #: of an error of a write that the function swallows.
    fails: float = 0.0
    swallows: float = 0.0
    second: Second = Second.NONE
    #: An option of the last write alone, which would lead it out of its block.
    own_option: tuple[str, str] | None = None


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
    #: A thread of the driver writes each version again while the next one is written.
    repeats: bool = False
    #: The first driver is idle after its first batch, while another one commits the next.
    idles: bool = False
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
    #: And the request with the driver's own offsets or report, while another start takes over.
    late_own: int = 0
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
    #: transaction.timeout.ms of each start in turn, and of operators.
    timeouts_ms: tuple[int, ...] = (TIMEOUT_MS,)
    operators_timeout_ms: int = TIMEOUT_MS
    #: Who comes behind the first decision ("operator", "start"), and when; and for so long
    #: coordinators load the transactions of it.
    meanwhile: str = ""
    comes_ms: int = 0
    loads_ms: int = 0
    #: So many requests of the second start to commit one of the decided transactions are lost.
    lost_ends: int = 0
    #: For so long the request to commit the first of the decided transactions is on its way, and
    #: until then no other request to end one of them is worked on.
    late_end: int = 0
    #: Of a driver that dies when a batch is committed, before Spark has noted it.
    unnoted: float = 0.0
    block: Block = Block()
    #: ``foreach_batch`` is called in the user's function, once for each batch.
    made_in_function: bool = False
    #: Another query of this application, in the same driver, under the same name.
    sibling: bool = False
    #: All writes have as many rows and bytes, also those of a stranger or a sibling.
    alike: bool = False
    #: The query gives other bytes each time it is started.
    other_bytes: bool = False
    #: The option checkpointLocation is given; or is that of another query still.
    checkpoint: bool = False
    old_checkpoint: bool = False
    #: offsetsGroup, reportTopic; and the group has members, until the user stops them.
    offsets: bool = False
    group_in_use: bool = False
    report: bool = False
    #: What becomes of a batch that is PARTIAL: "" (the end), or how an operator resolves it.
    resolved_as: str = ""

    @property
    def absences(self) -> bool:
        """Somebody may be away for so long that transactions end by time."""
        most = 15_000 if min(self.timeouts_ms) >= TIMEOUT_MS else 5_000
        frozen = any(s.blow is Blow.FREEZE and s.ms > most for s in self.strikes)
        return frozen or max(self.away_ms) > most

    @property
    def only_dies(self) -> bool:
        """Nothing happens to it but that drivers die, and are soon started again."""
        deaths = all(strike.blow is Blow.KILL_ALL for strike in self.strikes)
        return deaths and not self.absences and replace(self, strikes=(), unnoted=0.0).calm

    @property
    def knows_offsets(self) -> bool:
        """The sink can read which micro-batch it is that is written."""
        of_query = self.kind not in (Kind.VERSIONS, Kind.JOB)
        return of_query and (self.checkpoint or self.offsets)

    @property
    def mistaken(self) -> bool:
        """The user's code has a mistake, which he corrects when it is refused."""
        block = self.block
        wrong = block.second is not Second.NONE or block.own_option is not None
        of_offsets = self.old_checkpoint or self.group_in_use
        return of_offsets or (self.kind is Kind.TRANSACTION and wrong)

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
            self.late_own,
            self.mute_log,
            self.deposed,
            self.lost_coordinator,
            self.loads_ms,
            self.lost_ends,
            self.late_end,
            self.unnoted,
        )
        return self.heals_after_ms is None and not any(disturbed)
