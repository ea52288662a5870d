"""The state of a key: its steps, and its bytes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import CommitLogError, IllegalStateError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import (
    FORMAT,
    KEPT_DONE,
    KEPT_RUNS,
    CommitState,
    Decision,
    Done,
    Part,
    Payload,
    Phase,
    Standing,
)

TEXT = st.from_regex(r"[A-Za-z0-9._-]{0,12}", fullmatch=True)
PART = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
PAYLOADS = st.lists(
    st.builds(
        Payload, st.integers(0, 2**62), st.integers(0, 2**62), TEXT, st.none() | st.integers(0, 9)
    ),
    max_size=3,
).map(tuple)
PREPARED = st.builds(
    PreparedTransaction,
    st.builds(lambda run, k: f"p~{run}~g2.w~{k}", PART, st.integers(0, 2**62)),
    st.integers(0, 2**62),
    st.integers(0, 32_767),
    st.sampled_from((1, 2)),
)
DECISIONS = st.builds(
    Decision,
    st.integers(0, 2**62),
    st.lists(PREPARED, unique_by=lambda t: t.transactional_id).map(tuple),
    PAYLOADS,
    TEXT,
)
PARTS = st.lists(
    st.builds(
        Part,
        st.lists(PREPARED, max_size=1).map(tuple),
        st.sampled_from((Payload(1, 2, "t"), Payload(1, 2, "t", 1))),
        TEXT,
    )
)
STATES = st.builds(
    CommitState,
    generation=st.integers(0, 2**40),
    run_id=TEXT,
    query_id=TEXT,
    last_done=st.integers(-1, 2**62),
    superseded=st.lists(TEXT, max_size=3).map(tuple),
    take_over=st.sampled_from(((0, 0), (0, 7), (7, 8))),
    decision=st.one_of(st.none(), DECISIONS),
    lost=st.lists(TEXT, max_size=2).map(tuple),
    done=st.lists(
        st.builds(Done, st.integers(0, 2**62), PAYLOADS, TEXT),
        max_size=3,
        unique_by=lambda one: one.number,
    ).map(tuple),
    parts=PARTS.map(tuple),
    parts_of=st.just(3),
    parts_token=st.just("block"),
    other=st.sampled_from(((), (("later", '{"a": 1}'),))),
)
DECIDED = CommitState(
    3,
    "r",
    "q",
    41,
    ("a",),
    Decision(42, (PreparedTransaction("p~r~g2.w~0", 4711, 12, 2),)),
    ("p~r~g2.w~0",),
)


@given(STATES)
def test_a_state_survives_its_bytes(state):
    state = state if state.parts else state.without_parts()
    state = state if state.run_id not in state.superseded else replace(state, run_id="")
    again = CommitState.decode("p", state.encode(), state.encode_parts())
    if state.decision is None:
        assert again == state
        return
    assert again.decision is not None
    assert set(again.decision.transactions) == set(state.decision.transactions)
    # (A transaction's place may be another one: they are stored by their stems.)
    assert again == CommitState.decode("p", again.encode(), again.encode_parts())


NESTED = b"[" * 200_000


@given(st.binary(max_size=40))
@example(NESTED)
@example(b'{"format": 1e400, "generation": 1}')
@example(b'{"format":1}')
def test_foreign_bytes_are_an_error_and_never_a_state(value):
    with pytest.raises(CommitLogError, match="commit log"):
        CommitState.decode("p", value)


@given(STATES, st.data())
def test_bytes_without_a_field_are_an_error(state, data):
    fields = json.loads(state.encode())
    name = data.draw(st.sampled_from(["format", "generation", "runId", "queryId", "lastDone"]))
    del fields[name]
    with pytest.raises(CommitLogError, match="was not written by spark-kafka-sink"):
        CommitState.decode("p", json.dumps(fields).encode())


@pytest.mark.parametrize(
    "change",
    [
        {"generation": NESTED},
        {"generation": b"1e400"},
        {"generation": b"NaN"},
        {"generation": b"1.0"},
        {"generation": b"true"},
        {"generation": b"9223372036854775808"},
        {"lastDone": b'"4"'},
        {"format": b"1e400"},
        {"batch": b"7" * 5000},
        {"runId": b"7"},
        {"runId": json.dumps("r" * 201).encode()},
        {"runId": b'"line\\nbreak"'},
        {"queryId": b'"\\u001b[31m"'},
        {"queryId": b'"\\ud800"'},
        {"queryId": b'"\\u202e"'},
        {"superseded": b'["\\u0007"]'},
        {"superseded": b"[[]]"},
        {"lost": b'["p~r~g2.w~0\\n"]'},
        {"transactions": b'{"p~r~\\n~":[[0,1,2,2]]}'},
        {"transactions": b'{"p~r~g2.w~":[[0,1,1e999,2]]}'},
        {"transactions": b'{"p~r~g2.w~":[[0,1,2]]}'},
        {"transactions": b'{"%s":[[0,1,2,2]]}' % (b"p" * 401)},
        {"transactions": b'{"p~r~g2.w":[[0,1,2,2]]}'},
        {"transactions": b'{"p~r~g2.w~":[[-1,1,2,2]]}'},
    ],
    ids=lambda change: " ".join((*change, *(v[:12].decode() for v in change.values()))),
)
def test_a_foreign_record_is_an_error_that_shows_one_short_line(change):
    """What passes is shown in messages, so it is short and on one line."""
    fields = {k: json.dumps(v).encode() for k, v in json.loads(DECIDED.encode()).items()}
    value = b",".join(b'"%s":%s' % (k.encode(), v) for k, v in (fields | change).items())
    with pytest.raises(CommitLogError, match="was not written by spark-kafka-sink") as told:
        CommitState.decode("p", b"{" + value + b"}")
    assert len(str(told.value)) < 400
    assert "\n" not in told.value.message


def test_a_newer_format_is_refused_by_name():
    fields = json.loads(CommitState().encode()) | {"format": FORMAT + 1}
    with pytest.raises(CommitLogError, match="newer spark-kafka-sink"):
        CommitState.decode("p", json.dumps(fields).encode())


def test_a_batch_goes_from_decided_to_done():
    decision = Decision(7, (PreparedTransaction("p~r~g2.w~0", 1, 2, 2),))
    state = CommitState().taken_over("r", "q", 1).decided(decision)
    assert state.phase is Phase.DECIDED
    done = state.finished()
    assert (done.phase, done.last_done, done.decision) == (Phase.DONE, 7, None)


def test_a_batch_that_lost_transactions_waits_for_an_operator():
    decision = Decision(7, (PreparedTransaction("p~r~g2.w~0", 1, 2, 2),))
    state = CommitState(last_done=6).decided(decision).partly_lost(["p~r~g2.w~0"])
    assert state.phase is Phase.PARTIAL
    with pytest.raises(IllegalStateError):
        state.finished()
    with pytest.raises(IllegalStateError):
        state.decided(decision)
    assert state.resolved(done=True) == CommitState(last_done=7, done=(Done(7),))
    assert state.resolved(done=False) == CommitState(last_done=6)


def test_a_decision_with_another_keys_transaction_is_refused():
    for stranger in ("payments-flink~7~w~1", "p.b~r~w~0", "p~name~r~w~0", "q~job~1"):
        decision = Decision(7, (PreparedTransaction(stranger, 1, 2, 2),))
        value = CommitState().decided(decision).encode()
        with pytest.raises(CommitLogError, match=f"'{stranger}' of another key"):
            CommitState.decode("p", value)


def test_fields_of_a_newer_version_are_kept_unchanged():
    fields = json.loads(CommitState(last_done=3).encode()) | {"later": {"a": [1]}, "more": None}
    state = CommitState.decode("p", json.dumps(fields).encode()).taken_over("r", "q", 1)
    assert json.loads(state.encode()) | fields == json.loads(state.encode()) | fields
    assert json.loads(state.encode())["later"] == {"a": [1]}
    assert json.loads(state.encode())["more"] is None


def test_a_run_planned_before_a_take_over_is_superseded():
    state = CommitState().taken_over("first", "q", 1).taken_over("second", "q", 1)
    standings = [state.standing("stranger", planned) for planned in (0, 1, 2, None)]
    assert standings == [*[Standing.SUPERSEDED] * 2, *[Standing.UNKNOWN] * 2]
    assert state.standing("second", 1) is Standing.OWNER
    assert state.standing("second", 0) is Standing.SUPERSEDED, "not even of the owner"
    assert state.standing("first") is Standing.SUPERSEDED


def test_a_batch_that_is_superseded_stays_superseded():
    """Its run plans again, and takes over."""
    state = CommitState().taken_over("first", "q", 5).taken_over("second", "q", 6)
    assert state.standing("third", 5) is Standing.SUPERSEDED
    state = state.taken_over("third", "q", 7)
    assert state.standing("third", 5) is Standing.SUPERSEDED
    assert [state.standing("third", planned) for planned in (6, 7)] == [Standing.OWNER] * 2
    assert CommitState.decode("p", state.encode()) == state


def test_the_first_owner_may_decide_what_it_planned_on_an_empty_log():
    """And nothing that it planned before the log was lost."""
    state = CommitState().taken_over("r", "q", 1_700)
    planned = (0, 1_600, 1_700)
    owner, superseded = Standing.OWNER, Standing.SUPERSEDED
    assert [state.standing("r", one) for one in planned] == [owner, superseded, owner]


def test_a_state_does_not_judge_what_was_planned_later():
    """It may be old, and a later one may not have the run in its list."""
    state = CommitState().taken_over("r", "q", 5).with_aborted_run("r", 1)
    assert [state.standing("r", 5), state.standing("r", 6)] == [
        Standing.SUPERSEDED,
        Standing.UNKNOWN,
    ]


PREPARED_PART = Part((PreparedTransaction("p~r~g2.w~1", 1, 2, 2),), Payload(1, 1, "b"), "one")


def test_parts_are_one_block_s_and_end_with_their_run():
    part, second = PREPARED_PART, replace(PREPARED_PART, name="two")
    state = CommitState().taken_over("r", "q", 1).with_part(7, "block", part)
    state = state.with_part(7, "block", second)
    assert state.parts_by(7, "block") == (part, second)
    assert state.parts_by(7, "another") == state.parts_by(8, "block") == ()
    assert state.with_part(7, "block", second) == state, "a commit that is tried again"
    assert state.with_part(7, "another", part).parts == (part,)
    assert state.with_part(8, "block", part).parts == (part,)
    assert state.taken_over("s", "q", 1).parts == ()
    assert state.with_aborted_run("r", 1).parts == ()
    assert state.with_aborted_run("x", 1).parts == state.parts


def test_parts_are_documents_of_their_own_that_a_state_names():
    """A package that doesn't know them reads the state, and drops them."""
    part = replace(PREPARED_PART, letters=(2, 5))
    state = CommitState().taken_over("r", "q", 1).with_part(7, "block", part)
    (document,) = state.encode_parts()
    assert json.loads(state.encode())["format"] == 1
    assert CommitState.decode("p", state.encode(), [document]) == state
    for later in (state.without_parts(), state.with_part(7, "another", PREPARED_PART)):
        assert CommitState.decode("p", later.encode(), [document]).parts == ()


def test_a_digest_stays_with_its_batch():
    decision = Decision(7, (PreparedTransaction("p~r~g2.w~0", 1, 2, 2),), (), "a0")
    state = CommitState().decided(decision)
    assert CommitState.decode("p", state.encode()) == state
    done = state.finished()
    assert done.done == (Done(7, (), "a0"),)
    assert json.loads(done.encode())["digests"] == {"7": "a0"}
    assert CommitState.decode("p", done.encode()) == done
    # A reader that does not know the field keeps it, and decides the next batch.
    theirs = json.loads(done.encode()) | {"batch": 8, "transactions": {"p~r~g2.w~": [[0, 1, 3, 2]]}}
    decided = CommitState.decode("p", json.dumps(theirs).encode())
    assert decided.finished().done[-1] == Done(8)


def test_dead_letters_stay_with_their_payload():
    payloads = (Payload(3, 30, "t", 2), Payload(3, 30, "u"))
    decision = Decision(7, (PreparedTransaction("p~r~g2.w~0", 1, 2, 2),), payloads)
    state = CommitState().decided(decision)
    assert CommitState.decode("p", state.encode()) == state
    done = state.finished()
    assert json.loads(done.encode())["deadLetters"] == {"7": [2, None]}
    assert CommitState.decode("p", done.encode()) == done
    # An earlier version keeps the field, and may write the batch again after an undo.
    theirs = json.loads(done.encode()) | {"done": [[7, [4, 40, "t"]]]}
    assert CommitState.decode("p", json.dumps(theirs).encode()).done == (
        Done(7, (Payload(4, 40, "t"),)),
    )


def test_the_newest_done_batches_are_kept_with_their_payloads():
    state = CommitState().taken_over("r", "q", 1)
    for number in range(KEPT_DONE + 3):
        payload = Payload(number, number, "t")
        state = state.decided(Decision(number, (), (payload,))).finished()
    assert len(state.done) == KEPT_DONE
    assert state.done_batch(2) is None
    assert state.done_batch(KEPT_DONE + 2) == Done(KEPT_DONE + 2, (payload,))


def test_an_aborted_owner_leaves_a_key_without_one():
    state = CommitState().taken_over("a", "q", 1).with_aborted_run("a", 1)
    assert (state.run_id, state.superseded, state.generation) == ("", ("a",), 1)
    assert state.taken_over("b", "q", 1).generation == 2


def test_an_aborted_run_that_is_forgotten_can_not_decide():
    """Each of them was planned at the generation of the others."""
    state = CommitState().taken_over("a", "q", 5)
    planned = state.generation
    state = state.with_aborted_run("a", 1)
    for number in range(KEPT_RUNS + 3):
        assert state.standing("a", planned) is Standing.SUPERSEDED
        state = state.with_aborted_run(f"r{number}", 1)
    assert "a" not in state.superseded
    assert state.standing("a", planned) is Standing.SUPERSEDED
    again = state.with_aborted_run(state.superseded[0], 1)
    assert again.generation == state.generation, "none is forgotten for it"


def test_a_generation_begins_at_the_clock_whatever_comes_first():
    """Also with an abort that drops a run from a full list, and with a reset of a key without an
    owner: a run that planned at generation 1 before the log was lost would take over.
    """
    full = CommitState()
    for number in range(KEPT_RUNS):
        full = full.with_aborted_run(f"r{number}", 1_700)
    assert full.generation == 0
    first = full.with_aborted_run("one more", 1_700)
    assert first.generation == full.forgotten(1_700).generation == 1_700
    assert first.with_aborted_run("two more", 1_800).generation == 1_701
    assert first.forgotten(1_800).generation == 1_701
    assert full.with_aborted_run("one more", -5).generation == 1


def test_an_earlier_block_keeps_its_number_only():
    """A query replays its last batch only; 32 batches of 200 writes would fill every record."""
    two = (Payload(1, 1, "t"), Payload(2, 2, "u"))
    state = CommitState().skipped_to(Done(0, two, "a")).skipped_to(Done(1, two, "b"))
    assert state.done == (Done(0, (), "a"), Done(1, two, "b"))
    assert state.skipped_to(Done(2, two[:1])).done[1:] == (Done(1, (), "b"), Done(2, two[:1]))


def test_there_is_nothing_to_resolve_after_a_batch_that_is_done():
    with pytest.raises(IllegalStateError, match="no batch to resolve"):
        CommitState(last_done=3).resolved(done=True)


def test_the_same_run_takes_over_once():
    first = CommitState().taken_over("r", "q", 1_700)
    assert (first.generation, first.run_id, first.superseded) == (1_700, "r", ())
    assert first.taken_over("r", "q", 1_800) == first
    assert first.taken_over("s", "q", 1_800).generation == 1_701


def test_the_newest_superseded_runs_are_kept_each_once():
    state = CommitState()
    for number in range(KEPT_RUNS + 5):
        state = state.taken_over(f"r{number}", "q", 1)
    assert len(state.superseded) == KEPT_RUNS
    assert state.superseded[-1] == f"r{KEPT_RUNS + 3}"
    assert state.generation == KEPT_RUNS + 5
    again = state.taken_over(state.superseded[3], "q", 1)
    assert len(set(again.superseded)) == len(again.superseded)


def test_two_thousand_transactions_take_less_than_100_kilobytes():
    prepared = tuple(
        PreparedTransaction(f"orders~{'0' * 36}~g1.0123456789ab~{k}", 4_000_000 + k, 17, 2)
        for k in range(2000)
    )
    state = CommitState(3, "r" * 36, "q" * 36, 41).decided(Decision(42, prepared))
    assert len(state.encode()) < 100_000
    assert CommitState.decode("orders", state.encode()) == state
