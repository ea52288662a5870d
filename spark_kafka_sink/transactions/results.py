"""The results of a commit, a planning, an abort and an operator's change, as plain values.

Owns: :class:`Commit`, the closed set of results, with the rows that readers see; the reasons of a
failure, as facts; the result of a decision that others have ended. Never: a text or an exception
(``result_errors.py``), the next step (``table.py``).
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
    """The rows of one write that read_committed consumers see, and whether this may change
    later.
    """

    ALL = "all"
    NONE = "none"
    SOME = "some"
    #: The decision about a block of writes makes them visible.
    LATER = "none yet"
    UNKNOWN = "all, some or none"


class Commit(Enum):
    """The result of a commit. The first four members are successes.

    The other members are failures. Plannings, aborts and operators' changes also use them.
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
    #: A planning, an abort or an operator's change ended without a result (never a commit).
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


# --- the reasons of a failure ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogLost:
    """The log has lost a state: it no longer has the state of ``generation``, at which the batch
    was planned.
    """

    generation: int


@dataclass(frozen=True, slots=True)
class RunAborted:
    """``run`` was aborted, and no other run has taken over."""

    run: str
    is_of_versions: bool


@dataclass(frozen=True, slots=True)
class TakenOver:
    """Run ``newest_run`` has taken over from ``run``. Each run has its generation.

    If ``is_certain`` is false, no run owns the key, and ``newest_run`` is the run that was aborted
    last. Then perhaps no run has taken over, because the generation also grows when many runs are
    aborted.
    """

    run: str
    generation: int
    newest_run: str
    newest_generation: int
    is_certain: bool
    is_of_versions: bool


@dataclass(frozen=True, slots=True)
class WrittenMeanwhile:
    """The batch ``last_done`` was committed while the batch ``number`` was being written."""

    number: int
    last_done: int


@dataclass(frozen=True, slots=True)
class VersionLeftOut:
    """Version ``number`` was left out: it was never written, and the later version ``last_done`` is
    already done.
    """

    number: int
    last_done: int


@dataclass(frozen=True, slots=True)
class VersionForgotten:
    """Version ``number`` is older than ``oldest``, the oldest version that the log remembers."""

    number: int
    oldest: int
    last_done: int


@dataclass(frozen=True, slots=True)
class NotTheNextOne:
    """Batch ``number`` is not the last or the next batch. The last batch is ``last_done`` of query
    ``done_query``.
    """

    number: int
    query: str
    last_done: int
    done_query: str


@dataclass(frozen=True, slots=True)
class OtherRows:
    """Batch ``number`` was committed with the rows ``written``, and is now written with the rows
    ``now``.
    """

    number: int
    written: str
    now: str


@dataclass(frozen=True, slots=True)
class WritesMissing:
    """The log does not have all writes of a block. ``found`` is the number of writes in the log,
    and ``wanted`` the number of writes of the block.
    """

    number: int
    wanted: int | None
    found: int


@dataclass(frozen=True, slots=True)
class NotOpen:
    """Some transactions of a batch are not open any more, before the decision. ``gone`` is the
    number of these transactions, and ``of`` the number of all transactions of the batch.
    """

    number: int
    of: int
    gone: int
    first: str
    first_state: str


@dataclass(frozen=True, slots=True)
class TooOld:
    """Some transactions of a batch are too near to their timeout, before the decision: they are
    older than ``young_ms`` milliseconds. ``late`` is the number of these transactions, and ``of``
    the number of all transactions of the batch.
    """

    number: int
    of: int
    late: int
    first: str
    young_ms: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class NoLeader:
    """Partitions ``partitions`` of a batch have no leader."""

    number: int
    partitions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OwnEnded:
    """Another client has ended the driver's own transaction of a batch."""

    number: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class NotInTime:
    """The write of a decision took too long, and the log does not have it."""

    number: int
    error: KafkaTimeoutError


@dataclass(frozen=True, slots=True)
class NotRecorded:
    """It is unknown whether the log has recorded a write of a block, so the block is not
    decided.
    """

    number: int
    error: KafkaError


@dataclass(frozen=True, slots=True)
class Undone:
    """Brokers had aborted the transactions of a decision before any of them was committed."""

    number: int


@dataclass(frozen=True, slots=True)
class InPart:
    """A decision is committed in part. Brokers have aborted the transactions ``ids``, and others
    are committed. ``of`` is the number of all transactions of the decision.
    """

    number: int
    of: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotDescribed:
    """The log may have had a decision that it does not have any more, and the decision's
    transactions can't be described.
    """

    number: int
    ids: tuple[str, ...]
    error: KafkaError


@dataclass(frozen=True, slots=True)
class EndedSomehow:
    """The log may have had a decision that it does not have any more, and the outcome of the
    transactions ``ids`` is unknown.
    """

    number: int
    of: int
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OutcomeUnknown:
    """A batch is decided, and the outcome of the transactions ``ids`` is unknown."""

    number: int
    of: int
    ids: tuple[str, ...]
    ended: CommitOutcomes


@dataclass(frozen=True, slots=True)
class PerhapsDecided:
    """It is unknown whether the log has the decision."""

    number: int
    ids: tuple[str, ...]
    error: KafkaError


class Fate(Enum):
    """The state of a decision's transactions after a step has failed."""

    NOT_ENDED = "could not all be ended"
    ENDED = "are ended, which could not be recorded in the commit log"
    ABORTED = "are aborted and nothing of it is visible, which could not be recorded"


@dataclass(frozen=True, slots=True)
class NotFinished:
    """A batch is decided, and a step after its decision has failed."""

    number: int
    ids: tuple[str, ...]
    fate: Fate
    error: KafkaError


@dataclass(frozen=True, slots=True)
class BatchBefore:
    """Batch ``number`` is not decided, because an earlier decision of another batch failed with the
    result ``by``.
    """

    number: int
    by: Refuse


@dataclass(frozen=True, slots=True)
class Changed:
    """The state has changed since an operator's change was planned.

    ``is_tried`` is true if an earlier attempt may have applied the change.
    """

    is_tried: bool


@dataclass(frozen=True, slots=True)
class Contradicted:
    """The transactions ``ids`` can't be ended as an operator's resolution requires. With ``done``
    the batch is to count as done, otherwise it is to be written again.
    """

    ids: tuple[str, ...]
    done: bool


@dataclass(frozen=True, slots=True)
class Raised:
    """A step of the goal has raised ``error``, or the caller's own check of the state has raised
    it.
    """

    error: KafkaError


Reason = (
    LogLost | RunAborted | TakenOver | WrittenMeanwhile | VersionLeftOut | VersionForgotten
    | NotTheNextOne | OtherRows | WritesMissing | NotOpen | TooOld | NoLeader | OwnEnded | NotInTime
    | NotRecorded | Undone | InPart | NotDescribed | EndedSomehow | OutcomeUnknown | PerhapsDecided
    | NotFinished | BatchBefore | Changed | Contradicted | Raised
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refuse:
    """The last step of a goal that failed. ``how`` is the kind of failure, and ``reason`` the
    reason.
    """

    how: Commit
    reason: Reason

    @property
    def visible(self) -> Visible:
        return self.how.visible


def refused(reason: Reason) -> Refuse:
    """Creates the failure of a commit that decides nothing. ``reason`` is its reason."""
    return Refuse(Commit.NOT_VISIBLE, reason)


_HOW: Final[tuple[tuple[type[KafkaError], Commit], ...]] = (
    (CommitError, Commit.NOT_VISIBLE),
    (SupersededError, Commit.SUPERSEDED),
    (CommitOutcomeUnknownError, Commit.UNKNOWN),
    (PartialCommitError, Commit.PARTIAL),
)


def raised(error: KafkaError, otherwise: Commit = Commit.NOT_REACHED) -> Refuse:
    """The failure of a goal after ``error``.

    The type of ``error`` determines the kind of failure. ``otherwise`` is the kind for a type that
    is not in the table.
    """
    how = next((how for kind, how in _HOW if isinstance(error, kind)), otherwise)
    return Refuse(how, Raised(error))


def in_part(decision: Decision, lost: tuple[str, ...]) -> Refuse:
    """The failure of a decision that is committed without the transactions ``lost``."""
    return Refuse(Commit.PARTIAL, InPart(decision.number, len(decision.ids), lost))


def perhaps_decided(tried: Decision, error: KafkaError) -> Refuse:
    """The failure of a commit after ``error``, when its decision ``tried`` may be in the log."""
    return Refuse(Commit.UNKNOWN, PerhapsDecided(tried.number, tried.ids, error))


def not_finished(decision: Decision, fate: Fate, error: KafkaError) -> Refuse:
    """The failure of a goal after ``error``, when its batch is already decided."""
    return Refuse(Commit.UNKNOWN, NotFinished(decision.number, decision.ids, fate, error))


def ended_by_others(
    tried: Decision, seen: tuple[TransactionDescription, ...] | KafkaError
) -> Commit | Refuse | None:
    """The result of a decision that may have been in the log and is not there any more.

    COMMITTED if all transactions of ``tried`` are committed. A failure if they are committed in
    part, or if their outcome is unknown. None if no row of the decision is visible.
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
