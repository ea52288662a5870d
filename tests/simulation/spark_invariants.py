"""What must be true of an application, whatever happened to it (P1 to P5).

P1, P2: a read_committed consumer sees each row of a batch that Spark calls committed once. P3: rows
of a task keep their order in a partition. P4: of a batch that is not committed nothing is visible,
or the error said so. P5: no transaction stays open.
"""

from __future__ import annotations

from collections import Counter

from spark_kafka_sink.base.errors import BatchError, ConfigError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.transactional_ids import parse
from tests.fakes.fake_cluster.transaction_coordinator import State
from tests.simulation.processes import Blow
from tests.simulation.spark_application import Application
from tests.simulation.spark_application_life import Kind
from tests.simulation.spark_checkpoints import SOURCE, end_offset
from tests.simulation.spark_writes import READERS, STRANGER, LostCallError, Outcome, Write

#: Between a look at how old transactions are and the coordinator's decision about the first.
_A_WHILE_MS = 5_000


def judge(app: Application) -> None:
    """AssertionError for the first that is broken."""
    assert not app.observer.broken, app.observer.broken[0]
    _torn_by_a_death_alone(app)
    _nobody_comes_back(app)
    _partial_is_partial(app)
    _every_start_ended_well_or_knew_why(app)
    told = [write for write in app.writes if write.outcome is Outcome.TOLD]
    torn_for_good = app.partial and not app.operators.resolved
    if app.life.kind is not Kind.JOB and not torn_for_good and not app.is_shut_out:
        missing = set(range(app.life.batches)) - {write.tag for write in told}
        # (Its driver may have died as it was told.)
        assert not missing - set(app.commits), f"never written: {missing}"
    seen: Counter[tuple[int, int, int]] = Counter()
    attempts: dict[tuple[int, int], set[int]] = {}
    for rows in app.seen().values():
        for batch, task, attempt, row in rows:
            seen[batch, task, row] += 1
            attempts.setdefault((batch, task), set()).add(attempt)
    _letters(app, told)
    partial = {write.tag for write in app.partial}
    first = _first_of_each_start(app)
    for write in told:
        if write.tag not in partial and write not in first:
            lost = sorted(app.wanted(write) - seen.keys())
            assert not lost, f"told as written, and lost: {lost}"
    # (An operator has had it written again.)
    again = partial | app.operators.forgotten
    doubled = sorted(row for row, count in seen.items() if count > 1 and row[0] not in again)
    assert not doubled, f"doubled: {doubled}"
    torn = sorted(w for w, found in attempts.items() if len(found) > 1 and w[0] not in again)
    assert not torn, f"of two attempts: {torn}"
    _reports(app, seen, again)
    _offsets(app)
    failed = {w.tag for w in app.writes if w.outcome is Outcome.FAILED} - {
        w.tag for w in app.writes if w.outcome is not Outcome.FAILED
    }
    foreign = sorted(row for row in seen if row[0] in failed)
    if app.life.kind is Kind.JOB or any(tag >= STRANGER for tag in failed):
        assert not foreign, f"visible, though every attempt failed: {foreign}"
    _order(app)
    _ids_are_used_again(app)
    _nothing_open(app)


def _letters(app: Application, told: list[Write]) -> None:
    """Rows that can't be sent are dead letters, and no others."""
    if not app.life.bad:
        return
    where = {
        (batch, task, row): partition
        for partition, rows in app.seen().items()
        for batch, task, _, row in rows
    }
    for write in told:
        for task in range(app.life.tasks):
            for row, asked in enumerate(app.tasks.partitions(write, task)):
                found = where.get((write.tag, task + 100 * (write.part or 0), row), asked)
                assert found == asked, f"batch {write.tag}, row {row} of task {task}: {found}"


def _ids_are_used_again(app: Application) -> None:
    """All batches of one start of a query have one run, so that its workers need no new ids."""
    life = app.life
    if life.kind not in (Kind.FOREACH_BATCH, Kind.TRANSACTION) or life.mistaken:
        return
    known = [found for one in app.cluster.transactions.transactions if (found := parse(one))]
    for start in app.runs:
        tokens = tuple(worker.kept.ids.token for worker in start.workers)
        runs = {one.run for one in known if tokens and one.worker.endswith(tokens)}
        assert len(runs) < 2, f"{start.id} has ids of {len(runs)} runs, and each batch has new ones"


def _first_of_each_start(app: Application) -> list[Write]:
    """Of those that share a name, rows and bytes, and of which Spark names no query and no offsets:
    who comes new may look like one that Spark runs again.
    """
    if not (app.life.sibling and app.life.alike and app.life.connect) or app.life.knows_offsets:
        return []
    first: dict[str, int] = {}
    for write in app.writes:
        first.setdefault(write.run.id, write.number)
    return [write for write in app.writes if write.number == first[write.run.id]]


def _reports(app: Application, seen: Counter[tuple[int, int, int]], again: set[int]) -> None:
    """Each write with visible rows has one report. A write without rows has at most one report,
    because it may have been aborted. No other write has a report.
    """
    if not app.life.report:
        return
    reports = app.reports()
    visible = {(batch, task // 100) for batch, task, _ in seen if batch not in again}
    empty = {(write.tag, write.part or 0) for write in app.writes if not app.wanted(write)}
    of_none = sorted(one for one in reports.keys() - visible - empty if one[0] not in again)
    assert not of_none, f"reported, and not visible: {of_none}"
    doubled = sorted(one for one in empty if reports[one] > 1 and one[0] not in again)
    assert not doubled, f"without rows, and reported more than once: {doubled}"
    torn = {write.tag for write, _ in app.observer.torn()}
    odd = sorted(one for one in visible if reports[one] != 1 and one[0] not in torn)
    assert not odd, f"visible, and not reported once: {odd}"


def _offsets(app: Application) -> None:
    """The group's are those of the last batch that is written: not ahead of the data, and not
    behind it.
    """
    life = app.life
    refused = any(isinstance(error, ConfigError) for _, _, error in app.errors)
    assert refused or not life.group_in_use, "the offsets of a group with members were committed"
    if not life.offsets or life.kind in (Kind.VERSIONS, Kind.JOB) or app.partial:
        return
    told = [w.number for w in app.writes if w.outcome is Outcome.TOLD and w.run.is_main]
    found = app.cluster.groups.committed.get(READERS, {}).get(TopicPartition(SOURCE, 0))
    if told and app.is_done:
        wanted = end_offset(max(told))
        assert found is not None, f"no offset is committed, and it should be {wanted}"
        assert found.offset == wanted, f"the offset is {found.offset}, and should be {wanted}"


def _order(app: Application) -> None:
    for partition, rows in app.seen().items():
        last: dict[tuple[int, int], int] = {}
        for batch, task, _, row in rows:
            if batch in app.operators.forgotten or batch in app.operators.resolved:
                continue
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
    end, for longer than a transaction lives, and then it was reported.
    """
    for write, ends in app.observer.torn():
        committed = [end.at_ms for end in ends if end is not None and end.committed]
        lost = [end.at_ms for end in ends if end is not None and not end.committed]
        where = f"batch {write.tag} of {write.run.id}: {ends}"
        if app.life.kind is Kind.JOB and app.was_struck(write):
            continue  # nobody runs it again
        if app.life.late_end:
            assert write in app.partial, f"torn, and nobody was told: {where}"
            continue  # by a request that took longer to arrive than anybody waits
        assert lost, f"torn, and not ended: {where}"
        # (Who is frozen behind its look at the clock, and before its requests, sends them late.)
        frozen = any(strike.blow is Blow.FREEZE for strike in app.life.strikes)
        assert frozen or min(committed) < min(lost), f"torn by whoever ended it: {where}"
        hasty = [end for end in ends if end is not None and not end.committed]
        timed_out = all(end.timed_out for end in hasty)
        assert timed_out, f"torn by somebody who did not wait for the time-out: {where}"
        # (Who sees that one is about to time out aborts all; its requests take a while.)
        began = min(committed) - _A_WHILE_MS
        left = max(end.at_ms - end.age_ms + end.timeout_ms for end in hasty)
        near = began > left - margin_ms(hasty[0].timeout_ms) // 4
        assert frozen or not near, f"torn by somebody who should have undone it: {where}"
        assert app.life.absences, f"torn without an absence: {where}"
        assert write in app.partial, f"torn, and nobody was told: {where}"


def _nobody_comes_back(app: Application) -> None:
    """Once another run has committed, the earlier one is superseded for good."""
    if app.life.kind in (Kind.VERSIONS, Kind.JOB) or app.operators.was_reset:
        return
    # (A call may return behind those of the run that came after.)
    runs = [write.run.id for write in sorted(app.order, key=lambda write: write.number)]
    turns = [run for i, run in enumerate(runs) if i == 0 or runs[i - 1] != run]
    assert len(turns) == len(set(turns)), f"a superseded run committed again: {runs}"


def _partial_is_partial(app: Application) -> None:
    """A batch of which nothing or all is visible is never reported as visible in part."""
    for write in app.partial:
        if write.number in app.operators.resolved:
            continue
        # (Of a job without txnAppId no decision is observed: its key is its own.)
        of_job = app.life.kind is Kind.JOB
        seen = app.observer
        found = seen.ends_of(write) if of_job else seen.ends_of_decided(write.number)
        whole = all(end is not None and end.committed for end in found)
        assert not whole, f"batch {write.number} is called partial, and all of it is visible"
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
    if life.only_dies and life.block.varies:
        # (A part of a block that died is in nobody's way.)
        assert not app.errors, f"only drivers died, and yet: {app.errors}"
    if (
        not life.calm
        or life.fails
        or life.block.fails
        or life.stops
        or not harmless
        or life.mistaken
        or life.sibling
    ):
        return
    if life.twice:
        # (Of a run that is superseded the tasks stop, too: then Spark says that they failed. Its
        # checkpoint may be ahead of it.)
        told = (BatchError, LostCallError, ConfigError)
        assert all(isinstance(e, told) for _, _, e in app.errors), app.errors
        for one, other in app.pairs:
            # (A third one, which came while the first was idle, may have stopped both.)
            third = app.life.idles and any(
                run not in (one, other) and not run.failed for run in app.runs
            )
            assert third or not (one.failed and other.failed), (
                f"{one.id} and {other.id} stop each other"
            )
        return
    if life.kind is not Kind.STREAM and life.stranger_at is not None:
        return  # two that share a name may stop each other, as long as they are told
    assert not app.errors, f"nothing was wrong, and yet: {app.errors}"
