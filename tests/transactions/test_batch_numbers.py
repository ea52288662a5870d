"""Which batch may come now, and whether it is the one that was written under its number."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import CommitError
from spark_kafka_sink.transactions.batches import (
    Batch,
    Block,
    done_refusal,
    forgotten_refusal,
    number_refusal,
    payload_refusal,
)
from spark_kafka_sink.transactions.commit_state import KEPT_DONE, CommitState, Done, Part, Payload
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.result_errors import error_of, raise_refusal
from spark_kafka_sink.transactions.results import Commit, Visible
from tests.simulation.scene import Scene

WRITTEN = Payload(3, 30, "t")
OTHER = Payload(4, 30, "t")
#: Micro-batches 4 to 6 are remembered.
STREAM = CommitState(
    generation=1, run_id="run", query_id="query-1", last_done=6,
    done=tuple(Done(n, (WRITTEN,)) for n in (4, 5, 6)),
)  # fmt: skip
#: Versions 3, 5 and 9 are remembered; what was before 3 isn't.
VERSIONS = replace(
    STREAM, query_id="", last_done=9, done=tuple(Done(n, (WRITTEN,)) for n in (3, 5, 9))
)


def check(numbering: Numbering, number: int, state: CommitState, query: str = "") -> None:
    raise_refusal("p~app", number_refusal(numbering, query, number, state))


# --- numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [0, 3, 5, 9, 10, 1000])
def test_a_version_that_was_written_or_is_the_newest_may_come(number: int) -> None:
    """Whether a version that is older than all remembered ones was written is not decided here."""
    check(Numbering.VERSIONS, number, VERSIONS)


@pytest.mark.parametrize("number", [4, 6, 7, 8])
def test_a_skipped_version_between_kept_ones_is_an_error(number: int) -> None:
    """Its rows would be dropped, and a backfill would seem to succeed."""
    with pytest.raises(CommitError) as raised:
        check(Numbering.VERSIONS, number, VERSIONS)
    assert f"version {number} of 'p~app' was never written" in raised.value.message
    assert "version 9 is done already" in raised.value.message
    assert "use a separate txnAppId" in str(raised.value)


def test_a_version_forgotten_since_its_planning_is_not_dropped() -> None:
    """Its rows were counted, and there is nothing left to compare them with."""
    refusal = done_refusal(Batch(2, (), WRITTEN), VERSIONS, "")
    assert refusal is not None
    assert "is older than each version" in error_of("p~app", refusal).message
    assert done_refusal(Batch(2, ()), VERSIONS, "") is None, "verifyReplays=false"


def test_a_version_of_another_query_is_no_other_one() -> None:
    """Versions are their user's, who may write them from where he likes."""
    check(Numbering.VERSIONS, 9, replace(VERSIONS, query_id="query-1"), "query-2")


def test_what_version_0_1_wrote_remembers_no_versions() -> None:
    old = CommitState(generation=1, run_id="run", last_done=9)
    for number in (0, 8, 9, 10):
        check(Numbering.VERSIONS, number, old)


def test_each_version_that_is_not_known_to_be_written_is_refused_once() -> None:
    state = CommitState(generation=1)
    for number in range(0, 4 * KEPT_DONE, 2):
        state = state.skipped_to(Done(number, (WRITTEN,)))
    assert len(state.done) == KEPT_DONE
    known = {one.number for one in state.done}
    for number in range(state.last_done + 2):
        refused = [
            number_refusal(Numbering.VERSIONS, "", number, state),
            forgotten_refusal(number, state),
        ]
        is_good = number in known or number > state.last_done
        assert refused.count(None) == (2 if is_good else 1), number


def test_a_version_that_is_no_longer_remembered_names_both_ways_on() -> None:
    found = forgotten_refusal(2, VERSIONS)
    assert found is not None
    assert found.visible is Visible.NONE
    refused = error_of("p~app", found)
    assert refused.kind is Kind.VERSION_NOT_KNOWN
    assert "older than each version that the commit log remembers (3 to 9)" in refused.message
    assert "verifyReplays=false for this run" in str(refused)
    assert "write it under its own txnAppId" in str(refused)


MICRO = pytest.mark.parametrize("numbering", [Numbering.STREAM, Numbering.MICRO_BATCHES])


@MICRO
@pytest.mark.parametrize("query", ["", "query-1"])
@pytest.mark.parametrize("number", [6, 7])
def test_the_last_micro_batch_and_the_next_one_may_come(
    numbering: Numbering, number: int, query: str
) -> None:
    check(numbering, number, STREAM, query)
    check(numbering, number, replace(STREAM, query_id=""), query)


@pytest.mark.parametrize("number", [8, 1000])
def test_a_function_of_foreach_batch_may_leave_micro_batches_out(number: int) -> None:
    """It writes under some condition, or there were no rows of that kind."""
    check(Numbering.MICRO_BATCHES, number, STREAM)
    check(Numbering.MICRO_BATCHES, number, STREAM, "query-1")


@pytest.mark.parametrize(
    ("numbering", "number"),
    [
        *((one, n) for one in (Numbering.STREAM, Numbering.MICRO_BATCHES) for n in (0, 4, 5)),
        (Numbering.STREAM, 8),
        (Numbering.STREAM, 1000),
    ],
)
def test_any_other_micro_batch_is_an_error_even_a_kept_one(
    numbering: Numbering, number: int
) -> None:
    with pytest.raises(CommitError) as raised:
        check(numbering, number, STREAM)
    assert "'p~app' is at batch 6 of query query-1" in raised.value.message
    assert f"query unknown is about to write batch {number}" in raised.value.message
    assert "kprod txn reset p~app" in str(raised.value)


@MICRO
@pytest.mark.parametrize("number", [0, 5, 6, 7, 8])
def test_another_query_is_an_error_whatever_its_number_is(
    numbering: Numbering, number: int
) -> None:
    with pytest.raises(CommitError, match="query query-2 is about to write"):
        check(numbering, number, STREAM, "query-2")


@pytest.mark.parametrize("numbering", list(Numbering))
@pytest.mark.parametrize("number", [0, 57])
def test_under_a_new_key_anything_may_come(numbering: Numbering, number: int) -> None:
    check(numbering, number, CommitState(), "query")


@pytest.mark.parametrize("number", [0, 4, 6, 1000])
def test_a_job_without_a_version_may_always_come(number: int) -> None:
    check(Numbering.ONCE, number, VERSIONS, "query-2")


# --- what is dropped ---------------------------------------------------------------------------


def check_payload(key: str, batch: Batch, state: CommitState, name: str = "") -> None:
    raise_refusal(key, payload_refusal(batch, state, name))


def payload(number: int, found: Payload | None) -> None:
    check_payload("p", Batch(number, (), found), STREAM)


def test_the_same_rows_may_be_dropped() -> None:
    payload(6, WRITTEN)
    payload(4, WRITTEN)


@pytest.mark.parametrize(
    "other", [OTHER, Payload(3, 31, "t"), Payload(3, 30, "u"), Payload(3, 30, ""), Payload()]
)
@pytest.mark.parametrize("number", [4, 6])
def test_other_rows_are_not_dropped(number: int, other: Payload) -> None:
    with pytest.raises(CommitError) as raised:
        payload(number, other)
    assert f"batch {number} of 'p' is done with 3 rows of 30 bytes to t" in raised.value.message
    assert f"with {other}" in raised.value.message
    assert "verifyReplays=false" in str(raised.value)


def test_a_replay_with_other_dead_letters_is_not_dropped() -> None:
    """As many rows and bytes: 2 rows could not be sent, and now all can."""
    done = replace(STREAM, done=(Done(6, (replace(WRITTEN, letters=2),)),))
    check_payload("p", Batch(6, (), replace(WRITTEN, letters=2)), done)
    with pytest.raises(CommitError, match="30 bytes, 2 of them dead letters, to t, and is to be"):
        check_payload("p", Batch(6, (), replace(WRITTEN, letters=0)), done)
    for unknown in (STREAM, replace(STREAM, done=(Done(6, (WRITTEN,)),))):  # an earlier version's
        check_payload("p", Batch(6, (), replace(WRITTEN, letters=2)), unknown)


def test_uncounted_batches_are_not_compared() -> None:
    payload(6, None)  # verifyReplays=false
    old = replace(STREAM, done=(Done(6),))
    check_payload("p", Batch(6, (), OTHER), old)


def block(*noted: Payload) -> CommitState:
    """Batch 6 is done with two writes; those of a block that is replayed are noted."""
    state = replace(STREAM, done=(Done(6, (WRITTEN, OTHER)),))
    for found in noted:
        state = state.with_part(6, "block", Part((), found))
    return state


def replays(state: CommitState, found: Payload | None, writes: int | None = None) -> None:
    check_payload("p", Batch(6, (), found, block=Block("block", writes)), state)


@pytest.mark.parametrize("order", [(WRITTEN, OTHER), (OTHER, WRITTEN)])
def test_writes_of_a_block_may_be_replayed_in_any_order(order: tuple[Payload, Payload]) -> None:
    """Those of threads come in another one each time."""
    replays(block(), order[0])
    replays(block(order[0]), order[1])
    replays(block(*order), Payload(), writes=2)


@pytest.mark.parametrize("noted", [(), (WRITTEN,), (OTHER,)])
def test_a_write_that_a_done_block_had_not_is_not_dropped(noted: tuple[Payload, ...]) -> None:
    found = (*noted, Payload(9, 9, "t")) if len(noted) < 1 else (*noted, *noted)
    with pytest.raises(CommitError, match="other rows under a done number"):
        replays(block(*noted), found[-1])


def test_a_write_that_an_earlier_attempt_recorded_counts_once() -> None:
    """Seed 2520: what the sweep had left could not be recorded, and the commit was tried again."""
    state = block(OTHER).with_part(6, "block", Part((), WRITTEN, "attempts"))
    again = Batch(6, (), WRITTEN, block=Block("block"))
    check_payload("p", again, state, "attempts")
    with pytest.raises(CommitError, match="other rows under a done number"):
        check_payload("p", again, state, "others")


def test_a_done_block_that_has_fewer_writes_now_is_not_dropped() -> None:
    with pytest.raises(CommitError, match=r"done with .* bytes to t, .* with 3 rows"):
        replays(block(WRITTEN), Payload(), writes=1)


def test_a_block_whose_writes_are_not_counted_is_not_compared() -> None:
    replays(block(), None)
    replays(block(), Payload(), writes=2)
    replays(block(WRITTEN), Payload(), writes=2)


@pytest.mark.parametrize("found", [None, WRITTEN, OTHER])
def test_a_batch_with_the_digest_of_the_done_one_is_dropped(found: Payload | None) -> None:
    """Whatever it counts: a query may be not deterministic."""
    state = replace(STREAM, done=(Done(6, (WRITTEN,), "a0"),))
    check_payload("p", Batch(6, (), found, "a0"), state)
    check_payload("p", Batch(6, (), found, "a0", Block("block")), state)
    check_payload("p", Batch(6, (), Payload(), "a0", Block("block", 3)), state)


def test_a_batch_with_another_digest_and_equal_rows_is_an_error() -> None:
    state = replace(STREAM, done=(Done(6, (WRITTEN,), "a0"),))
    with pytest.raises(CommitError, match=r"with input a0, .* with input b1: other rows under"):
        check_payload("p", Batch(6, (), WRITTEN, "b1"), state)


@pytest.mark.parametrize("done", ["", "a0"])
def test_rows_decide_where_a_digest_is_unknown(done: str) -> None:
    state = replace(STREAM, done=(Done(6, (WRITTEN,), done),))
    now = "" if done else "b1"
    check_payload("p", Batch(6, (), WRITTEN, now), state)
    with pytest.raises(CommitError, match="other rows under a done number"):
        check_payload("p", Batch(6, (), OTHER, now), state)


def test_a_version_overtaken_while_it_wrote_is_an_error(scene: Scene) -> None:
    """The versions of one driver are one run, so that the fence of runs doesn't stop it: what it
    wrote would be dropped as done, without an error.
    """
    with scene.driver() as driver:
        planned = driver.plan("p~app")
        owner = Owner("p~app", "run", "", planned.generation, Numbering.VERSIONS)
        late = Batch(5, (scene.prepared("p~app~run~g2.w~0", "five"),), Payload(1, 4))
        six = Batch(6, (scene.prepared("p~app~run~g2.w~1", "six"),), Payload(1, 3))
        assert driver.commit(owner, six) is Commit.COMMITTED
        with pytest.raises(CommitError, match="5 of 'p~app' was being written while batch 6"):
            driver.commit(owner, late)
        nothing = Batch(5, (), None)
        assert driver.commit(owner, nothing) is Commit.ALREADY_DONE
    assert scene.values() == ["six"]
