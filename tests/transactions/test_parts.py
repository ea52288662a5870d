"""Several writes that are decided together: noted one by one, decided by one record, or never."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import CommitError, ErrorCode, SupersededError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch, Block
from spark_kafka_sink.transactions.commit_state import Done, LogChangedError, Payload, Phase
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene

KEY = "p~name"
pytestmark = VERSIONS


def owner(driver: ExactlyOnceDriver, run: str = "run") -> Owner:
    """As planned now."""
    state = driver.plan(KEY)
    return Owner(KEY, run, "", state.generation, Numbering.MICRO_BATCHES)


def part(
    scene: Scene, *values: str, number: int = 0, run: str = "run", k: int = 0,
    token: str = "block",
) -> Batch:  # fmt: skip
    """One write, whose one task has prepared; without values it has no row."""
    prepared = (scene.prepared(f"{KEY}~{run}~g2.w~{k}", *values),) if values else ()
    size = sum(map(len, values))
    return Batch(number, prepared, Payload(len(values), size, "t"), block=Block(token))


def end(writes: int, number: int = 0, token: str = "block") -> Batch:
    return Batch(number, (), Payload(), block=Block(token, writes))


def replayed(payload: Payload, token: str = "replay") -> Batch:
    """A write of a block that is done already."""
    return Batch(0, (), payload, block=Block(token))


def test_all_parts_become_visible_by_one_record_and_none_before(scene: Scene) -> None:
    for index, value in enumerate(("a", "b", "c")):
        with scene.driver() as driver:
            batch = part(scene, value, k=index)
            assert driver.commit(owner(driver), batch) is Commit.PREPARED
        assert scene.values() == []
        state = scene.logged(KEY)
        assert (state.phase, state.last_done, state.parts_of) == (Phase.DONE, -1, 0)
        assert len(state.parts_by(0, "block")) == index + 1
    with scene.driver() as driver:
        assert driver.commit(owner(driver), end(3)) is Commit.COMMITTED
    assert scene.values() == ["a", "b", "c"]
    state = scene.logged(KEY)
    wanted = Done(0, tuple(Payload(1, 1, "t") for _ in range(3)))
    assert (state.done, state.parts, state.last_done) == ((wanted,), (), 0)


@pytest.mark.parametrize("noted", [(), (0,), (0, 1, 2)])
def test_a_missing_or_surplus_part_is_an_error(scene: Scene, noted: tuple[int, ...]) -> None:
    parts = 2
    with scene.driver() as driver:
        batches = [part(scene, f"{index}", k=index) for index in noted]
        for batch in batches:
            assert driver.commit(owner(driver), batch) is Commit.PREPARED
        mine = owner(driver)
        with pytest.raises(CommitError) as raised:
            driver.commit(mine, end(parts))
        text = str(raised.value)
        assert f"has 2 writes, and the commit log has {len(noted)} successful" in text
        assert scene.values() == []
        # Spark aborts the write that failed.
        driver.abort(mine, 0, (), tasks_may_run=False)
        assert scene.values() == []
    for k in noted:
        assert scene.settled(f"{KEY}~run~g2.w~{k}") == scene.swept
    with scene.driver() as driver:
        again = [part(scene, f"again{i}", run="run-2", k=i) for i in range(parts)]
        for batch in again:
            driver.commit(owner(driver, "run-2"), batch)
        assert driver.commit(owner(driver, "run-2"), end(parts)) is Commit.COMMITTED
    assert scene.values() == ["again0", "again1"]


def test_the_letters_of_all_parts_are_checked_before_the_decision(scene: Scene) -> None:
    """A limit of a micro-batch is one of all its writes."""
    seen = []

    def too_many(letters: int, rows_in: int) -> None:
        seen.append((letters, rows_in))
        raise CommitError("too many letters")

    for k, letters in enumerate(((1, 5), (0, 0), (2, 7))):
        with scene.driver() as driver:
            batch = part(scene, f"{k}", k=k)
            batch = replace(batch, block=Block("block", letters=letters))
            assert driver.commit(owner(driver), batch) is Commit.PREPARED
    last = replace(end(3), block=Block("block", 3, check_letters=too_many))
    with scene.driver() as driver:
        mine = owner(driver)
        with pytest.raises(CommitError, match="too many letters"):
            driver.commit(mine, last)
    assert scene.values() == []
    assert set(seen) == {(3, 12)}


def test_a_write_without_rows_counts(scene: Scene) -> None:
    with scene.driver() as driver:
        for batch in (part(scene, "c", k=0), part(scene), part(scene, "b", k=1)):
            assert driver.commit(owner(driver), batch) is Commit.PREPARED
        assert driver.commit(owner(driver), end(3)) is Commit.COMMITTED
    assert scene.values() == ["b", "c"]


def test_parts_that_all_have_no_rows_are_done_all_the_same(scene: Scene) -> None:
    with scene.driver() as driver:
        for _ in range(2):
            assert driver.commit(owner(driver), part(scene)) is Commit.PREPARED
        assert driver.commit(owner(driver), end(2)) is Commit.EMPTY
        assert driver.plan(KEY).last_done == 0


def test_parts_of_an_abandoned_block_of_the_run_are_replaced(scene: Scene) -> None:
    with scene.driver() as driver:
        for k in (0, 1):
            driver.commit(owner(driver), part(scene, f"lost{k}", k=k, token="abandoned"))
        driver.commit(owner(driver), part(scene, "a", k=2))
        assert driver.commit(owner(driver), end(1)) is Commit.COMMITTED
    assert scene.values() == ["a"]
    assert {scene.settled(f"{KEY}~run~g2.w~{k}") for k in (0, 1)} == {scene.swept}


@pytest.mark.parametrize("writes", [1, 2])
def test_two_blocks_at_once_are_not_decided_as_one(scene: Scene, writes: int) -> None:
    """Which of them is alive is not known here: the one whose writes are not there fails."""
    with scene.driver() as driver:
        for k in range(2 * writes):
            token = ("first", "second")[k % 2]
            driver.commit(owner(driver), part(scene, token, k=k, token=token))
        with pytest.raises(CommitError, match="has 0 successful writes"):
            driver.commit(owner(driver), end(writes, token="first"))
        if writes == 1:
            assert driver.commit(owner(driver), end(1, token="second")) is Commit.COMMITTED
        else:
            with pytest.raises(CommitError, match="has 1 successful writes"):
                driver.commit(owner(driver), end(2, token="second"))
    assert scene.values() == ["second"] * (writes == 1)


def test_a_write_whose_record_got_no_answer_is_recorded_once(scene: Scene) -> None:
    with scene.driver() as driver:
        mine = owner(driver)
        batch = part(scene, "a")
        lost = scene.control.drop(
            ApiKey.END_TXN, where=lambda r: r.body.transactional_id == log_id(KEY)
        )
        assert driver.commit(mine, batch) is Commit.PREPARED
        assert lost.fired
        state = scene.logged(KEY)
        assert len(state.parts) == 1
        assert driver.commit(owner(driver), end(1)) is Commit.COMMITTED
    assert scene.values() == ["a"]


def test_a_write_that_is_always_shut_out_gives_up(scene: Scene) -> None:
    """Somebody opens the log before each record of it, for longer than max.block.ms."""
    with scene.driver() as driver:
        mine, batch = owner(driver), part(scene, "a")
        shut_out = scene.control.answer(ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, FOREVER)
        begun = scene.scheduler.now
        with pytest.raises(LogChangedError):
            driver.commit(mine, batch)
        took = scene.scheduler.now - begun
        most_ms = scene.config("driver").max_block_ms
        assert most_ms <= took < 2 * most_ms
        assert 5 < shut_out.fired < 30


def test_parts_of_another_batch_are_not_decided(scene: Scene) -> None:
    """A driver that died had noted a part of batch 0; the next one writes batch 1 by mistake."""
    with scene.driver() as driver:
        driver.commit(owner(driver), part(scene, "a"))
        with pytest.raises(CommitError, match="has 0 successful writes"):
            driver.commit(owner(driver), end(1, number=1))
    assert scene.values() == []


def test_a_driver_that_dies_between_parts_leaves_no_part(scene: Scene) -> None:
    with scene.driver() as driver:
        mine = owner(driver)
        driver.commit(mine, part(scene, "a"))
    with scene.driver() as later:
        batches = [part(scene, f"again{i}", run="run-2", k=i) for i in (0, 1)]
        for batch in batches:
            later.commit(owner(later, "run-2"), batch)
        state = scene.logged(KEY)
        assert state.superseded == ("run",)
        assert {t.transactional_id for p in state.parts for t in p.transactions} == {
            f"{KEY}~run-2~g2.w~{k}" for k in (0, 1)
        }
        assert later.commit(owner(later, "run-2"), end(2)) is Commit.COMMITTED
    assert scene.values() == ["again0", "again1"]
    assert scene.settled(f"{KEY}~run~g2.w~0") == scene.swept, "it is swept"
    with scene.driver() as driver, pytest.raises(SupersededError):
        driver.commit(mine, end(1, number=1))


def test_dropping_a_batch_takes_over_so_that_one_query_stops(scene: Scene) -> None:
    """The queries may be unknown, and their batches may look alike: they would drop each other's
    for ever.
    """
    with scene.driver() as first, scene.driver() as second:
        one = Batch(0, (scene.prepared(f"{KEY}~run~g2.w~0", "a"),), Payload(1, 1, "t"))
        assert first.commit(owner(first), one) is Commit.COMMITTED
        mine = owner(first)
        dropped = Batch(0, (), Payload(1, 1, "t"))
        assert second.commit(owner(second, "run-2"), dropped) is Commit.ALREADY_DONE
        state = scene.logged(KEY)
        assert (state.run_id, state.last_done, state.superseded) == ("run-2", 0, ("run",))
        late = Batch(1, (scene.prepared(f"{KEY}~run~g2.w~0", "b"),), Payload(1, 1, "t"))
        with pytest.raises(SupersededError):
            first.commit(mine, late)
    assert scene.values() == ["a"]


def test_a_batch_that_is_done_drops_its_parts_and_compares_them(scene: Scene) -> None:
    with scene.driver() as driver:
        for index, value in enumerate(("a", "bc")):
            driver.commit(owner(driver), part(scene, value, k=index))
        driver.commit(owner(driver), end(2))
    a, bc = Payload(1, 1, "t"), Payload(1, 2, "t")
    with scene.driver() as driver:
        for again in (bc, a):
            how = driver.commit(owner(driver, "run-2"), replayed(again))
            assert how is Commit.ALREADY_DONE
        with pytest.raises(CommitError, match="other rows"):
            driver.commit(owner(driver, "run-2"), replayed(bc))
        last = end(2, token="replay")
        assert driver.commit(owner(driver, "run-2"), last) is Commit.ALREADY_DONE
        state = scene.logged(KEY)
        assert (state.parts, state.last_done) == ((), 0)
    with scene.driver() as driver:
        driver.commit(owner(driver, "run-3"), replayed(a))
        with pytest.raises(CommitError, match="other rows"):
            driver.commit(owner(driver, "run-3"), end(1, token="replay"))
    assert scene.values() == ["a", "bc"]


def test_the_log_grows_linearly_with_the_writes_of_a_block(scene: Scene) -> None:
    writes = 12
    with scene.driver() as driver:
        sizes = []
        for k in range(writes):
            before = scene.log_bytes()
            driver.commit(owner(driver), part(scene, "a", k=k))
            sizes.append(scene.log_bytes() - before)
        assert max(sizes[2:]) < 1.2 * min(sizes[2:])
        assert driver.commit(owner(driver), end(writes)) is Commit.COMMITTED
    assert scene.values() == ["a"] * writes
