"""The batches of one key of the commit log: their transactions, their order, and the batch that may
come next.

Owns: :class:`Batch` and :class:`Block`; the refusal of a batch that is not the next batch, or that
differs from the batch that was written with the same number; the decision for a batch. Never: which
run may write the batch (``ownership.py``), the next step of a commit (``table.py``).
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

#: Payloads that an error lists.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Block:
    """Several writes of one batch that are decided together.

    ``token`` distinguishes the block from every other block. Each write with rows is only recorded,
    and has ``writes`` None. The last write of the block has no rows, and decides all writes. Its
    ``writes`` is their number.

    ``number`` counts the writes of the block from 0. The transactional id of the driver's own
    transaction contains ``number``, because writes in several threads would end each other's
    transactions if they shared an id. (Counting writes in the log is not enough: two writes may
    read the log before one of them has recorded its part.)

    ``letters`` are the numbers of dead letters and of rows of this write, as in :class:`Part`.
    Before the decision, ``check_letters`` gets the sums over all writes, and raises an error if
    there are too many dead letters.
    """

    token: str
    writes: int | None = None
    letters: tuple[int, int] = (0, 0)
    check_letters: Callable[[int, int], None] | None = None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch or a version of a job, with its number and its prepared transactions.

    Each task that wrote a row has one transaction. ``payload`` is the sum over all tasks, including
    tasks that only counted their rows because the batch was already done. It is None if the rows
    were not counted. ``digest`` identifies the batch's input. It is empty if the input is unknown.
    """

    number: int
    transactions: tuple[PreparedTransaction, ...] = field(repr=False)
    payload: Payload | None = None
    digest: str = ""
    block: Block | None = None
    #: Committed with the rows, each in a transaction of the driver's own.
    offsets: GroupOffsets | None = None
    report: TopicRecord | None = None

    @property
    def is_recorded_only(self) -> bool:
        return self.block is not None and self.block.writes is None


def done_refusal(batch: Batch, state: CommitState, name: str) -> Refuse | None:
    """The refusal of a batch whose number is already done. None if it is the batch that was done,
    which may be dropped.
    """
    if batch.transactions and state.done_batch(batch.number) is None:
        # It was not done when it was planned, and wrote; a later one was committed meanwhile.
        return refused(WrittenMeanwhile(batch.number, state.last_done))
    return payload_refusal(batch, state, name)


def number_refusal(
    numbering: Numbering, query_id: str, number: int, state: CommitState
) -> Refuse | None:
    """The refusal of batch ``number``. None if it is the last or the next batch of its query.

    ``query_id`` is empty if the query is unknown. The check is strict, because a batch that is
    dropped by mistake is lost silently.
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
    """The refusal of a version that is older than all versions that the log remembers. None for
    other versions.

    The log does not show whether such an old version was ever written, so dropping it as done may
    lose its rows.
    """
    if number >= state.last_done or state.done_batch(number) is not None:
        return None
    oldest = min((one.number for one in state.done), default=state.last_done)
    if number > oldest:
        return None  # it is known that it was never written
    return refused(VersionForgotten(number, oldest, state.last_done))


def payload_refusal(batch: Batch, state: CommitState, name: str = "") -> Refuse | None:
    """The refusal of a batch that differs from the batch that was written with the same number.
    None if the batches are equal.

    Two batches are equal if they have the same digest. If a digest is unknown, they are equal if
    they have the same rows. If an earlier attempt of the commit has recorded this write under
    ``name``, the write is counted only once. A version that the log has forgotten since its
    planning is also refused, unless its rows were not counted.
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
    """The decision for a batch, or for all recorded writes of the batch's block. If the batch is
    refused, returns the reason instead.
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
