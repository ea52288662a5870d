"""The batches of one key of the commit log. A key is the name of a query or a job.

This module compares a new :class:`Batch` with the state of its key in the commit log. A batch is
refused if its number is out of order, or if another batch with other rows was committed under its
number. :func:`decision_of` creates the decision to commit a batch. This module does not decide
which run may write the batch (``ownership.py`` does that), and does not choose the next step of a
commit (``table.py`` does that).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from spark_kafka_sink.base.errors import CommitError, named
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import (
    NOTHING_DONE,
    CommitState,
    Decision,
    Payload,
    comparable,
)
from spark_kafka_sink.transactions.driver_transactions import TopicRecord
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import (
    NotTheNextOne,
    OtherRows,
    Refuse,
    VersionForgotten,
    VersionLeftOut,
    WritesMissing,
    WrittenMeanwhile,
    raised,
    refused,
)

#: The maximum number of payloads that an error lists.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Block:
    """The block that a write belongs to. A block is a statement ``with
    spark_kafka_sink.transaction(...)``: all writes in the block form one batch, and are decided
    together.

    ``token`` is the unique name of the block. ``writes`` is None for a write with rows. The commit
    of such a write only records the write in the commit log, as a :class:`Part`. At the end of the
    block, one more commit without rows decides all recorded writes. For this commit, ``writes`` is
    the number of the writes with rows.

    ``number`` is the number of this write in the block: 0, 1 and so on. The transactional id of the
    driver's own transaction contains ``number``. So writes of the block in several threads have
    different ids, and can't fence each other.

    ``letters`` is the pair (number of dead letters, number of rows) of this write. Before the
    decision, ``check_letters`` is called with the sums of both numbers over all writes. The
    function raises CommitError if there are too many dead letters.
    """

    token: str
    writes: int | None = None
    letters: tuple[int, int] = (0, 0)
    check_letters: Callable[[int, int], None] | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one ``save()`` or of one micro-batch, as the driver commits them: the number of
    the batch, and the prepared transactions of its tasks. If ``block`` is set, the rows are only
    one write of a batch that has several writes.

    ``number`` is the batch id of a micro-batch, or the txnVersion of a job. Each task that wrote a
    row has one transaction in ``transactions``. ``payload`` has the number and the size of all
    rows. If the batch is already committed, the tasks write nothing, and only count their rows.
    ``payload`` is None if the tasks did not count. ``digest`` identifies the input that the batch
    was read from. It is empty if the input is unknown.
    """

    number: int
    transactions: tuple[PreparedTransaction, ...] = field(repr=False)
    payload: Payload | None = None
    digest: str = ""
    block: Block | None = None
    #: The offsets of a consumer group, and a record with the report of the write. Both are
    #: committed together with the rows, each in a transaction that the driver itself writes.
    offsets: GroupOffsets | None = None
    report: TopicRecord | None = None

    @property
    def is_recorded_only(self) -> bool:
        """Whether a commit of this batch only records a write in the commit log. The end of the
        :class:`Block` decides this write.
        """
        return self.block is not None and self.block.writes is None


def done_refusal(batch: Batch, state: CommitState, name: str) -> Refuse | None:
    """Compares ``batch`` with the committed batch of the same number. Returns None if both are the
    same batch. Otherwise returns the reason why ``batch`` is refused.

    If ``batch`` is a write of a block, an earlier attempt of this commit may already have recorded
    the write in the log, under ``name``. That record is left out of the comparison.
    """
    if batch.transactions and state.done_batch(batch.number) is None:
        # The batch was not done when it was planned, so its tasks wrote rows. A batch with a higher
        # number was committed in the meantime.
        return refused(WrittenMeanwhile(batch.number, state.last_done))
    return payload_refusal(batch, state, name)


def number_refusal(
    numbering: Numbering, query_id: str, number: int, state: CommitState
) -> Refuse | None:
    """Checks that batch ``number`` may follow the last done batch of its key. Returns None if it
    may, and otherwise the refusal.

    * Spark repeats a batch that it has not recorded as written. So the number of the last done
      batch is allowed.
    * A micro-batch with an earlier number is refused, and so is a micro-batch of another query.
      ``query_id`` is empty if the query is unknown.
    * A stream must not skip a number. A ``foreach_batch`` or a ``transaction`` may skip numbers.
    * A job may skip versions (txnVersion). A skipped version is refused after a later version is
      done.

    The check is strict. If a batch were wrongly taken for a repetition, its rows would be lost
    without an error.
    """
    last_done = state.last_done
    if last_done == NOTHING_DONE or numbering is Numbering.ONCE:
        return None  # nothing was committed under this key
    if numbering is Numbering.VERSIONS:
        oldest = min((one.number for one in state.done), default=last_done)
        if oldest < number < last_done and state.done_batch(number) is None:
            return refused(VersionLeftOut(number, last_done))
        return None
    other = query_id and state.query_id and query_id != state.query_id
    left_out = numbering is Numbering.STREAM and number > last_done + 1
    if other or left_out or number < last_done:
        return refused(NotTheNextOne(number, query_id, last_done, state.query_id))
    return None


def forgotten_refusal(number: int, state: CommitState) -> Refuse | None:
    """Refuses version ``number`` (txnVersion) of a job, if it is older than every version in the
    commit log. Otherwise returns None.

    The log keeps only the newest versions. So it does not show whether an older version was ever
    written. If the sink treated the older version as done, its rows could be lost.
    """
    if number >= state.last_done or state.done_batch(number) is not None:
        return None
    oldest = min((one.number for one in state.done), default=state.last_done)
    if number > oldest:
        return None  # it is known that it was never written
    return refused(VersionForgotten(number, oldest, state.last_done))


def payload_refusal(batch: Batch, state: CommitState, name: str = "") -> Refuse | None:
    """Checks that ``batch`` has the same rows as the committed batch with its number. Returns None
    if both have the same rows, or if this is unknown. Otherwise returns the refusal.

    The digests of the inputs are compared. If one digest is unknown, the payloads are compared
    instead: the numbers of rows, bytes and dead letters, and the topics. If the rows of ``batch``
    or of the committed batch were not counted, nothing is compared.

    The writes of a block form one batch. At the end of the block, their payloads must be equal to
    the committed payloads. Before the end, their payloads must be among the committed payloads. An
    earlier attempt of this commit may already have recorded the write in the log, under ``name``.
    That record is left out of the comparison, so that the write is not counted twice.

    If the log no longer has the committed batch and the rows of ``batch`` were counted, returns the
    result of :func:`forgotten_refusal`.
    """
    number = batch.number
    done = state.done_batch(number)
    if done is None:
        return None if batch.payload is None else forgotten_refusal(number, state)
    if batch.digest and done.digest:
        if batch.digest == done.digest:
            return None
        return refused(OtherRows(number, f"input {done.digest}", f"input {batch.digest}"))
    parts = () if batch.block is None else state.parts_by(number, batch.block.token)
    found = [part.payload for part in parts if not name or part.name != name]
    if batch.payload is not None and (batch.block is None or batch.is_recorded_only):
        found.append(batch.payload)
    if not found or not done.payloads:
        return None
    if batch.block is not None and len(found) < (batch.block.writes or 0):
        return None  # some of its writes were not counted
    missing, more = comparable(done.payloads, found)
    if not more <= missing or (not batch.is_recorded_only and more != missing):
        return refused(OtherRows(number, named(done.payloads, _NAMED), named(found, _NAMED)))
    return None


def decision_of(batch: Batch, state: CommitState) -> Decision | Refuse:
    """Creates the decision to commit a batch.

    For a ``spark_kafka_sink.transaction`` (:class:`Block`), the decision has the transactions of
    all writes of the block, as they are recorded in ``state``. Returns a refusal if ``state`` lacks
    some of the writes, or if the writes have too many dead letters.
    """
    block = batch.block
    if block is None:
        payload = batch.payload or Payload()
        return Decision(batch.number, batch.transactions, (payload,), batch.digest)
    parts = state.parts_by(batch.number, block.token)
    if len(parts) != block.writes:
        return refused(WritesMissing(batch.number, block.writes, len(parts)))
    if block.check_letters is not None:
        try:
            block.check_letters(*(sum(part.letters[i] for part in parts) for i in (0, 1)))
        except CommitError as error:
            return raised(error)
    transactions = tuple(t for part in parts for t in part.transactions) + batch.transactions
    payloads = tuple(part.payload for part in parts)
    return Decision(batch.number, transactions, payloads, batch.digest)
