"""An operator, or a start with other options, beside or after a driver: a time-out is its own."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaTimeoutError,
    PartialCommitError,
    RefusedError,
)
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Phase
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_data, of_id, writes_a_log
from tests.simulation.spark_tasks import new_client
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS, Run
from tests.simulation.test_edges_log_reading import log_partition

#: Of the command line, when the sink has TIMEOUT_MS: the defaults differ by a factor of 15.
SHORTER, LONGER = TIMEOUT_MS // 3, 15 * TIMEOUT_MS
pytestmark = [VERSIONS, pytest.mark.life(tasks=2)]


@pytest.mark.parametrize("timeout_ms", [SHORTER, TIMEOUT_MS, LONGER])
def test_a_commit_by_hand_makes_a_dead_drivers_batch_visible(scene: Scene, timeout_ms: int) -> None:
    """Its transactions are older than a third of their time-out."""
    scene.decides_and_dies(*scene.first_batch())
    scene.scheduler.sleep(TIMEOUT_MS // 2)
    assert scene.commit_by_hand(timeout_ms).last_done == 0
    scene.ends_with(0)


def test_a_commit_by_hand_waits_for_slow_brokers(scene: Scene) -> None:
    """Each of their answers takes longer than a 32nd of the margin, and there is time enough."""
    scene.decides_and_dies(*scene.first_batch())
    for api in (ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS):
        scene.control.delay(api, 700, times=FOREVER)
    assert scene.commit_by_hand().last_done == 0
    scene.ends_with(0)


@pytest.mark.parametrize("marker_ms", [3_000, 60_000, 0])
def test_a_commit_by_hand_waits_until_rows_are_visible(scene: Scene, marker_ms: int) -> None:
    """The leader of their partition is lost, and another one not elected yet. Or it does not come
    back: then the command says so. With 0 markers are dropped, and coordinators say: complete.
    """
    scene.decides_and_dies(*scene.first_batch())
    scene.cluster.marker_ms = marker_ms or 2
    if not marker_ms:
        scene.cluster.markerless = {tp for tp in scene.cluster.logs if tp.topic != LOG_TOPIC}
    if marker_ms == 3_000:
        assert scene.commit_by_hand().last_done == 0
        assert scene.batches() == {0}
    else:
        what = "2" if marker_ms else "its rows in 3 partitions"
        told = f"batch 0 of 'orders' is committed, and {what}"
        with pytest.raises(KafkaTimeoutError, match=told):
            scene.commit_by_hand()


def test_commands_wait_for_the_markers_of_a_decision(scene: Scene) -> None:
    """They are late because a broker is lost. Before them the log seems not to have the key, nor to
    know its run.
    """
    scene.cluster.marker_ms = 3_000
    scene.decides_and_dies(*scene.first_batch())
    scene.cluster.marker_ms = 2
    with scene.by_hand() as commands:
        assert len(commands.plan_sweep(PREFIX).kept) == 2
    assert scene.commit_by_hand().last_done == 0
    scene.ends_with(0)


def test_commands_say_that_the_markers_of_a_decision_are_missing(scene: Scene) -> None:
    """It is not that the key is missing, or that its run is not in the log."""
    scene.cluster.marker_ms = 40_000
    scene.decides_and_dies(*scene.first_batch())
    for command in (Operator.plan_commit, Operator.plan_sweep):
        with (
            scene.by_hand() as commands,
            pytest.raises(KafkaTimeoutError, match="has a write of 'orders' that is not ended"),
        ):
            command(commands, PREFIX)


def test_commands_do_not_wait_for_writes_that_begin_meanwhile(scene: Scene) -> None:
    """Of many queries of one prefix one may always be writing; else they would shut commands out.
    Here each of two ends its write when the other one has begun the next.
    """
    keys = [key for n in range(100) if log_partition(key := f"{PREFIX}~job{n}") == 0][:2]
    begun, over = [0, 0], False

    def write(run: Run, mine: int) -> None:
        with scene.driver_side(run) as driver:
            log = CommitLog(driver.client, LOG_TOPIC)
            session = log.open(keys[mine], driver.client.deadline())

            def overlap() -> None:
                begun[mine] += 1
                before = begun[1 - mine]
                scene.wait(lambda: over or begun[1 - mine] > before)

            while not over:
                state = session.state.taken_over(run.id, "", 0)
                session.write(state, driver.client.deadline(), check=overlap)

    runs = [scene.run(key) for key in keys]
    writers = [scene.beside(run.process, partial(write, run, n)) for n, run in enumerate(runs)]
    scene.wait(lambda: min(begun) > 3)
    with scene.by_hand() as commands:
        assert commands.inspector.keys(PREFIX).keys() == set(keys)
    over = True
    scene.wait(lambda: all(task.done for task, _ in writers))
    assert [told for _, told in writers] == [[None], [None]]


@pytest.mark.parametrize(
    ("timeout_ms", "age_ms", "away_ms", "told"),
    [
        (SHORTER, 20_000, 2_000, Commit.COMMITTED),
        (TIMEOUT_MS, 20_000, 2_000, Commit.COMMITTED),
        # The driver gives up before it is answered. Nearly all of the time-out is over.
        (TIMEOUT_MS, 28_000, 25_500, CommitOutcomeUnknownError),
    ],
)
@pytest.mark.life(tasks=6)
def test_a_commit_by_hand_beside_a_driver_aborts_nothing(
    scene: Scene, timeout_ms: int, age_ms: int, away_ms: int, told: object
) -> None:
    """Coordinators load while both retry: one would commit what the other aborts."""
    operator, written = scene.run("operator"), scene.first_batch()
    scene.scheduler.sleep(age_ms)
    loading = scene.coordinators_load(of_data)
    one, result = scene.beside(written.run.process, lambda: scene.commit(*written))
    scene.wait(lambda: loading.fired)
    scene.scheduler.sleep(max(0, away_ms - 500))
    two, state = scene.beside(
        operator.process, lambda: scene.commit_by_hand(timeout_ms, operator).last_done
    )
    scene.timeline.after(500, scene.control.clear)
    scene.wait(lambda: one.done and two.done)
    assert state == [0]
    assert result == [told] or isinstance(result[0], told), result  # type: ignore[arg-type]
    scene.ends_with_tasks(*((0, task) for task in range(6)))


@pytest.mark.parametrize("restarted_with", [SHORTER, TIMEOUT_MS, LONGER])
def test_a_decision_that_is_about_to_time_out_is_undone_whole(
    scene: Scene, restarted_with: int
) -> None:
    """Its driver dies behind it. The next one has another time-out, as the error of a batch that
    took too long advises, and begins right before the first transaction times out; the others are
    younger. Their ends arrive in time, and that one's would not.
    """
    run = scene.run("run-0")
    plan = scene.plan(run)
    begun = scene.scheduler.now
    old = scene.attempt_of(run, 0, 0, 0, plan)
    scene.scheduler.sleep(25_000)
    young = scene.attempt_of(run, 0, 1, 0, plan)
    assert old.prepared is not None
    scene.decides_and_dies(run, 0, plan, [old, young])
    scene.scheduler.sleep(begun + TIMEOUT_MS - 300 - scene.scheduler.now)
    is_first = of_id(old.prepared.transactional_id)
    scene.control.drop(
        ApiKey.END_TXN, 3, processed=False, where=lambda r: is_first(r) and r.body.committed
    )
    config = replace(scene.config("driver"), transaction_timeout_ms=restarted_with)
    client = new_client(scene.run("run-1").process)
    with ExactlyOnceDriver(config, LOG_TOPIC, clock=scene.scheduler, new_client=client) as next_:
        state = next_.plan(PREFIX)
        assert (state.phase, state.last_done) == (Phase.DONE, -1)
    assert scene.batch(scene.run("run-2"), 0) is Commit.COMMITTED
    scene.ends_with_tasks((0, 0), (0, 1))


def test_a_batch_is_too_old_by_its_own_time_out(scene: Scene) -> None:
    """The driver that commits has a longer one, and the batch would be decided too late."""
    written = scene.first_batch()
    scene.scheduler.sleep(TIMEOUT_MS - 10_000)
    scene.changes = {"transaction_timeout_ms": LONGER}
    with pytest.raises(CommitError, match=rf"30000 ms of their .*timeout.ms \({TIMEOUT_MS} ms\)"):
        scene.commit(*written)
    assert scene.open_ids() == []
    scene.ends_with()


@pytest.mark.parametrize("lost", [False, True])
def test_a_commit_by_hand_undoes_only_what_is_lost(scene: Scene, lost: bool) -> None:
    """One of two transactions has ended; the other one is as old as its time-out allows."""
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    scene.scheduler.sleep(TIMEOUT_MS - 5_000)
    with scene.driver_side(scene.run("helper")) as driver:
        deadline = scene.scheduler.now + 5_000
        driver.client.end(written.prepared[:1], committed=not lost, deadline_ms=deadline)
    state = scene.commit_by_hand()
    assert (state.phase, state.last_done) == (Phase.DONE, -1 if lost else 0)
    assert scene.open_ids() == []
    scene.ends_with(*([] if lost else [0]))


@pytest.mark.parametrize(
    "back_ms",
    [53_000, 57_000, *(pytest.param(n, marks=pytest.mark.long) for n in (55_500, 58_500, 59_500))],
)
@pytest.mark.life(tasks=6)
def test_a_commit_by_hand_beside_a_driver_that_undoes_tears_nothing(
    scene: Scene, back_ms: int
) -> None:
    """Coordinators load until the transactions are about to time out, and are back one by one: the
    driver aborts what it has decided, and the command commits it when all are open for long.
    """
    scene.changes = {"delivery_timeout_ms": 120_000}
    operator, written = scene.run("operator"), scene.first_batch()
    begun = scene.scheduler.now
    loading = [scene.coordinators_load(of_id(one)) for one in written.ids]
    one, told = scene.beside(written.run.process, lambda: scene.commit(*written))
    scene.wait(lambda: loading[0].fired)
    for nth, fault in enumerate(loading):
        scene.timeline.after(begun + back_ms + 150 * nth - scene.scheduler.now, fault.stop)
    scene.scheduler.sleep(begun + 51_000 - scene.scheduler.now)
    two, by_hand = scene.beside(
        operator.process, lambda: scene.commit_by_hand(SHORTER, operator).last_done
    )
    scene.wait(lambda: one.done and two.done)
    assert not any(isinstance(one, PartialCommitError) for one in (*told, *by_hand))
    assert {task for _, task, _ in scene.visible()} in (set(), set(range(6)))


@pytest.mark.parametrize("resolved", [None, True, False])
def test_a_batch_torn_by_force_is_not_called_invisible(
    scene: Scene, resolved: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    """One of its transactions is committed, and the coordinator of the other one loads, when an
    operator aborts that one (and resolves the batch). The driver is alive, and goes on.
    """
    written = scene.first_batch()
    last = written.ids[1]
    scene.coordinators_load(lambda r: of_id(last)(r) and r.body.committed)
    driver, told = scene.beside(written.run.process, lambda: scene.commit(*written))
    scene.wait(scene.visible)
    written.run.process.freeze(5_000)
    scene.control.clear()
    with scene.by_hand() as commands:
        assert commands.end(commands.plan_abort([last], force=True)).ended == (last,)
        if resolved is not None:
            with pytest.raises(PartialCommitError):
                commands.commit(commands.plan_commit(PREFIX))
            commands.resolve(commands.plan_resolve(PREFIX, 0, done=resolved))
    scene.wait(lambda: driver.done)
    assert len({task for _, task, _ in scene.visible()}) == 1
    assert isinstance(told[0], PartialCommitError)
    assert told[0].transactional_ids == (last,)
    scene.abort(*written, tasks_may_run=True)
    says = "a part of it is lost: 'kprod txn resolve' ends it"
    assert (says in caplog.text) == (resolved is None)


def test_a_commit_by_hand_looks_again_while_coordinators_load(scene: Scene) -> None:
    """The second transaction is 8 s younger than the first one, which brokers abort meanwhile: it
    must not be committed, when its coordinator is back, because both were open before.
    """
    run = scene.run("run-0")
    scene.cluster.abort_scan_ms = 1_000
    plan = scene.plan(run)
    begun = scene.scheduler.now
    old = scene.attempt_of(run, 0, 0, 0, plan)
    scene.scheduler.sleep(begun + 8_000 - scene.scheduler.now)
    scene.decides_and_dies(run, 0, plan, [old, scene.attempt_of(run, 0, 1, 0, plan)])
    scene.scheduler.sleep(begun + 58_500 - scene.scheduler.now)
    loading = scene.coordinators_load()
    scene.timeline.after(begun + 64_500 - scene.scheduler.now, loading.stop)
    state = scene.commit_by_hand()
    assert loading.fired
    assert (state.phase, state.last_done) == (Phase.DONE, -1)
    scene.ends_with()


def test_a_commit_beside_a_roll_forward_is_not_taken_for_age(scene: Scene, version: int) -> None:
    """A driver ends its first transaction while the next start asks for the old ones: it is in no
    list of open ones any more, as if it had moved, and is committed. The rest must be, too.
    """
    written = scene.first_batch()
    scene.decides_and_dies(*written)
    first = written.prepared[0]

    def end() -> None:
        error, _, _ = scene.cluster.transactions.end(
            first.transactional_id,
            (first.producer_id, first.producer_epoch),
            commit=True,
            version=first.transaction_version if version == 2 else 0,
            now=scene.cluster.now,
        )
        assert error is ErrorCode.NONE

    next_ = scene.run("run-1")
    asked = scene.before_send(next_, lambda r: r.api == ApiKey.LIST_TRANSACTIONS, end)
    assert scene.plan(next_).state.last_done == 0
    assert asked
    scene.ends_with_tasks((0, 0), (0, 1))


def test_a_reset_that_a_driver_has_fenced_changes_nothing(scene: Scene) -> None:
    """A running query opens the key before the reset's write, which is surely refused."""
    run, operator = scene.run("run-0"), scene.run("operator")
    scene.batch(run, 0)

    def driver() -> None:
        scene.batch(run, 1)

    met = scene.before_send(operator, writes_a_log, driver)
    with (
        scene.by_hand(by=operator) as commands,
        pytest.raises(RefusedError, match="has changed meanwhile; it was not changed"),
    ):
        commands.reset(commands.plan_reset(PREFIX))
    assert met
    scene.ends_with(0, 1)
