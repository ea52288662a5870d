"""The starts of an application, their writes, and what became of each."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.foreach_batch import ForeachBatch
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.results import Commit
from tests.simulation.processes import Process
from tests.simulation.spark_sink import Planned
from tests.simulation.spark_world import QUERY, TIMEOUT_MS, Run

#: Rows of a stranger's batch 0 say that they are of batch 1000.
STRANGER = 1000
#: The topic of reports, and the group whose offsets are committed with the rows.
REPORTS, READERS = "reports", "readers"


class Outcome(Enum):
    UNDER_WAY = "under way"
    TOLD = "told as written"
    FAILED = "failed"
    #: The error says that it may be written, or is in part.
    DOUBTFUL = "doubtful"


class LostCallError(KafkaError):
    """Its outcome is unknown: its process died, or was not waited for."""


@dataclass(eq=False)
class Write:
    """One call of ``save()``, or one micro-batch of a stream, by one start of the application."""

    run: Start
    number: int
    #: Its rows say that they are of this batch.
    tag: int
    options: dict[str, str]
    streaming: bool
    query: str
    empty: bool = False
    #: Of a transaction of several writes: which one; None for the one that ends it.
    part: int | None = None
    #: One of its rows can't be converted.
    broken: bool = False
    planned: Planned = b""
    messages: Sequence[TaskCommitMessage] = ()
    outcome: Outcome = Outcome.UNDER_WAY
    how: Commit | None = None
    error: KafkaError | None = None
    #: Its batch was done when its planning, or its commit, began.
    is_replay: bool = False

    @property
    def run_id(self) -> str:
        """As the log has it: of a job the one that planning gave it."""
        context = self._context
        return self.run.id if context is None else str(context.run)

    @property
    def aborts(self) -> bool:
        """It is what a block that failed writes at its end."""
        context = self._context
        return context is not None and context.abort

    @property
    def _context(self) -> WriteContext | None:
        plan: TransactionPlan | None = pickle.loads(self.planned) if self.planned else None
        return None if plan is None else plan.context

    @property
    def transactions(self) -> list[PreparedTransaction]:
        """Those of its tasks."""
        return [m.prepared for m in self.messages if m.prepared is not None]

    @property
    def batch_id(self) -> int | None:
        return self.number if self.streaming else None


@dataclass(eq=False)
class Start(Run):
    """One start of the application: its driver, and what of it is known."""

    begun_ms: int = 0
    #: When it ended, or was killed.
    died_ms: int = NEVER
    failed: bool = False
    stopped: bool = False
    #: Spark has called abort for it.
    undone: bool = False
    #: Processes that wait for the next call, by role.
    pool: dict[str, Process] = field(default_factory=dict)
    query: str = QUERY
    #: The name of its checkpoint (``spark_checkpoints.py``).
    checkpoint: str = "own"
    #: Of the application itself; no stranger's, and no sibling's.
    is_main: bool = True
    #: transaction.timeout.ms
    timeout_ms: int = TIMEOUT_MS
    #: What its user made for foreachBatch, in this driver.
    writer: ForeachBatch | None = None

    @property
    def token(self) -> str:
        """The driver's, in transactional ids."""
        return f"d{self.process.nth}{self.process.role[0]}"
