"""The exceptions for failures of a commit, an abort, the planning of a batch or an operator's
command.

:func:`error_of` creates the exception from a :class:`Refuse` (``results.py``). The type of the
exception shows which rows read_committed consumers see after the failure. The text shows the
reason, and the hint shows what a user can do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    KafkaError,
    KafkaTimeoutError,
    PartialCommitError,
    RefusedError,
    SupersededError,
    named,
)
from spark_kafka_sink.transactions.commit_state import LogChangedError, NoLeaderError
from spark_kafka_sink.transactions.outcome_hints import NOTHING_UNDONE, hint_for
from spark_kafka_sink.transactions.results import (
    BatchBefore,
    Changed,
    Commit,
    Contradicted,
    DecidedBefore,
    EndedSomehow,
    EndNotShown,
    Fate,
    InPart,
    LogLost,
    NoLeader,
    NotDescribed,
    NotFinished,
    NotInTime,
    NotOpen,
    NotRecorded,
    NotTheNextOne,
    OtherRows,
    OutcomeUnknown,
    OwnEnded,
    PerhapsDecided,
    Raised,
    Reason,
    Refuse,
    RunAborted,
    StaysInPart,
    TakenOver,
    TooOld,
    Undone,
    VersionForgotten,
    VersionLeftOut,
    WritesMissing,
    WrittenMeanwhile,
)
from spark_kafka_sink.transactions.transactional_ids import (
    is_of_offsets,
    is_of_report,
    is_of_rows,
)

#: The maximum number of ids that an error lists. The error also has the number of all ids.
_NAMED: Final = 5
_LATE: Final = "brokers were slow, or this driver was paused; the batch is to be written again"
_SMALLER: Final = (
    "a transaction may stay open for kafka.transaction.timeout.ms from its task's first row to the "
    "end of the last task: write in smaller batches, or raise it (the broker's "
    "transaction.max.timeout.ms permitting)"
)
_OLD_OR_UNLISTED: Final = (
    "if the batch took less time, a coordinator was moving, as when a broker restarts: write the "
    "batch again; otherwise write in smaller batches, or raise kafka.transaction.timeout.ms (the "
    "broker's transaction.max.timeout.ms permitting)"
)
_AFTER: Final = {
    Fate.NOT_ENDED: NOTHING_UNDONE,
    Fate.ENDED: NOTHING_UNDONE,
    Fate.ABORTED: _LATE,
}
#: The exceptions for two reasons that may go away. They have types of their own, because
#: ``committer.py`` tries again after these two exceptions.
_NOT_VISIBLE: Final[dict[type[Reason], type[CommitError]]] = {NoLeader: NoLeaderError}
_SUPERSEDED: Final[dict[type[Reason], type[SupersededError]]] = {OwnEnded: LogChangedError}


@dataclass(frozen=True, slots=True)
class _Text:
    """The parts of an exception that depend on the reason of the failure. ``ids`` are transactional
    ids, for exceptions that list them.
    """

    message: str
    hint: str | None
    kind: Kind | None = None
    ids: tuple[str, ...] = ()


def error_of(key: str, found: Refuse) -> KafkaError:
    """Creates the exception for the failure ``found`` of an operation on ``key``, such as a commit
    or an operator's command. If ``found.reason`` has an exception (:class:`Raised`), returns this
    exception.
    """
    reason = found.reason
    if isinstance(reason, Raised):
        return reason.error
    text = _TEXTS[type(reason)](reason, key)
    if isinstance(reason, NotInTime):
        error = reason.error
        return KafkaTimeoutError(text.message, hint=text.hint, code=error.code, kind=error.kind)
    match found.how:
        case Commit.NOT_VISIBLE:
            not_visible = _NOT_VISIBLE.get(type(reason), CommitError)
            return not_visible(text.message, hint=text.hint, kind=text.kind)
        case Commit.SUPERSEDED:
            superseded = _SUPERSEDED.get(type(reason), SupersededError)
            return superseded(text.message, hint=text.hint)
        case Commit.PARTIAL:
            return PartialCommitError(text.message, hint=text.hint, transactional_ids=text.ids)
        case Commit.UNKNOWN:
            return CommitOutcomeUnknownError(
                text.message, hint=text.hint, transactional_ids=text.ids
            )
    return RefusedError(text.message, hint=text.hint)


def raise_refusal(key: str, found: Refuse | None) -> None:
    """Raises the exception for the failure ``found``. Does nothing if ``found`` is None."""
    if found is not None:
        raise error_of(key, found)


# --- another run, another state ----------------------------------------------------------------


def _log_lost(reason: LogLost, key: str) -> _Text:
    return _Text(
        f"the commit log has lost the state of '{key}', which was at generation "
        f"{reason.generation} when this batch was planned; nothing of it is visible",
        "its topic (commitLogTopic) was deleted or created again, or the key was reset: the next "
        "start continues without that state",
    )


def _run_aborted(reason: RunAborted, key: str) -> _Text:
    return _Text(
        f"run {reason.run} of '{key}' was aborted, and commits nothing any more"
        if reason.is_certain
        else f"run {reason.run} of '{key}' was aborted, or another run had taken over before it "
        "planned; it commits nothing any more",
        "nothing of the batch that it was to commit is visible: start the query or the job again, "
        "which writes it; Spark aborted the run (the driver's log says why, before this), or an "
        "operator did ('kprod txn abort' or 'sweep')"
        + (
            ", or another version of this txnAppId was committed at the same time: write its "
            "versions one after the other"
            if reason.is_of_versions
            else ""
        ),
    )


def _taken_over(reason: TakenOver, key: str) -> _Text:
    if not reason.is_certain:
        if not reason.owner:
            now = f"no run owns the key; the run that was aborted last is {reason.newest_run}"
        elif reason.owner == reason.run:
            now = "the run owns the key since a later plan"
        else:
            now = f"run {reason.owner} owns the key"
        return _Text(
            f"run {reason.run} of '{key}' can't commit this batch any more: it planned the batch "
            f"at generation {reason.generation}, the commit log is at {reason.newest_generation}, "
            f"and {now}",
            "nothing of this batch is visible: start the query or the job again; other runs of the "
            "key have written, have failed, or were aborted ('kprod txn abort' or 'sweep'), while "
            "this one ran (if they are of another query, give each its own prefix or name)",
        )
    return _Text(
        f"another driver has taken over '{key}': run {reason.newest_run} (generation "
        f"{reason.newest_generation}) in place of run {reason.run} (generation "
        f"{reason.generation}); this one must stop",
        "two jobs with one txnAppId ran at the same time: nothing of this one is visible; run it "
        "again, one after the other"
        if reason.is_of_versions
        else "a query runs twice with one checkpoint, or two queries share a transactionalIdPrefix "
        "or a name of foreach_batch (use a different prefix or name for each query), or an "
        "operator ended this run's transactions ('kprod txn abort' or 'sweep'; then start it "
        "again)",
    )


# --- another batch -----------------------------------------------------------------------------


def _written_meanwhile(reason: WrittenMeanwhile, key: str) -> _Text:
    return _Text(
        f"batch {reason.number} of '{key}' was being written while batch {reason.last_done} was "
        "committed; nothing of it is visible",
        "two jobs with one txnAppId ran at the same time: write its versions in ascending order, "
        "one after the other",
    )


def _version_left_out(reason: VersionLeftOut, key: str) -> _Text:
    return _Text(
        f"version {reason.number} of '{key}' was never written, and version {reason.last_done} is "
        "done already",
        "versions of one txnAppId must be written in ascending order: use a separate txnAppId for "
        "backfills",
        Kind.VERSION_NOT_KNOWN,
    )


def _version_forgotten(reason: VersionForgotten, key: str) -> _Text:
    return _Text(
        f"version {reason.number} of '{key}' is older than each version that the commit log "
        f"remembers ({reason.oldest} to {reason.last_done}), so whether it was written is not "
        "known; nothing was written now",
        "if it was written, set verifyReplays=false for this run, which drops it as done; if it "
        "was not, write it under its own txnAppId",
        Kind.VERSION_NOT_KNOWN,
    )


def _not_the_next_one(reason: NotTheNextOne, key: str) -> _Text:
    return _Text(
        f"'{key}' is at batch {reason.last_done} of query {reason.done_query or 'unknown'}, and "
        f"query {reason.query or 'unknown'} is about to write batch {reason.number}",
        "the query runs twice, its checkpoint was deleted, copied or restored, it ran without "
        "exactly-once for a while, or two queries share a transactionalIdPrefix or a name of "
        "foreach_batch: use a different prefix or name for each query; if that is intended, "
        f"'kprod txn reset {key}' removes the old state",
    )


def _other_rows(reason: OtherRows, key: str) -> _Text:
    return _Text(
        f"batch {reason.number} of '{key}' is done with {reason.written}, and is to be written "
        f"again with {reason.now}: other rows under a done number, which would be dropped",
        "a checkpoint was copied or restored, a version was used for other data, or the query is "
        "not deterministic; in that case, or if the rows may be dropped, set verifyReplays=false",
    )


def _writes_missing(reason: WritesMissing, key: str) -> _Text:
    return _Text(
        f"batch {reason.number} of '{key}' has {reason.wanted} writes, and the commit log has "
        f"{reason.found} successful writes; nothing of it is visible",
        "a write failed, the block ended while one was still running, or another block of this "
        "name has begun meanwhile",
    )


# --- before the decision -----------------------------------------------------------------------


def _not_open(reason: NotOpen, key: str) -> _Text:
    return _Text(
        f"batch {reason.number} of '{key}' can't be committed: {reason.gone} of {reason.of} "
        f"transactions are not open any more (first: {reason.first}, now {reason.first_state}); "
        "nothing of it is visible",
        _SMALLER,
    )


def _too_old(reason: TooOld, key: str) -> _Text:
    return _Text(
        f"batch {reason.number} of '{key}' can't be committed: {reason.late} of {reason.of} "
        f"transactions are open for more than {reason.young_ms} ms of their "
        f"kafka.transaction.timeout.ms ({reason.timeout_ms} ms), or no coordinator lists them "
        f"(first: {reason.first}); nothing of it is visible",
        _OLD_OR_UNLISTED,
    )


def _no_leader(reason: NoLeader, key: str) -> _Text:
    away = reason.partitions
    return _Text(
        f"batch {reason.number} of '{key}' can't be committed: {len(away)} of its partitions have "
        f"no leader ({named(away, _NAMED)}), and rows that are committed now may stay invisible "
        "there; nothing of it is visible",
        "see which brokers are down, then write the batch again",
        Kind.NO_LEADER,
    )


def _own_ended(reason: OwnEnded, key: str) -> _Text:
    return _Text(
        f"another client has ended the transaction of '{key}' with the offsets or the report of "
        f"batch {reason.number}: {reason.error.message}",
        "write the batch again; if no other driver was started, an operator did ('kprod txn abort' "
        "or 'sweep')",
    )


def _not_in_time(reason: NotInTime, key: str) -> _Text:
    error = reason.error
    return _Text(
        f"batch {reason.number} of '{key}' was not decided in time, and nothing of it is visible: "
        f"{error.message}",
        "; ".join(filter(None, [_LATE, error.hint])),
    )


def _not_recorded(reason: NotRecorded, key: str) -> _Text:
    return _Text(
        f"whether a write of batch {reason.number} of '{key}' was recorded is not known, so its "
        f"block commits nothing: {reason.error.message}",
        "see which brokers are down, then write the batch again",
    )


def _batch_before(reason: BatchBefore, key: str) -> _Text:
    by = reason.by.reason
    found = by.error if isinstance(by, Raised) else _TEXTS[type(by)](by, key)
    return _Text(
        f"batch {reason.number} of '{key}' was not decided, and nothing of it is visible, because "
        f"another batch comes before it: {found.message}",
        found.hint,
    )


# --- it may be decided -------------------------------------------------------------------------


def _not_described(reason: NotDescribed, key: str) -> _Text:
    of, why = len(reason.ids), reason.error.message
    return _not_there(reason, key, f"its {of} transactions can't be looked at: {why}")


def _ended_somehow(reason: EndedSomehow, key: str) -> _Text:
    shown = f"{len(reason.ids)} of its {reason.of} transactions"
    ids = named(reason.ids, _NAMED)
    return _not_there(reason, key, f"the outcome of {shown} is not known ({ids})")


def _not_there(reason: NotDescribed | EndedSomehow, key: str, why: str) -> _Text:
    return _Text(
        f"batch {reason.number} of '{key}' may be decided: the commit log does not have its "
        f"decision, which others may have ended, and {why}",
        "look whether its rows are visible before it is written again",
        ids=reason.ids,
    )


def _perhaps_decided(reason: PerhapsDecided, key: str) -> _Text:
    return _Text(
        f"whether batch {reason.number} of '{key}' was decided is not known (transactions "
        f"{named(reason.ids, _NAMED)}): {reason.error.message}",
        NOTHING_UNDONE,
        ids=reason.ids,
    )


# --- it is decided -----------------------------------------------------------------------------


def _decided_before(reason: DecidedBefore, key: str) -> _Text:
    return _Text(
        f"the decision to commit batch {reason.number} of '{key}' is recorded, so the batch was "
        "not aborted",
        NOTHING_UNDONE,
    )


def _end_not_shown(reason: EndNotShown, key: str) -> _Text:
    return _Text(
        f"a commit of batch {reason.number} of '{key}' may have begun before its abort, and "
        "nothing shows whether the batch is committed",
        "start the query again, or the job with the same txnVersion: it leaves the batch out if it "
        "is committed, and writes it if it is not; for a job without txnAppId, look whether its "
        "rows are visible before it is run again",
    )


def _outcome_unknown(reason: OutcomeUnknown, key: str) -> _Text:
    return _Text(
        f"batch {reason.number} of '{key}' is decided, but the outcome of {len(reason.ids)} of its "
        f"{reason.of} transactions is not known ({named(reason.ids, _NAMED)})",
        hint_for(reason.ended, key, reason.number, reason.of),
        ids=reason.ids,
    )


def _not_finished(reason: NotFinished, key: str) -> _Text:
    ids, error = reason.ids, reason.error
    return _Text(
        f"batch {reason.number} of '{key}' is decided, but its {len(ids)} transactions "
        f"({named(ids, _NAMED)}) {reason.fate.value}: {error.message}",
        "; ".join(filter(None, [error.hint, _AFTER[reason.fate]])),
        ids=ids,
    )


def _undone(reason: Undone, key: str) -> _Text:
    return _Text(
        f"batch {reason.number} of '{key}' was decided, and is undone: before any of its "
        "transactions was committed, some were aborted, or brokers were about to abort them; "
        "nothing of it is visible",
        "write the batch again; this driver was paused, or brokers were away, for longer than "
        "kafka.transaction.timeout.ms allows, or an operator aborted transactions by force",
    )


def _in_part(reason: InPart, key: str) -> _Text:
    number, lost = reason.number, reason.ids
    if not any(map(is_of_rows, lost)):
        contents = (("the commit of its offsets", is_of_offsets), ("its report", is_of_report))
        missing = " and ".join(what for what, fits in contents if any(map(fits, lost)))
        return _Text(
            f"batch {number} of '{key}' is committed in part: {missing} is missing (aborted: "
            f"{named(lost, _NAMED)}), and no rows are known to be missing",
            f"if 'kprod txn describe {key}' shows no transaction with an unknown outcome, all rows "
            f"are visible: 'kprod txn resolve {key} --batch {number} --as done' continues, and "
            "'--as replay' would write the rows a second time",
            ids=lost,
        )
    return _Text(
        f"batch {number} of '{key}' is committed in part: {len(lost)} of its {reason.of} "
        f"transactions were aborted ({named(lost, _NAMED)}), and their rows are missing",
        f"'kprod txn resolve {key} --batch {number} --as done' continues without them, '--as "
        "replay' lets the query, or another run of the job, write all of it again (the others' "
        "rows come twice); it happens when a driver is away for longer than "
        "kafka.transaction.timeout.ms after its decision, or an operator aborts it by force",
        ids=lost,
    )


def _stays_in_part(reason: StaysInPart, key: str) -> _Text:
    number, lost = reason.number, reason.ids
    return _Text(
        f"batch {number} of '{key}' is committed in part: {len(lost)} of its {reason.of} "
        f"transactions were aborted ({named(lost, _NAMED)}), and the commit log does not have its "
        "decision any more",
        f"an operator has resolved it, and 'kprod txn describe {key}' shows whether it is done: if "
        "it is, the missing rows stay missing; if it is not, the query, or another run of the job, "
        "writes all of it again (the others' rows come twice)",
        ids=lost,
    )


# --- an operator's change ----------------------------------------------------------------------


def _changed(reason: Changed, key: str) -> _Text:
    is_tried = reason.is_tried
    then = "whether this took effect before is not known" if is_tried else "it was not changed"
    return _Text(
        f"the commit log's state of '{key}' has changed meanwhile; {then}",
        "a driver is running: check again with 'kprod txn describe'",
    )


def _contradicted(reason: Contradicted, _: str) -> _Text:
    done, ids = reason.done, reason.ids
    what = "can't be committed, or are lost" if done else "can't be aborted, or are committed"
    return _Text(
        f"{len(ids)} more transactions of the batch {what} (first: {ids[0]}); the commit log is "
        "as it was",
        "check with 'kprod txn describe', and run the command again: it shows what is known then",
    )


_TEXTS: Final[dict[type[Reason], Callable[[Any, str], _Text]]] = {
    LogLost: _log_lost,
    RunAborted: _run_aborted,
    TakenOver: _taken_over,
    WrittenMeanwhile: _written_meanwhile,
    VersionLeftOut: _version_left_out,
    VersionForgotten: _version_forgotten,
    NotTheNextOne: _not_the_next_one,
    OtherRows: _other_rows,
    WritesMissing: _writes_missing,
    NotOpen: _not_open,
    TooOld: _too_old,
    NoLeader: _no_leader,
    OwnEnded: _own_ended,
    NotInTime: _not_in_time,
    NotRecorded: _not_recorded,
    BatchBefore: _batch_before,
    NotDescribed: _not_described,
    EndedSomehow: _ended_somehow,
    PerhapsDecided: _perhaps_decided,
    DecidedBefore: _decided_before,
    EndNotShown: _end_not_shown,
    OutcomeUnknown: _outcome_unknown,
    NotFinished: _not_finished,
    Undone: _undone,
    InPart: _in_part,
    StaysInPart: _stays_in_part,
    Changed: _changed,
    Contradicted: _contradicted,
}
