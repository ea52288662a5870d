"""The results of a commit, an abort, the planning of a batch and an operator's change, as plain
values.

:class:`Commit` has all possible results of a commit, each with the rows that consumers with
read_committed see. :class:`Refuse` is a failure with its reason, and each reason has a class of its
own. This module creates no text and no exception: ``result_errors.py`` does that.

* A *run* is one start of a query or a job.
* The *owner* of a key is the run that may commit its batches.
* The *generation* of a key is a number in its state. Each take-over of the key by another run
  raises it.
* A batch is *decided* if the commit log has the decision to commit its transactions.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from spark_kafka_sink.admin.transaction_description import TransactionDescription
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    KafkaError,
    KafkaTimeoutError,
    PartialCommitError,
    SupersededError,
)
from spark_kafka_sink.transactions.commit_state import Decision
from spark_kafka_sink.transactions.ending import CommitOutcomes
from spark_kafka_sink.transactions.outcomes import is_committed, is_lost, is_prepared


class Visible(Enum):
    """How many rows of a write are visible to consumers with read_committed. LATER and
    UNKNOWN may still change.
    """

    ALL = "all"
    NONE = "none"
    SOME = "some"
    #: The write is one write of a block (``spark_kafka_sink.transaction``). The end of the block
    #: makes the rows of all its writes visible.
    LATER = "none yet"
    UNKNOWN = "all, some or none"


class Commit(Enum):
    """The result of a commit. COMMITTED, ALREADY_DONE, EMPTY and PREPARED are successes. All other
    values are failures. The failures of an abort, of the planning of a batch, and of an operator's
    change have the same values. NOT_REACHED is never the result of a commit.
    """

    COMMITTED = "committed"
    #: An earlier write of the same batch is visible, and the rows of this write are aborted.
    ALREADY_DONE = "done before"
    EMPTY = "no rows"
    PREPARED = "prepared, to be decided with other writes"
    NOT_VISIBLE = "not visible"
    #: Another driver has taken over.
    SUPERSEDED = "superseded"
    PARTIAL = "committed in part"
    UNKNOWN = "not known"
    #: An abort, the planning of a batch or an operator's change ended without a result.
    NOT_REACHED = "not reached"

    @property
    def visible(self) -> Visible:
        return _VISIBLE[self]


_VISIBLE: Final = {
    Commit.COMMITTED: Visible.ALL,
    Commit.ALREADY_DONE: Visible.NONE,
    Commit.EMPTY: Visible.NONE,
    Commit.PREPARED: Visible.LATER,
    Commit.NOT_VISIBLE: Visible.NONE,
    Commit.SUPERSEDED: Visible.NONE,
    Commit.PARTIAL: Visible.SOME,
    Commit.UNKNOWN: Visible.UNKNOWN,
    Commit.NOT_REACHED: Visible.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class AbortResult:
    """The result of a call of ``Committer.abort`` that has not failed.

    * ``swept``: the ids of the aborted transactions that no task has reported.
    * ``visible``: how many rows of the batch are visible. ALL if the run of the batch has already
      committed it. (Spark may call abort even after the commit. A block that was interrupted at its
      end does the same.)
    * ``error``: if ``visible`` is SOME or UNKNOWN, the error that describes the state of the batch,
      and what a user can do. None in all other cases.
    * ``is_decided``: True if the log has the decision to commit the batch, so that nothing was
      aborted.
    """

    swept: tuple[str, ...] = ()
    visible: Visible = Visible.NONE
    error: KafkaError | None = None
    is_decided: bool = False


# --- the reasons of a failure ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogLost:
    """The reason why a commit or the planning of a batch fails: the commit log has lost the state
    of the key, or an operator has reset the state. ``generation`` is the generation of the key when
    the batch was planned.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class RunAborted:
    """The reason why a commit or the planning of a batch fails: the run of the batch can't commit
    any more. Either this run was aborted, or another run had already taken over the key when this
    run planned the batch. (:class:`TakenOver` is the reason if another run has taken over since the
    planning.)
    """

    run: str
    #: True if ``run`` was certainly aborted. False if the log does not show which of the two
    #: causes it was.
    is_certain: bool
    #: True if the batch is a txnVersion of a job. Then the hint of the error names one more
    #: possible cause: another version was committed at the same time.
    is_of_versions: bool


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The reason why a commit or the planning of a batch fails: the generation of the key has grown
    since the batch was planned. Either another run has taken over the key, or another change has
    raised the generation (``is_certain``).
    """

    #: The run that planned the batch.
    run: str
    #: The generation at the planning, such as 5.
    generation: int
    #: The run that owns the key now, or empty if there is none.
    owner: str
    #: The owner. If there is no owner, the run that was aborted last.
    newest_run: str
    #: The generation now, such as 6.
    newest_generation: int
    #: True if ``owner`` is another run that has taken over since the planning. If false, it is
    #: possible that no other run has taken over. For example, if the list ``superseded`` of the
    #: state is full, the abort of one more run also raises the generation.
    is_certain: bool
    #: True if the batch is a txnVersion of a job.
    is_of_versions: bool


@dataclass(frozen=True, slots=True)
class WrittenMeanwhile:
    """The reason why a commit fails: while batch ``number`` was being written, another run
    committed the later batch ``last_done``.
    """

    number: int
    last_done: int


@dataclass(frozen=True, slots=True)
class VersionLeftOut:
    """The reason why a commit or the planning of a batch fails: the txnVersion ``number`` of the
    job comes too late. It was never written, and the later txnVersion ``last_done`` is already
    done.
    """

    number: int
    last_done: int


@dataclass(frozen=True, slots=True)
class VersionForgotten:
    """The reason why a commit or the planning of a batch fails: the job's txnVersion ``number`` is
    older than all versions in the commit log. So it is unknown whether this version was ever
    written. ``oldest`` and ``last_done`` are the oldest and the newest version in the log.
    """

    number: int
    oldest: int
    last_done: int


@dataclass(frozen=True, slots=True)
class NotTheNextOne:
    """The reason why a commit or the planning of a batch fails: batch ``number`` of ``query`` can't
    follow the newest done batch of the key. That is batch ``last_done`` of the query
    ``done_query``.
    """

    number: int
    query: str
    last_done: int
    done_query: str


@dataclass(frozen=True, slots=True)
class OtherRows:
    """The reason why a commit fails: batch ``number`` was committed before, with other rows.
    ``written`` describes the rows of the committed batch, and ``now`` describes the rows of the new
    batch.
    """

    number: int
    written: str
    now: str


@dataclass(frozen=True, slots=True)
class WritesMissing:
    """The reason why the commit of a block (``spark_kafka_sink.transaction``) fails: the number of
    writes that the commit log has recorded differs from the number of writes in the block.
    """

    #: The number of the batch.
    number: int
    #: The number of writes in the block.
    wanted: int | None
    #: The number of writes of the block that the log has recorded.
    found: int


@dataclass(frozen=True, slots=True)
class NotOpen:
    """The reason why a commit fails: some of the batch's transactions are not open any more. So the
    decision to commit the batch was not written to the commit log.
    """

    number: int
    #: The number of the batch's transactions.
    of: int
    #: The number of transactions that are not open.
    gone: int
    #: The id of the first transaction that is not open.
    first: str
    #: The state of this transaction, as its coordinator reports it.
    first_state: str


@dataclass(frozen=True, slots=True)
class TooOld:
    """The reason why a commit fails: some of the batch's transactions are too near to their
    timeout. So the decision to commit the batch was not written to the commit log.
    """

    number: int
    #: The number of the batch's transactions.
    of: int
    #: The number of transactions that are too near to their timeout. A transaction also counts if
    #: no coordinator lists it as open.
    late: int
    #: The id of the first of these transactions.
    first: str
    #: The batch could be decided only while the transaction ``first`` was younger than this age.
    young_ms: int
    #: The timeout of the transaction ``first``.
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class NoLeader:
    """The reason why a commit fails: partitions of the batch's transactions, or the partition of
    the commit log, have no leader now. ``partitions`` are the names of these partitions. ``number``
    is the number of the batch.
    """

    number: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnEnded:
    """The reason why a commit fails: another client has ended a transaction of the driver itself.
    In this transaction, the driver writes the report of batch ``number``, or the offsets of a
    consumer group. ``error`` is the broker's response.
    """

    number: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class NotInTime:
    """The reason why a commit fails: the decision was not written to the commit log within the time
    limit, and is not in the log.
    """

    number: int
    error: KafkaTimeoutError


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """The reason why the commit of a write in a block (``spark_kafka_sink.transaction``) fails: it
    is unknown whether the commit log has recorded this write. So no write of the block is
    committed.
    """

    number: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Undone:
    """The reason why a commit fails: the decision to commit batch ``number`` was undone, before any
    transaction of the batch was committed. All transactions of the batch are aborted, and the batch
    must be written again.

    The cause: brokers or an operator had aborted some of the transactions, or brokers were about to
    abort some because of their age.
    """

    number: int


@dataclass(frozen=True, slots=True)
class InPart:
    """The reason why a commit or the planning of a batch fails: batch ``number`` is committed only
    in part. At least one of its transactions is committed, and at least one was aborted.
    """

    #: The number of the batch that is committed in part. At planning, this is the decided batch in
    #: the commit log.
    number: int
    #: The number of the batch's transactions.
    of: int
    #: The ids of the transactions that were aborted. The outcome of further transactions may be
    #: unknown.
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StaysInPart:
    """The reason why batch ``number`` is visible only in part after its abort: at least one of its
    transactions is committed, at least one is not, and the commit log does not have the decision
    to commit the batch any more. As a rule, an operator has resolved the batch.
    """

    number: int
    #: The number of the batch's transactions.
    of: int
    #: The ids of the transactions that are not committed.
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotDescribed:
    """The reason why a commit fails: it is unknown whether the batch is committed. The decision to
    commit the batch is not in the commit log now, but may have been there before. So the commit
    requested descriptions of the batch's transactions, to find out whether they are committed, and
    this request has failed with ``error``. ``ids`` are the ids of all transactions of the batch.
    """

    number: int
    ids: tuple[str, ...]
    error: KafkaError


@dataclass(frozen=True, slots=True)
class EndedSomehow:
    """The reason why a commit fails: it is unknown whether the batch is committed. The decision to
    commit the batch is not in the commit log now, but may have been there before. The coordinators
    have described the batch's transactions, but the descriptions do not show whether all are
    committed.
    """

    number: int
    #: The number of the batch's transactions.
    of: int
    #: The ids of the transactions whose outcome the coordinators don't show. If there are none, the
    #: ids of the transactions that are still open.
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DecidedBefore:
    """The reason why it is unknown which rows of batch ``number`` are visible after its abort: the
    commit log has the decision to commit the batch, so the abort has ended no transaction.
    """

    number: int


@dataclass(frozen=True, slots=True)
class EndNotShown:
    """The reason why it is unknown whether batch ``number`` is committed after its abort: a commit
    of the batch may have begun, and neither the commit log nor the coordinators of the batch's
    transactions show how it has ended.
    """

    number: int


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """The reason why a commit or the planning of a batch fails: the commit log has the decision to
    commit batch ``number``, and the outcome of some of its transactions is unknown.
    """

    number: int
    #: The number of the batch's transactions.
    of: int
    #: The ids of the transactions with an unknown outcome.
    ids: tuple[str, ...]
    #: The ids of all transactions that are not known to be committed, by outcome.
    ended: CommitOutcomes


@dataclass(frozen=True, slots=True)
class PerhapsDecided:
    """The reason why a commit fails: it is unknown whether the decision to commit batch ``number``
    was written to the commit log. ``ids`` are the transactional ids of the batch. ``error`` was
    raised by the write of the decision, or by a later step that was to find out whether the log has
    it.
    """

    number: int
    ids: tuple[str, ...]
    error: KafkaError


class Fate(Enum):
    """The state of a decided batch's transactions, at the time of an error."""

    NOT_ENDED = "could not all be ended"
    ENDED = "are ended, which could not be recorded in the commit log"
    ABORTED = "are aborted and nothing of it is visible, which could not be recorded"


@dataclass(frozen=True, slots=True)
class NotFinished:
    """The reason why a commit or the planning of a batch fails: the commit log has the decision to
    commit batch ``number``, but this batch could not be finished, because of ``error``. The commit
    or the planning may be for a later batch: it must finish the decided batch first.

    ``fate`` is the state of the transactions of batch ``number``. ``ids`` are their transactional
    ids.
    """

    number: int
    ids: tuple[str, ...]
    fate: Fate
    error: KafkaError


@dataclass(frozen=True, slots=True)
class BatchBefore:
    """The reason why the commit of batch ``number`` fails: the commit log has the decision to
    commit another batch of the same query or job. That batch must be finished first, and could not
    be finished. ``by`` is the reason. So batch ``number`` is not decided, and none of its rows is
    visible.
    """

    number: int
    by: Refuse


@dataclass(frozen=True, slots=True)
class Changed:
    """The reason why an operator's command fails: the state of the key in the commit log has
    changed since the operator's change was planned. If ``is_tried`` is true, an earlier attempt of
    the operator's change may have changed the state.
    """

    is_tried: bool


@dataclass(frozen=True, slots=True)
class Contradicted:
    """The reason why an operator's command fails: the transactions with the ids ``ids`` did not end
    as the operator wants.

    * If ``done`` is true, the operator wants the batch to count as done. Each of these transactions
      was aborted, has an unknown outcome, or could not be committed now.
    * If ``done`` is false, the operator wants the batch to be written again. Each of these
      transactions is committed, or could not be aborted now.
    """

    ids: tuple[str, ...]
    done: bool


@dataclass(frozen=True, slots=True)
class Raised:
    """The reason why a commit, an abort, the planning of a batch or an operator's command fails:
    the exception ``error`` was raised.
    """

    error: KafkaError


Reason = (
    LogLost | RunAborted | TakenOver | WrittenMeanwhile | VersionLeftOut | VersionForgotten
    | NotTheNextOne | OtherRows | WritesMissing | NotOpen | TooOld | NoLeader | OwnEnded | NotInTime
    | NotRecorded | Undone | InPart | StaysInPart | NotDescribed | EndedSomehow | DecidedBefore
    | EndNotShown | OutcomeUnknown | PerhapsDecided | NotFinished | BatchBefore | Changed
    | Contradicted | Raised
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refuse:
    """The failure of a commit, an abort, the planning of a batch or an operator's change. ``how``
    is the kind of failure, and ``reason`` is its reason.

    ``table.next_step`` returns the failure in place of a further step. ``result_errors.error_of``
    creates the exception for the failure.
    """

    how: Commit
    reason: Reason

    @property
    def visible(self) -> Visible:
        return self.how.visible


def refused(reason: Reason) -> Refuse:
    """Returns a failure with ``reason``, of the kind NOT_VISIBLE: no row is or will be visible."""
    return Refuse(Commit.NOT_VISIBLE, reason)


_HOW: Final[tuple[tuple[type[KafkaError], Commit], ...]] = (
    (CommitError, Commit.NOT_VISIBLE),
    (SupersededError, Commit.SUPERSEDED),
    (CommitOutcomeUnknownError, Commit.UNKNOWN),
    (PartialCommitError, Commit.PARTIAL),
)


def raised(error: KafkaError, otherwise: Commit = Commit.NOT_REACHED) -> Refuse:
    """Returns a failure with the exception ``error`` as its reason (:class:`Raised`).

    The kind of the failure depends on the type of ``error``, by the table ``_HOW``. If the type is
    not in the table, the kind is ``otherwise``.
    """
    how = next((how for kind, how in _HOW if isinstance(error, kind)), otherwise)
    return Refuse(how, Raised(error))


def in_part(decision: Decision, lost: tuple[str, ...]) -> Refuse:
    """Returns the failure for a decided batch that is committed only in part. ``lost`` has the ids
    of the transactions that were aborted.
    """
    return Refuse(Commit.PARTIAL, InPart(decision.number, len(decision.ids), lost))


def perhaps_decided(tried: Decision, error: KafkaError) -> Refuse:
    """Creates the failure of a commit whose decision ``tried`` may have been written to the commit
    log, or not. ``error`` was raised by the write of the decision, or by a later step that was to
    find out whether the log has it.
    """
    return Refuse(Commit.UNKNOWN, PerhapsDecided(tried.number, tried.ids, error))


def not_finished(decision: Decision, fate: Fate, error: KafkaError) -> Refuse:
    """Creates the failure of an operation that could not finish a decided batch. The commit log has
    ``decision``, the decision to commit the batch. ``error`` was raised after that. ``fate`` is the
    state of the batch's transactions.
    """
    return Refuse(Commit.UNKNOWN, NotFinished(decision.number, decision.ids, fate, error))


def outcome_of_decision(
    tried: Decision, seen: tuple[TransactionDescription, ...] | KafkaError
) -> Commit | Refuse | None:
    """Finds out whether the batch of the decision ``tried`` is committed. This decision is not in
    the commit log now, but may have been there before. In this case another driver may have ended
    the transactions of the batch.

    ``seen`` has the coordinators' descriptions of these transactions, in the order of
    ``tried.transactions``. If the request for the descriptions failed, ``seen`` is the error.
    Returns one of these results:

    * COMMITTED: all transactions are committed.
    * None: each transaction is aborted or still open, so no row of the batch is visible.
    * A failure: a part of the batch is committed, or it is unknown how much is committed.
    """
    number = tried.number
    if isinstance(seen, KafkaError):
        return Refuse(Commit.UNKNOWN, NotDescribed(number, tried.ids, seen))
    pairs = list(zip(tried.transactions, seen, strict=True))
    committed = [t.transactional_id for t, now in pairs if is_committed(t, now)]
    if len(committed) == len(pairs):
        return Commit.COMMITTED
    lost = tuple(t.transactional_id for t, now in pairs if is_lost(t, now))
    if committed and lost:
        return in_part(tried, lost)
    open_ = tuple(t.transactional_id for t, now in pairs if is_prepared(t, now))
    ids = tuple(i for i in tried.ids if i not in (*committed, *lost, *open_))
    if not ids and not committed:
        return None
    return Refuse(Commit.UNKNOWN, EndedSomehow(number, len(pairs), ids or open_))
