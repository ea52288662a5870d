"""A key that version 0.1 has written: its records, and the transactions that its tasks left open.

Records are given as the bytes that version 0.1 wrote: format 1 without incarnation, done and
payloads. Its streams' ids are those of today; a batch job's were ``{prefix}~{uuid}~{attempt}``.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from spark_kafka_sink.base.errors import CommitError, PartialCommitError, SupersededError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.record_columns import from_record_batch
from spark_kafka_sink.transactions.commit_state import CommitState, Payload, Phase
from spark_kafka_sink.transactions.committer import Batch, Commit
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.transactions.committing_world import LOG_TOPIC, CommittingWorld

PAYLOAD = Payload(1, 1, "t")
TOKEN = "0123456789ab"
pytestmark = pytest.mark.simulated


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def world(request: pytest.FixtureRequest) -> CommittingWorld:
    return CommittingWorld(transaction_version=request.param)


def write_as_0_1(
    world: CommittingWorld,
    key: str,
    prepared: tuple[PreparedTransaction, ...] = (),
    **fields: object,
) -> None:
    """Batch 6 is done; with ``prepared`` batch 7 is decided."""
    record: dict[str, object] = {
        "format": 1, "generation": 2, "runId": "run-1", "queryId": "query-1", "lastDone": 6,
        "superseded": ["run-0"],
    }  # fmt: skip
    if prepared:
        stems: dict[str, list[list[int]]] = {}
        for t in prepared:
            stem, _, number = t.transactional_id.rpartition("~")
            stems.setdefault(f"{stem}~", []).append(
                [int(number), t.producer_id, t.producer_epoch, t.transaction_version]
            )
        record |= {"batch": 7, "transactions": stems}
    value = json.dumps(record | fields, separators=(",", ":"))
    writer = world.producer(log_id(key))
    writer.init_transactions()
    writer.begin_transaction()
    writer.start_attempt()
    rows = pa.RecordBatch.from_arrays([pa.array([key]), pa.array([value])], names=["key", "value"])
    plan = ColumnPlan(topic=LOG_TOPIC, key_column=0, value_column=1)
    writer.send_columns(from_record_batch(rows, plan, 1_700_000_000_000))
    writer.finish_attempt()
    world.end(writer.prepare())
    writer.close(0)


def owner(state: CommitState, key: str, run: str, **more: Numbering) -> Owner:
    return Owner(key, run, "query-1", state.generation, **more)


def next_batch(world: CommittingWorld, key: str, run: str, number: int, *values: str) -> Batch:
    prepared = tuple(
        world.prepared(f"{key}~{run}~{TOKEN}~{k}", value) for k, value in enumerate(values)
    )
    return Batch(number, prepared, Payload(len(values), sum(map(len, values)), "t"))


def test_a_decided_batch_of_0_1_is_committed_and_orphans_swept(world: CommittingWorld) -> None:
    decided = tuple(world.prepared(f"p~run-1~{TOKEN}~{k}", f"7{k}") for k in (0, 1))
    orphans = (f"p~run-0~{TOKEN}~3", f"p~run-1~{TOKEN}~5")
    strangers = [
        world.prepared(id_, "theirs")
        for id_ in (f"p~elsewhere~run-0~{TOKEN}~0", f"p.b~run-0~{TOKEN}~0")
    ]
    for id_ in orphans:
        world.open(id_, "never")
    write_as_0_1(world, "p", decided)

    with world.driver() as driver:
        state = driver.plan("p")
        assert (state.phase, state.last_done, state.generation) == (Phase.DONE, 7, 2)
        assert state.superseded == ("run-0",)
        assert [world.settled(t.transactional_id) for t in decided] == ["CompleteCommit"] * 2
        batch = next_batch(world, "p", "run-2", 8, "80")
        assert driver.commit(owner(state, "p", "run-2"), batch) is Commit.COMMITTED
    now = world.logged("p")
    assert (now.generation, now.run_id, now.last_done) == (3, "run-2", 8)
    assert now.superseded[-1] == "run-1"
    assert {world.settled(i) for i in orphans} == {world.swept}
    for stranger in strangers:
        assert world.state_of(stranger.transactional_id) == "Ongoing"
        world.end(stranger)  # its open transaction hides what is behind it
    assert world.visible() == ["70", "71", "80", "theirs", "theirs"]
    batch = next_batch(world, "p", "run-1", 9, "late")
    with world.driver() as driver, pytest.raises(SupersededError):
        driver.commit(Owner("p", "run-1", "query-1", 2), batch)


def test_a_run_that_no_record_names_is_left_alone(world: CommittingWorld) -> None:
    """It may have died before its first commit: then what it has open times out, as ever. Or it
    lives, and decides: its ids don't tell when it planned.
    """
    theirs = world.prepared(f"p~run-1b~{TOKEN}~0", "never")
    write_as_0_1(world, "p")
    with world.driver() as driver:
        state = driver.plan("p")
        batch = next_batch(world, "p", "run-2", 7, "70")
        assert driver.commit(owner(state, "p", "run-2"), batch) is Commit.COMMITTED
    assert world.state_of(theirs.transactional_id) == "Ongoing"
    world.end(theirs, commit=False)
    assert world.visible() == ["70"]


def test_a_query_that_runs_on_across_the_upgrade_keeps_its_key(world: CommittingWorld) -> None:
    """Its run owns the key: the same driver, with a package that was replaced beneath it."""
    write_as_0_1(world, "p")
    with world.driver() as driver:
        for number in (7, 8):
            state = driver.plan("p")
            assert state.last_done == number - 1
            batch = next_batch(world, "p", "run-1", number, f"{number}")
            assert driver.commit(owner(state, "p", "run-1"), batch) is Commit.COMMITTED
    now = world.logged("p")
    assert (now.generation, now.run_id, now.superseded) == (2, "run-1", ("run-0",))
    assert world.visible() == ["7", "8"]


def test_the_last_batch_of_0_1_is_replayed_without_comparison(world: CommittingWorld) -> None:
    write_as_0_1(world, "p")
    with world.driver() as driver:
        state = driver.plan("p")
        again = Batch(6, (), PAYLOAD)
        assert driver.commit(owner(state, "p", "run-2"), again) is Commit.ALREADY_DONE
        with pytest.raises(CommitError, match="is at batch 6 of query query-1"):
            driver.commit(owner(state, "p", "run-2"), Batch(5, (), PAYLOAD))
    assert world.logged("p").run_id == "run-1", "a batch that is dropped takes nothing over"


@pytest.mark.parametrize("key", ["p~app", "p~8a7d6f5e"], ids=["a version", "without a name"])
def test_a_job_that_it_decided_is_rolled_forward(world: CommittingWorld, key: str) -> None:
    job = "8a7d6f5e"
    decided = tuple(world.prepared(f"p~{job}~{attempt}", f"{attempt}") for attempt in (4, 17))
    fields = {"runId": job, "queryId": "", "superseded": []}
    write_as_0_1(world, key, decided, **fields)
    with world.driver() as driver:
        state = driver.plan(key)
        assert (state.phase, state.last_done) == (Phase.DONE, 7)
        assert world.visible() == ["17", "4"]
        if key == "p~app":
            mine = owner(state, key, "9b8e", numbering=Numbering.VERSIONS)
            again = Batch(7, (), PAYLOAD)
            assert driver.commit(mine, again) is Commit.ALREADY_DONE
            batch = next_batch(world, key, "9b8e", 8, "80")
            assert driver.commit(mine, batch) is Commit.COMMITTED
            assert world.visible() == ["17", "4", "80"]


def test_a_job_of_another_prefix_is_not_ended_with_our_rights(world: CommittingWorld) -> None:
    stranger = world.prepared("q~8a7d6f5e~4", "theirs")
    write_as_0_1(world, "p~app", (stranger,))
    with (
        world.driver() as driver,
        pytest.raises(CommitError, match="'q~8a7d6f5e~4' of another key"),
    ):
        driver.plan("p~app")
    assert world.state_of("q~8a7d6f5e~4") == "Ongoing"
    assert world.visible() == []


def test_a_partly_aborted_decision_of_0_1_is_undone(world: CommittingWorld) -> None:
    """Nothing of it is committed: today it is written again, without an operator."""
    decided = tuple(world.prepared(f"p~run-1~{TOKEN}~{k}", f"7{k}") for k in (0, 1))
    world.end(decided[0], commit=False)
    write_as_0_1(world, "p", decided)
    with world.driver() as driver:
        state = driver.plan("p")
        assert (state.phase, state.last_done) == (Phase.DONE, 6)
        assert {world.settled(t.transactional_id) for t in decided} == {"CompleteAbort"}
        batch = next_batch(world, "p", "run-2", 7, "7 again")
        assert driver.commit(owner(state, "p", "run-2"), batch) is Commit.COMMITTED
    assert world.visible() == ["7 again"]


def test_a_partial_batch_of_0_1_still_waits_for_an_operator(world: CommittingWorld) -> None:
    decided = tuple(world.prepared(f"p~run-1~{TOKEN}~{k}", f"7{k}") for k in (0, 1))
    world.end(decided[0], commit=False)
    world.end(decided[1])
    lost = decided[0].transactional_id
    write_as_0_1(world, "p", decided, lost=[lost])
    with world.driver() as driver, pytest.raises(PartialCommitError) as raised:
        driver.plan("p")
    assert raised.value.transactional_ids == (lost,)
    assert world.logged("p").phase is Phase.PARTIAL


def test_a_key_with_parts_and_incarnation_goes_on_without_them(world: CommittingWorld) -> None:
    """As 0.1 left it in its last days, when a driver died between two writes of a block."""
    part = world.prepared(f"p~run-1~{TOKEN}~0", "lost")
    parts = [
        {
            "index": 0,
            "payload": [1, 4, "t"],
            "transactions": {f"p~run-1~{TOKEN}~": [[0, part.producer_id, part.producer_epoch, 2]]},
        }
    ]
    write_as_0_1(world, "p", format=2, incarnation="run-0", partsOf=7, parts=parts)
    with world.driver() as driver:
        mine = owner(driver.plan("p"), "p", "run-2")
        for number in (7, 8):
            batch = next_batch(world, "p", "run-2", number, f"{number}")
            assert driver.commit(mine, batch) is Commit.COMMITTED
    assert world.settled(part.transactional_id) == world.swept
    assert world.visible() == ["7", "8"]
