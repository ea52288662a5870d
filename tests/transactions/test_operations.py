"""What an operator plans, and what is still true of it when it is done: on a real broker.

Between the plan and the change a driver goes on; each test makes that happen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.base.errors import CommitError, RefusedError, SupersededError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions import committer
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog, LogSession
from spark_kafka_sink.transactions.commit_state import (
    CommitState,
    Decision,
    Done,
    Payload,
    Standing,
)
from spark_kafka_sink.transactions.committer import Committer
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit
from tests.transactions.operator_stage import Stage, names

DECIDED = "its batch is decided"
OWNED = "its run is the owner in the commit log"


def test_a_batch_decided_meanwhile_is_not_aborted(stage: Stage) -> None:
    """Force was for the owner: no operator has looked at this decision."""
    first, second = stage.open(2)
    stage.write(stage.state())
    plan = stage.operator.plan_abort(names([first, second]), force=True)
    stage.write(stage.state([first]))
    aborted = stage.operator.end(plan)
    assert aborted.kept == {first.transactional_id: DECIDED}
    assert aborted.ended == (second.transactional_id,)
    assert stage.still_open() == {first.transactional_id}


def test_who_takes_over_meanwhile_is_not_swept(stage: Stage) -> None:
    """The run was not in the log: it had not committed anything yet."""
    (new,) = stage.open(1, run="run-2")
    stage.write(stage.state())
    plan = stage.operator.plan_sweep(stage.prefix)
    assert [t.standing for t in plan.transactions] == [Standing.UNKNOWN]
    stage.write(stage.state().taken_over("run-2", "query", 1))
    aborted = stage.operator.end(plan)
    assert aborted.kept == {new.transactional_id: OWNED}
    assert stage.still_open() == {new.transactional_id}


def test_what_was_ended_meanwhile_is_left_as_it_is(stage: Stage) -> None:
    """Also when its task has opened the next transaction under the same id."""
    ended, reused = stage.open(2)
    stage.write(stage.state())
    plan = stage.operator.plan_abort(names([ended, reused]), force=True)
    stage.client.end([ended, reused], committed=True, deadline_ms=stage.soon())
    stage.open(2)
    stage.client.end([ended], committed=True, deadline_ms=stage.soon())
    aborted = stage.operator.end(plan)
    assert aborted.ended == ()
    assert set(aborted.kept.values()) == {"it was ended meanwhile"}
    assert reused.transactional_id in stage.still_open()


def test_a_jobs_driver_is_fenced_under_its_key(stage: Stage) -> None:
    alone, named = stage.open(1, run="job-1", name="job-1"), stage.open(1, run="job-2", name="app")
    state = CommitState(generation=1, run_id="job-2", last_done=7)
    driver_1 = stage.log.open(f"{stage.prefix}~job-1", stage.soon())
    driver_2 = stage.write(state, f"{stage.prefix}~app")
    bystander = stage.write(replace(state, run_id="job-3"), f"{stage.prefix}~other")
    aborted = stage.operator.end(stage.operator.plan_abort(names(alone + named), force=True))
    assert set(aborted.ended) == set(names(alone + named))
    for driver, transactions in ((driver_1, alone), (driver_2, named)):
        with pytest.raises(SupersededError):
            driver.write(state.decided(Decision(8, tuple(transactions))), stage.soon())
    bystander.write(replace(state, run_id="job-3", last_done=8), stage.soon())


@pytest.mark.parametrize("how", ["abort", "sweep"])
def test_a_driver_that_opens_the_log_after_the_fence_fails(stage: Stage, how: str) -> None:
    """Its tasks' transactions are all open when it looks, and gone when it would decide."""
    transactions = stage.open(2, run="run-2")
    stage.write(stage.state())
    operator = stage.operator
    plan = (
        operator.plan_abort(names(transactions))
        if how == "abort"
        else operator.plan_sweep(stage.prefix)
    )
    client = stage.client
    owner = Owner(stage.prefix, "run-2", "query", 2)
    refused: list[str] = []

    class Behind(CommitLog):
        """The driver comes while the operator has opened the key, and has not written yet."""

        def open(self, key: str, deadline_ms: int) -> LogSession:
            session = super().open(key, deadline_ms)
            if not refused:
                driver = stage.log.open(key, deadline_ms)
                assert owner.refusal(driver.state) is None
                refused.append("the operator is fenced")
            return session

    operator = Operator(Behind(client, stage.log_topic), client)
    aborted = operator.end(plan)
    assert refused
    assert set(aborted.ended) == set(names(transactions))
    committer = Committer(stage.log, client)
    with pytest.raises(CommitError, match=r"run-2 .* was aborted"):
        committer.commit(owner, Batch(8, tuple(transactions)))
    state = stage.read()
    assert state is not None
    assert (state.run_id, state.superseded, state.decision) == ("run-1", ("run-2",), None)


def test_the_key_of_an_aborted_batch_job_stays_until_a_reset(stage: Stage) -> None:
    """The job may be running, and must not commit."""
    transactions, key = stage.open(2, run="job-1", name="job-1"), f"{stage.prefix}~job-1"
    stage.write(stage.state())
    aborted = stage.operator.end(stage.operator.plan_abort(names(transactions)))
    assert set(aborted.ended) == set(names(transactions))
    state = stage.read(key)
    assert state == CommitState(superseded=("job-1",))
    stage.operator.reset(stage.operator.plan_reset(key))
    assert stage.read(key) is None
    assert stage.read() == stage.state()


def test_the_key_of_a_job_stays_while_its_batch_is_decided(stage: Stage) -> None:
    """Forced: the decision is lost then, and the log says so."""
    (one,) = stage.open(1, run="job-1", name="job-1")
    key = f"{stage.prefix}~job-1"
    decided = CommitState(generation=1, run_id="job-1").decided(Decision(1, (one,)))
    stage.write(decided, key)
    aborted = stage.operator.end(stage.operator.plan_abort([one.transactional_id], force=True))
    assert aborted.ended == (one.transactional_id,)
    state = stage.read(key)
    assert state is not None
    assert state.decision == decided.decision


def test_a_job_that_opens_its_key_meanwhile_is_aborted_all_the_same(stage: Stage) -> None:
    """Its driver, shut out of the log, opens it again. Only its record stays."""
    (one,) = stage.open(1, run="job-1", name="job-1")

    class Between(CommitLog):
        def open(self, key: str, deadline_ms: int) -> LogSession:
            session = super().open(key, deadline_ms)
            write = session.write

            def then_the_driver_opens(
                state: CommitState | None, deadline_ms: int, check: None
            ) -> None:
                write(state, deadline_ms, check=check)
                stage.log.open(key, deadline_ms)

            session.write = then_the_driver_opens  # type: ignore[assignment]
            return session

    operator = Operator(Between(stage.client, stage.log_topic), stage.client)
    aborted = operator.end(operator.plan_sweep(stage.prefix))
    assert aborted.ended == (one.transactional_id,)
    assert stage.still_open() == set()


@pytest.mark.parametrize("how", ["done", "forgotten", "removed", "next", "next aborted"])
def test_a_batch_that_others_end_meanwhile_is_committed(stage: Stage, how: str) -> None:
    """Its driver was alive, and has gone on, with the same ids; or its key is gone."""
    transactions = stage.open(2)
    stage.write(stage.state(transactions))
    report = stage.operator.plan_commit(stage.prefix)
    stage.client.end(transactions, committed=True, deadline_ms=stage.soon())
    done = stage.state(last_done=8, done=(Done(8, (Payload(),)),))
    if how.startswith("next"):
        following = stage.open(2)
    if how == "next aborted":
        stage.client.end(following, committed=False, deadline_ms=stage.soon())
    stage.write({"forgotten": done.forgotten(1), "removed": None}.get(how, done))
    assert stage.operator.commit(report).committed


@pytest.mark.parametrize("done", [True, False])
def test_a_torn_batch_that_is_resolved_meanwhile_is_not_committed(stage: Stage, done: bool) -> None:
    """Whatever the log says of it: a part of its rows is visible."""
    kept, lost = stage.open(2)
    stage.write(stage.state((kept, lost)))
    report = stage.operator.plan_commit(stage.prefix)
    for one in (kept, lost):
        stage.client.end([one], committed=one is kept, deadline_ms=stage.soon())
    stage.write(stage.state((kept, lost)).partly_lost([lost.transactional_id]).resolved(done=done))
    with pytest.raises(RefusedError, match="of its 2 transactions: 1 committed, 1 lost"):
        stage.operator.commit(report)


@pytest.mark.parametrize("ended", ["committed", "aborted", "open"])
def test_a_decision_that_others_finish_meanwhile_is_committed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    """A thread plans the next version, and with it ends this one; then it uses the same ids."""
    transactions = stage.open(2)
    stage.write(stage.state())
    end_decided = committer.end_decided

    def others_first(*given: Any, **options: Any) -> Any:
        decided = stage.read()
        assert decided is not None
        stage.client.end(transactions, committed=True, deadline_ms=stage.soon())
        done = decided.finished()
        stage.write(done.with_aborted_run("run-1", 1) if ended == "aborted" else done)
        following = stage.open(2)
        if ended != "open":
            how = ended == "committed"
            stage.client.end(following, committed=how, deadline_ms=stage.soon())
        return end_decided(*given, **options)

    monkeypatch.setattr(committer, "end_decided", others_first)
    owner = Owner(stage.prefix, "run-1", "query", 2)
    batch = Batch(8, tuple(transactions), Payload(2, 2, stage.topic))
    assert Committer(stage.log, stage.client).commit(owner, batch) is Commit.COMMITTED


def test_an_abort_says_which_run_it_has_stopped(stage: Stage) -> None:
    """Though all of its transactions were ended meanwhile."""
    transactions = stage.open(2)
    stage.write(stage.state(transactions))
    plan = stage.operator.plan_abort(names(transactions), force=True)
    stage.client.end(transactions, committed=True, deadline_ms=stage.soon())
    aborted = stage.operator.end(plan)
    assert (aborted.ended, aborted.runs) == ((), ("run-1",))
    state = stage.read()
    assert state is not None
    assert state.standing("run-1") is Standing.SUPERSEDED


def test_a_state_that_changed_is_neither_resolved_nor_reset(stage: Stage) -> None:
    (lost,) = stage.open(1)
    stage.client.end([lost], committed=False, deadline_ms=stage.soon())
    stage.write(stage.state([lost], lost=(lost.transactional_id,)))
    resolution = stage.operator.plan_resolve(stage.prefix, 8, done=True)
    stage.write(stage.state(last_done=8))
    with pytest.raises(RefusedError, match="has changed meanwhile"):
        stage.operator.resolve(resolution)
    report = stage.operator.plan_reset(stage.prefix)
    stage.write(stage.state(last_done=9))
    with pytest.raises(RefusedError, match="has changed meanwhile"):
        stage.operator.reset(report)
    assert stage.read() == stage.state(last_done=9)


def test_resolving_as_done_refuses_newly_lost_rows(stage: Stage) -> None:
    """The operator agreed to lose one task's rows, not two."""
    lost, open_ = stage.open(2)
    stage.client.end([lost], committed=False, deadline_ms=stage.soon())
    partial = stage.state((lost, open_), lost=(lost.transactional_id,))
    stage.write(partial)
    resolution = stage.operator.plan_resolve(stage.prefix, 8, done=True)
    assert resolution.open_ids == (open_.transactional_id,)
    stage.client.end([open_], committed=False, deadline_ms=stage.soon())
    with pytest.raises(RefusedError, match="or are lost"):
        stage.operator.resolve(resolution)
    assert stage.read() == partial
    again = stage.operator.plan_resolve(stage.prefix, 8, done=True)
    assert len(again.report.transactions) == 2
    assert stage.operator.resolve(again) == stage.state(last_done=8, done=(Done(8),))


def test_the_log_lists_whole_states_of_exactly_the_prefix(stage: Stage) -> None:
    """Also those in several records, and not those that were forgotten."""
    transactions = [PreparedTransaction(f"{stage.prefix}~r~g2.w{k}~0", k, 0, 2) for k in range(20)]
    long = stage.state(transactions)
    small_pieces = CommitLog(stage.client, stage.log_topic, piece_bytes=200)
    small_pieces.open(stage.prefix, stage.soon()).write(long, stage.soon())
    stage.write(stage.state(), f"{stage.prefix}~app")
    stage.write(stage.state(), f"{stage.prefix}~forgotten")
    stage.write(None, f"{stage.prefix}~forgotten")
    stage.write(stage.state(), f"{stage.prefix}.b")
    stage.write(stage.state(), f"{stage.prefix}b")
    found = stage.log.states(stage.prefix, stage.soon())
    assert found == {stage.prefix: long, f"{stage.prefix}~app": stage.state()}
    missing = CommitLog(stage.client, f"{stage.prefix}-missing")
    assert missing.states(stage.prefix, stage.soon()) is None
