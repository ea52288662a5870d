"""The state of a key: its steps, and its bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import CommitError, IllegalStateError
from spark_kafka_sink.producer.transaction_states import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import KEPT_RUNS, CommitState, Decision, Phase

TEXT = st.from_regex(r"[A-Za-z0-9._-]{0,12}", fullmatch=True)
PREPARED = st.builds(
    PreparedTransaction,
    st.builds(lambda run, k: f"p~{run}~w~{k}", TEXT, st.integers(0, 2**62)),
    st.integers(0, 2**62),
    st.integers(0, 32_767),
    st.sampled_from((1, 2)),
)
DECISIONS = st.builds(
    Decision,
    st.integers(0, 2**62),
    st.lists(PREPARED, unique_by=lambda t: t.transactional_id).map(tuple),
)
STATES = st.builds(
    CommitState,
    generation=st.integers(0, 2**40),
    run_id=TEXT,
    query_id=TEXT,
    last_done=st.integers(-1, 2**62),
    superseded=st.lists(TEXT, max_size=3).map(tuple),
    decision=st.one_of(st.none(), DECISIONS),
    lost=st.lists(TEXT, max_size=2).map(tuple),
)


@given(STATES)
def test_a_state_survives_its_bytes(state):
    again = CommitState.decode(state.encode())
    if state.decision is None:
        assert again == state
        return
    assert again.decision is not None
    assert set(again.decision.transactions) == set(state.decision.transactions)
    assert again.encode() == CommitState.decode(again.encode()).encode()


@given(st.binary(max_size=40))
def test_foreign_bytes_are_told_and_never_taken_for_a_state(value):
    with pytest.raises(CommitError, match="commit log"):
        CommitState.decode(value)


@given(STATES, st.data())
def test_bytes_that_lost_a_field_are_told(state, data):
    fields = json.loads(state.encode())
    name = data.draw(st.sampled_from(["format", "generation", "runId", "queryId", "lastDone"]))
    del fields[name]
    with pytest.raises(CommitError, match="not one of ours"):
        CommitState.decode(json.dumps(fields).encode())


def test_a_newer_format_is_refused_by_name():
    fields = json.loads(CommitState().encode()) | {"format": 2}
    with pytest.raises(CommitError, match="newer spark-kafka-sink"):
        CommitState.decode(json.dumps(fields).encode())


def test_a_batch_goes_from_decided_to_done():
    decision = Decision(7, (PreparedTransaction("p~r~w~0", 1, 2, 2),))
    state = CommitState().taken_over("r", "q").decided(decision)
    assert state.phase is Phase.DECIDED
    done = state.finished()
    assert (done.phase, done.last_done, done.decision) == (Phase.DONE, 7, None)


def test_a_batch_that_lost_transactions_waits_for_an_operator():
    decision = Decision(7, (PreparedTransaction("p~r~w~0", 1, 2, 2),))
    state = CommitState(last_done=6).decided(decision).partly_lost(["p~r~w~0"])
    assert state.phase is Phase.PARTIAL
    with pytest.raises(IllegalStateError):
        state.finished()
    with pytest.raises(IllegalStateError):
        state.decided(decision)
    assert state.resolved(done=True) == CommitState(last_done=7)
    assert state.resolved(done=False) == CommitState(last_done=6)


def test_a_replay_of_a_stream_s_first_batch_here_expects_that_batch_again():
    decision = Decision(7, (PreparedTransaction("p~r~w~0", 1, 2, 2),))
    stream = CommitState().taken_over("r", "q").decided(decision).partly_lost(["p~r~w~0"])
    assert stream.resolved(done=False).last_done == 6
    job = CommitState(last_done=3).taken_over("j", "").decided(decision).partly_lost(["p~r~w~0"])
    assert job.resolved(done=False).last_done == 3, "versions 4 to 6 were not done"


def test_there_is_nothing_to_resolve_after_a_batch_that_is_done():
    with pytest.raises(IllegalStateError, match="no batch to resolve"):
        CommitState(last_done=3).resolved(done=True)


def test_the_same_run_takes_over_once():
    first = CommitState().taken_over("r", "q")
    assert (first.generation, first.run_id, first.superseded) == (1, "r", ())
    assert first.taken_over("r", "q") == first


def test_the_newest_superseded_runs_are_kept_each_once():
    state = CommitState()
    for number in range(KEPT_RUNS + 5):
        state = state.taken_over(f"r{number}", "q")
    assert len(state.superseded) == KEPT_RUNS
    assert state.superseded[-1] == f"r{KEPT_RUNS + 3}"
    assert state.generation == KEPT_RUNS + 5
    again = state.taken_over(state.superseded[3], "q")
    assert len(set(again.superseded)) == len(again.superseded)


def test_two_thousand_transactions_take_less_than_a_hundred_kilobytes():
    prepared = tuple(
        PreparedTransaction(f"orders~{'0' * 36}~0123456789ab~{k}", 4_000_000 + k, 17, 2)
        for k in range(2000)
    )
    state = CommitState(3, "r" * 36, "q" * 36, 41).decided(Decision(42, prepared))
    assert len(state.encode()) < 100_000
    assert CommitState.decode(state.encode()) == state
