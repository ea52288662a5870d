"""What must be true of an application, whatever happened to it (P1 to P5).

P1, P2: a read_committed consumer sees each row of a batch that Spark calls committed once. P3: rows
of a task keep their order in a partition. P4: of a batch that is not committed nothing is visible,
or the error said so. P5: no transaction stays open.
"""

from __future__ import annotations

from collections import Counter

from spark_kafka_sink.errors import CommitError, SupersededError
from tests.fakes.fake_cluster.transaction_coordinator import State
from tests.simulation.processes import Blow
from tests.simulation.spark_application import Application
from tests.simulation.spark_application_life import Kind
from tests.simulation.spark_world import TIMEOUT_MS
from tests.simulation.spark_writes import STRANGER, LostCallError, Outcome


def judge(app: Application) -> None:
    """AssertionError for the first that is broken."""
    assert not app.observer.broken, app.observer.broken[0]
    _torn_by_a_death_alone(app)
    _nobody_comes_back(app)
    _partial_is_partial(app)
    _every_start_ended_well_or_knew_why(app)
    told = [write for write in app.writes if write.outcome is Outcome.TOLD]
    if app.life.kind is not Kind.JOB and not app.partial:
        missing = set(range(app.life.batches)) - {write.tag for write in told}
        # (Its driver may have died as it was told.)
        assert not missing - set(app.commits), f"never written: {missing}"
    seen: Counter[tuple[int, int, int]] = Counter()
    attempts: dict[tuple[int, int], set[int]] = {}
    for rows in app.seen().values():
        for batch, task, attempt, row in rows:
            seen[batch, task, row] += 1
            attempts.setdefault((batch, task), set()).add(attempt)
    partial = {write.tag for write in app.partial}
    for write in told:
        if write.tag not in partial:
            lost = sorted(app.wanted(write) - seen.keys())
            assert not lost, f"told as written, and lost: {lost}"
    doubled = sorted(row for row, count in seen.items() if count > 1)
    assert not doubled, f"doubled: {doubled}"
    torn = sorted(where for where, found in attempts.items() if len(found) > 1)
    assert not torn, f"of two attempts: {torn}"
    failed = {w.tag for w in app.writes if w.outcome is Outcome.FAILED} - {
        w.tag for w in app.writes if w.outcome is not Outcome.FAILED
    }
    foreign = sorted(row for row in seen if row[0] in failed)
    if app.life.kind is Kind.JOB or any(tag >= STRANGER for tag in failed):
        assert not foreign, f"visible, though every attempt failed: {foreign}"
    _order(app)
    _nothing_open(app)


def _order(app: Application) -> None:
    for partition, rows in app.seen().items():
        last: dict[tuple[int, int], int] = {}
        for batch, task, _, row in rows:
            assert row > last.get((batch, task), -1), f"partition {partition}: {rows}"
            last[batch, task] = row


def _nothing_open(app: Application) -> None:
    for tp, log in app.cluster.logs.items():
        assert log.last_stable_offset == log.end, f"{tp} hangs at {log.last_stable_offset}"
    open_ = [
        t.transactional_id
        for t in app.cluster.transactions.transactions.values()
        if t.state is State.ONGOING
    ]
    assert not open_, f"open: {open_}"


def _torn_by_a_death_alone(app: Application) -> None:
    """A batch is visible in part only when its driver went away between the first and the last
    end, for longer than a transaction lives, and then somebody was told.
    """
    for write, ends in app.observer.torn():
        committed = [end.at_ms for end in ends if end is not None and end.committed]
        lost = [end.at_ms for end in ends if end is not None and not end.committed]
        where = f"batch {write.tag} of {write.run.id}: {ends}"
        if app.life.kind is Kind.JOB and app.was_struck(write):
            continue  # nobody runs it again
        assert lost, f"torn, and not ended: {where}"
        # (Who is frozen behind its look at the clock, and before its requests, sends them late.)
        frozen = any(strike.blow is Blow.FREEZE for strike in app.life.strikes)
        assert frozen or min(committed) < min(lost), f"torn by whoever ended it: {where}"
        hasty = [end for end in ends if end is not None and not end.committed]
        timed_out = all(end.age_ms >= TIMEOUT_MS for end in hasty)
        assert timed_out, f"torn by somebody who did not wait for the time-out: {where}"
        assert app.life.absences, f"torn without an absence: {where}"
        assert write in app.partial, f"torn, and nobody was told: {where}"


def _nobody_comes_back(app: Application) -> None:
    """Once another run has committed, the earlier one is superseded for good."""
    if app.life.kind in (Kind.VERSIONS, Kind.JOB):
        return
    # (A call may return behind those of the run that came after.)
    runs = [write.run.id for write in sorted(app.order, key=lambda write: write.number)]
    turns = [run for i, run in enumerate(runs) if i == 0 or runs[i - 1] != run]
    assert len(turns) == len(set(turns)), f"a superseded run committed again: {runs}"


def _partial_is_partial(app: Application) -> None:
    """Nobody is told of a batch that is visible in part, of which nothing is visible, or all."""
    for number in {write.number for write in app.partial}:
        writes = [write for write in app.writes if write.number == number]
        found = [end for write in writes for end in app.observer.ends_of(write)]
        whole = all(end is not None and end.committed for end in found)
        assert not whole, f"batch {number} is called partial, and all of it is visible"
    for write in app.partial:
        ends = app.observer.ends_of(write)
        if ends and not any(end is not None and end.committed for end in ends):
            others = [w for w in app.writes if w.number == write.number and w is not write]
            assert others, f"batch {write.number} is called partial, and nothing of it is visible"


def _every_start_ended_well_or_knew_why(app: Application) -> None:
    """In a calm world a start fails for a reason that is in its life."""
    codes = {type(error).__name__ for _, _, error in app.errors}
    assert "InvalidTxnStateError" not in codes, "a bare INVALID_TXN_STATE reached the user"
    assert "ProducerFencedError" not in codes, "a bare PRODUCER_FENCED reached the user"
    life = app.life
    harmless = not life.operators or set(life.operations) <= {"look", "commit"}
    if not life.calm or life.fails or life.stops or not harmless:
        return
    if life.twice:
        # (Of a run that is superseded the tasks stop, too: then Spark says that they failed.)
        told = (SupersededError, CommitError, LostCallError)
        assert all(isinstance(e, told) for _, _, e in app.errors), app.errors
        for one, other in app.pairs:
            assert not (one.failed and other.failed), f"{one.id} and {other.id} stop each other"
        return
    if life.kind is not Kind.STREAM and life.stranger_at is not None:
        return  # two that share a name may stop each other, as long as they are told
    assert not app.errors, f"nothing was wrong, and yet: {app.errors}"
