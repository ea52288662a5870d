"""Compares a new :class:`Batch` with the state of its key in the commit log. A key is the name of a
query or a job.

A batch is refused if its number is out of order, or if a batch with the same number is already
committed and has different rows. :func:`decision_of` creates the decision to commit a batch.

``ownership.py`` checks whether a run (one start of the query or job) may commit the batch.
``table.py`` chooses the next step of a commit.
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
    """A statement ``with spark_kafka_sink.transaction(...)``, as one commit in this block sees it.
    All writes of a block form one batch. There are two kinds of commits:

    1. The commit of each write only records this write in the commit log.
    2. The commit at the end of the block decides all recorded writes together.

    The fields are:

    * ``token``: the unique name of the block.
    * ``writes``: None for a commit of the first kind. For a commit of the second kind, the number
      of writes in the block.
    * ``number``: for a commit of the first kind, the number of its write in the block, from 0.
    * ``letters``: for a commit of the first kind, the number of dead letters of its write, and the
      number of rows.
    * ``check_letters``: a function that raises CommitError if there are too many dead letters. A
      commit of the second kind calls it before the decision, with the sums of ``letters`` of all
      writes.
    """

    token: str
    writes: int | None = None
    letters: tuple[int, int] = (0, 0)
    check_letters: Callable[[int, int], None] | None = None
    #: The transactional ids of the driver's own transactions contain this number, so that no two
    #: writes share an id.
    number: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one ``save()`` or of one micro-batch, for a commit of the driver.

    * ``number``: the batch id of a micro-batch, or the txnVersion of a job.
    * ``transactions``: one prepared transaction for each task that wrote a row. Empty if the batch
      was already done when it was planned: its tasks write nothing, and only count their rows,
      which are compared with the done batch.
    * ``payload``: the number and the size of all rows. None if the tasks did not count the rows.
    * ``digest``: identifies the input that the batch was read from. Empty if the input is unknown.
    * ``block``: the ``transaction`` block that the rows belong to. None without such a block.
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
        """Whether this batch is one write of a :class:`Block`. The commit of such a write only
        records it in the commit log. The rows become visible when the block is committed.
        """
        return self.block is not None and self.block.writes is None

    @property
    def has_commit(self) -> bool:
        """Whether there is anything to commit: rows, the offsets of a consumer group, or the writes
        of a :class:`Block`. Without these, the result of the commit is EMPTY.
        """
        return bool(self.transactions) or self.offsets is not None or self.block is not None

    @property
    def carries_report(self) -> bool:
        """Whether the report of the write is committed together with the batch. False for the
        commit at the end of a :class:`Block`, because each write of the block has a report.
        """
        return self.has_commit and (self.block is None or self.is_recorded_only)


def done_refusal(batch: Batch, state: CommitState, name: str) -> Refuse | None:
    """Checks whether ``batch`` may be dropped, as a repetition of a done batch whose rows are
    visible already. Returns the reason for a refusal, or None. ``batch`` is refused in two cases:

    * ``batch`` has transactions, and ``state`` has no done batch with its number. So its rows are
      not visible.
    * :func:`payload_refusal` refuses ``batch``, for example because the done batch has other rows.

    ``name`` is the unique name of the commit of ``batch``.
    """
    if batch.transactions and state.done_batch(batch.number) is None:
        # The batch was not done when it was planned, so its tasks wrote rows. A batch with a higher
        # number was committed in the meantime.
        return refused(WrittenMeanwhile(batch.number, state.last_done))
    return payload_refusal(batch, state, name)


def number_refusal(
    numbering: Numbering, query_id: str, number: int, state: CommitState
) -> Refuse | None:
    """Checks that batch ``number`` may follow the last committed batch of its key. Returns the
    refusal, or None if the batch may follow. The allowed numbers depend on ``numbering``:

    * STREAM: the number of the last committed batch, or the next number.
    * MICRO_BATCHES (``foreach_batch`` and ``transaction``): the number of the last committed batch,
      or any later number.
    * VERSIONS (the txnVersions of a job): any number that was not skipped. A version was skipped if
      ``state.done`` has an earlier version and a later version, but not the version itself.
    * ONCE (a job without txnAppId): any number.

    With STREAM and MICRO_BATCHES, a batch of another query is also refused. ``query_id`` is the
    query of batch ``number``. An unknown query, which is empty, is not compared.

    Exception: if no batch of the key was committed yet, every batch is allowed.
    """
    # The number of the last done batch is allowed, because Spark repeats a batch that it has not
    # recorded as written. The check is strict: if another batch were taken for a repetition, its
    # rows would be lost without an error.
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
    """Refuses a txnVersion of a job if the commit log no longer shows whether this version was
    written. Returns None for all other versions. ``number`` is the version.

    The log keeps only the newest versions. So ``number`` is refused if it is older than every
    version in the log.
    """
    if number >= state.last_done or state.done_batch(number) is not None:
        return None
    oldest = min((one.number for one in state.done), default=state.last_done)
    if number > oldest:
        return None  # it is known that it was never written
    return refused(VersionForgotten(number, oldest, state.last_done))


def payload_refusal(batch: Batch, state: CommitState, name: str = "") -> Refuse | None:
    """Checks that ``batch`` has the same input or the same numbers of rows as the committed batch
    with its number. Returns the refusal, or None. The first of these rules that applies counts:

    1. ``state`` has no committed batch with this number. If the rows of ``batch`` were counted, the
       result is that of :func:`forgotten_refusal`. If they were not counted, the result is None.
    2. Both batches have a digest of their input. The result is a refusal if the digests differ, and
       None if they are equal.
    3. The payloads of at least one of the two batches are unknown, for example because its rows
       were not counted. The result is None.
    4. In all other cases, the payloads are compared. The result is a refusal if they do not match.
       Payloads are the numbers of rows and bytes, and the topics. The numbers of dead letters are
       only compared if all of them are known.

    ``name`` is the unique name of the commit of ``batch``. If an earlier attempt of this commit has
    recorded its write, the payload of this record is left out, so that the write does not count
    twice.
    """
    number = batch.number
    done = state.done_batch(number)
    if done is None:
        return None if batch.payload is None else forgotten_refusal(number, state)
    if batch.digest and done.digest:
        if batch.digest == done.digest:
            return None
        return refused(OtherRows(number, f"input {done.digest}", f"input {batch.digest}"))
    # A block has one payload for each of its writes, in any order. At the end of the block, all its
    # payloads must be equal to those of the done batch. Before the end, they must be among those of
    # the done batch. The record of an earlier attempt of this commit is left out, so that its write
    # does not count twice.
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
    """Creates the decision to commit ``batch``. For a block (``with
    spark_kafka_sink.transaction``), the decision has the transactions of all writes that ``state``
    has recorded for the block.

    Returns a refusal for a block in two cases: the number of recorded writes is not
    ``batch.block.writes``, or ``batch.block.check_letters`` raises an error because the writes have
    too many dead letters.
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
