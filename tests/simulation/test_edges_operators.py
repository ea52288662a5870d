"""An operator, or a start with other options, beside or after a driver: a time-out is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaTimeoutError,
    PartialCommitError,
)
from spark_kafka_sink.cli.operations.operator import Operator
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Phase
from spark_kafka_sink.transactions.committer import Commit
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.edge_scene import EdgeScene
from tests.simulation.spark_scene import Scene
from tests.simulation.spark_tasks import Stage, new_client
from tests.simulation.spark_world import LOG_TOPIC, PREFIX, TIMEOUT_MS, Run, SparkLife
from tests.simulation.test_edges_log_reading import log_partition

#: Of the command line, when the sink has TIMEOUT_MS: the defaults differ by a factor of 15.
SHORTER, LONGER = TIMEOUT_MS // 3, 15 * TIMEOUT_MS
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@contextmanager
def by_hand(scene: EdgeScene, operator: Run, timeout_ms: int = TIMEOUT_MS) -> Iterator[Operator]:
    """``kprod txn``, whose transaction.timeout.ms is ``timeout_ms``."""
    config = replace(scene.config("cli"), transaction_timeout_ms=timeout_ms)
    process = operator.process
    with TransactionClient(config, clock=scene.scheduler, new_client=new_client(process)) as client:
        yield Operator(CommitLog(client, LOG_TOPIC), client)


def commit_by_hand(scene: EdgeScene, operator: Run, timeout_ms: int) -> CommitState:
    """``kprod txn commit``."""
    with by_hand(scene, operator, timeout_ms) as commands:
        return commands.commit(commands.plan_commit(PREFIX)).state


def played(version: int = 2, tasks: int = 2) -> SparkLife:
    return SparkLife(1, tasks=tasks, transaction_version=version)


@VERSIONS
@pytest.mark.parametrize("timeout_ms", [SHORTER, TIMEOUT_MS, LONGER])
def test_a_commit_by_hand_makes_a_dead_drivers_batch_visible(timeout_ms: int, version: int) -> None:
    """Its transactions are older than a third of their time-out."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        scene.decides_and_dies(run, 0, plan, scene.write(run, 0, plan))
        scene.scheduler.sleep(TIMEOUT_MS // 2)
        assert commit_by_hand(scene, scene.run("operator"), timeout_ms).last_done == 0

    assert EdgeScene.of(play, played(version)).batches() == {0}


@VERSIONS
def test_a_commit_by_hand_waits_for_slow_brokers(version: int) -> None:
    """Each of their answers takes longer than a 32nd of the margin, and there is time enough."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        scene.decides_and_dies(run, 0, plan, scene.write(run, 0, plan))
        for api in (ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS):
            scene.cluster.control.delay(api, 700, times=FOREVER)
        assert commit_by_hand(scene, scene.run("operator"), TIMEOUT_MS).last_done == 0

    assert EdgeScene.of(play, played(version)).batches() == {0}


@VERSIONS
@pytest.mark.parametrize("marker_ms", [3_000, 60_000, 0])
def test_a_commit_by_hand_waits_until_rows_are_visible(marker_ms: int, version: int) -> None:
    """The leader of their partition is lost, and another one not elected yet. Or it does not come
    back: then the command says so. With 0 markers are dropped, and coordinators say: complete.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        scene.decides_and_dies(run, 0, plan, scene.write(run, 0, plan))
        scene.cluster.marker_ms = marker_ms or 2
        if not marker_ms:
            scene.cluster.markerless = {tp for tp in scene.cluster.logs if tp.topic != LOG_TOPIC}
        if marker_ms == 3_000:
            assert commit_by_hand(scene, scene.run("operator"), TIMEOUT_MS).last_done == 0
            assert scene.batches() == {0}
        else:
            what = "2" if marker_ms else "its rows in 3 partitions"
            told = f"batch 0 of 'orders' is committed, and {what}"
            with pytest.raises(KafkaTimeoutError, match=told):
                commit_by_hand(scene, scene.run("operator"), TIMEOUT_MS)

    EdgeScene.of(play, played(version))


@VERSIONS
def test_commands_wait_for_the_markers_of_a_decision(version: int) -> None:
    """They are late because a broker is lost. Before them the log seems not to have the key, nor to
    know its run.
    """

    def play(scene: EdgeScene) -> None:
        run, operator = scene.run("run-0"), scene.run("operator")
        scene.cluster.marker_ms = 3_000
        plan = scene.plan(run)
        scene.decides_and_dies(run, 0, plan, scene.write(run, 0, plan))
        scene.cluster.marker_ms = 2
        with by_hand(scene, operator) as commands:
            assert len(commands.plan_sweep(PREFIX).kept) == 2
        assert commit_by_hand(scene, operator, TIMEOUT_MS).last_done == 0

    assert EdgeScene.of(play, played(version)).batches() == {0}


@VERSIONS
def test_commands_say_that_the_markers_of_a_decision_are_missing(version: int) -> None:
    """It is not that the key is missing, or that its run is not in the log."""

    def play(scene: EdgeScene) -> None:
        run, operator = scene.run("run-0"), scene.run("operator")
        scene.cluster.marker_ms = 40_000
        plan = scene.plan(run)
        scene.decides_and_dies(run, 0, plan, scene.write(run, 0, plan))
        for command in (Operator.plan_commit, Operator.plan_sweep):
            with (
                by_hand(scene, operator) as commands,
                pytest.raises(KafkaTimeoutError, match="has a write of 'orders' that is not ended"),
            ):
                command(commands, PREFIX)

    EdgeScene.of(play, played(version))


@VERSIONS
def test_commands_do_not_wait_for_writes_that_begin_meanwhile(version: int) -> None:
    """Of many queries of one prefix one may always be writing; else they would shut commands out.
    Here each of two ends its write when the other one has begun the next.
    """
    keys = [key for n in range(100) if log_partition(key := f"{PREFIX}~job{n}") == 0][:2]

    def play(scene: EdgeScene) -> None:
        begun, over = [0, 0], False

        def write(run: Run, mine: int) -> None:
            with scene.driver_side(run) as driver:
                log = CommitLog(driver.client, LOG_TOPIC)
                session = log.open(keys[mine], driver.client.deadline())

                def overlap() -> None:
                    begun[mine] += 1
                    before = begun[1 - mine]
                    scene.scheduler.block(lambda: over or begun[1 - mine] > before, NEVER)

                while not over:
                    state = session.state.taken_over(run.id, "", 0)
                    session.write(state, driver.client.deadline(), check=overlap)

        runs = [scene.run(key) for key in keys]
        writers = [scene.beside(run.process, partial(write, run, n)) for n, run in enumerate(runs)]
        scene.scheduler.block(lambda: min(begun) > 3, NEVER)
        with by_hand(scene, scene.run("operator")) as commands:
            assert commands.inspector.keys(PREFIX).keys() == set(keys)
        over = True
        scene.scheduler.block(lambda: all(task.done for task, _ in writers), NEVER)
        assert [told for _, told in writers] == [[None], [None]]

    EdgeScene.of(play, played(version))


@VERSIONS
@pytest.mark.parametrize(
    ("timeout_ms", "age_ms", "away_ms", "told"),
    [
        (SHORTER, 20_000, 2_000, Commit.COMMITTED),
        (TIMEOUT_MS, 20_000, 2_000, Commit.COMMITTED),
        # The driver gives up before it is answered. Nearly all of the time-out is over.
        (TIMEOUT_MS, 28_000, 25_500, CommitOutcomeUnknownError),
    ],
)
def test_a_commit_by_hand_beside_a_driver_aborts_nothing(
    timeout_ms: int, age_ms: int, away_ms: int, told: object, version: int
) -> None:
    """Coordinators load while both retry: one would commit what the other aborts."""

    def play(scene: EdgeScene) -> None:
        run, operator = scene.run("run-0"), scene.run("operator")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        scene.scheduler.sleep(age_ms)
        loading = scene.cluster.control.answer(
            ApiKey.END_TXN,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            FOREVER,
            where=lambda r: "~~" not in r.body.transactional_id,
        )
        one, result = scene.beside(run.process, lambda: scene.commit(run, 0, plan, messages))
        scene.scheduler.block(lambda: loading.fired > 0, NEVER)
        scene.scheduler.sleep(max(0, away_ms - 500))
        two, state = scene.beside(
            operator.process, lambda: commit_by_hand(scene, operator, timeout_ms).last_done
        )
        scene.timeline.after(500, scene.cluster.control.clear)
        scene.scheduler.block(lambda: one.done and two.done, NEVER)
        assert state == [0]
        assert result == [told] or isinstance(result[0], told), result  # type: ignore[arg-type]

    scene = EdgeScene.of(play, played(version, tasks=6))
    assert {task for _, task, _ in scene.visible()} == set(range(6))


@VERSIONS
@pytest.mark.parametrize("restarted_with", [SHORTER, TIMEOUT_MS, LONGER])
def test_a_decision_that_is_about_to_time_out_is_undone_whole(
    restarted_with: int, version: int
) -> None:
    """Its driver dies behind it. The next one has another time-out, as the error of a batch that
    took too long advises, and begins right before the first transaction times out; the others are
    younger. Their ends arrive in time, and that one's would not.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        begun = scene.scheduler.now
        old = scene.launch(run, 0, 0, 0, plan)
        scene.scheduler.block(lambda: old.over, NEVER)
        scene.scheduler.sleep(25_000)
        young = scene.launch(run, 0, 1, 0, plan)
        scene.scheduler.block(lambda: young.over, NEVER)
        assert old.message is not None
        assert young.message is not None
        assert old.message.prepared is not None
        scene.decides_and_dies(run, 0, plan, [old.message, young.message])
        scene.scheduler.sleep(begun + TIMEOUT_MS - 300 - scene.scheduler.now)
        first = old.message.prepared.transactional_id
        scene.cluster.control.drop(
            ApiKey.END_TXN,
            3,
            processed=False,
            where=lambda r: r.body.transactional_id == first and r.body.committed,
        )
        config = replace(scene.config("driver"), transaction_timeout_ms=restarted_with)
        client = new_client(scene.run("run-1").process)
        with ExactlyOnceDriver(
            config, LOG_TOPIC, clock=scene.scheduler, new_client=client
        ) as next_:
            state = next_.plan(PREFIX)
            assert (state.phase, state.last_done) == (Phase.DONE, -1)
        assert scene.batch(scene.run("run-2"), 0) is Commit.COMMITTED

    scene = EdgeScene.of(play, played(version))
    assert {task for _, task, _ in scene.visible()} == {0, 1}


@VERSIONS
def test_a_batch_is_too_old_by_its_own_time_out(version: int) -> None:
    """The driver that commits has a longer one, and the batch would be decided too late."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        scene.scheduler.sleep(TIMEOUT_MS - 10_000)
        longer = replace(scene.config("driver"), transaction_timeout_ms=LONGER)
        with (
            patch.object(scene, "config", lambda _: longer),
            pytest.raises(CommitError, match=f"open for more than 30000 ms of {TIMEOUT_MS} ms"),
        ):
            scene.commit(run, 0, plan, messages)
        assert scene.open_ids() == []

    assert EdgeScene.of(play, played(version)).batches() == set()


@VERSIONS
@pytest.mark.parametrize("ended", [lambda committed: committed, lambda committed: not committed])
def test_a_commit_by_hand_undoes_only_what_is_lost(
    ended: Callable[[bool], bool], version: int
) -> None:
    """One of two transactions has ended; the other one is as old as its time-out allows."""
    lost = not ended(True)

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        scene.decides_and_dies(run, 0, plan, messages)
        prepared = messages[0].prepared
        assert prepared is not None
        scene.scheduler.sleep(TIMEOUT_MS - 5_000)
        with scene.driver_side(scene.run("helper")) as driver:
            deadline = scene.scheduler.now + 5_000
            driver.client.end([prepared], committed=ended(True), deadline_ms=deadline)
        state = commit_by_hand(scene, scene.run("operator"), TIMEOUT_MS)
        assert (state.phase, state.last_done) == (Phase.DONE, -1 if lost else 0)
        assert scene.open_ids() == []

    assert EdgeScene.of(play, played(version)).batches() == (set() if lost else {0})


@VERSIONS
@pytest.mark.parametrize(
    "back_ms",
    [53_000, 57_000, *(pytest.param(n, marks=pytest.mark.long) for n in (55_500, 58_500, 59_500))],
)
def test_a_commit_by_hand_beside_a_driver_that_undoes_tears_nothing(
    back_ms: int, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Coordinators load until the transactions are about to time out, and are back one by one: the
    driver aborts what it has decided, and the command commits it when all are open for long.
    """
    given = Scene.config
    monkeypatch.setattr(
        Scene, "config", lambda self, name: replace(given(self, name), delivery_timeout_ms=120_000)
    )

    def play(scene: EdgeScene) -> None:
        run, operator = scene.run("run-0"), scene.run("operator")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        begun = scene.scheduler.now
        ids = [m.prepared.transactional_id for m in messages if m.prepared is not None]
        loading = [
            scene.cluster.control.answer(
                ApiKey.END_TXN,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                FOREVER,
                where=lambda r, one=one: r.body.transactional_id == one,
            )
            for one in ids
        ]
        one, told = scene.beside(run.process, lambda: scene.commit(run, 0, plan, messages))
        scene.scheduler.block(lambda: loading[0].fired > 0, NEVER)
        for nth, fault in enumerate(loading):
            after = begun + back_ms + 150 * nth - scene.scheduler.now
            scene.timeline.after(after, lambda fault=fault: setattr(fault, "times", fault.fired))
        scene.scheduler.sleep(begun + 51_000 - scene.scheduler.now)
        two, by_hand = scene.beside(
            operator.process, lambda: commit_by_hand(scene, operator, SHORTER).last_done
        )
        scene.scheduler.block(lambda: one.done and two.done, NEVER)
        assert not any(isinstance(one, PartialCommitError) for one in (*told, *by_hand))

    scene = EdgeScene.of(play, played(version, tasks=6))
    assert {task for _, task, _ in scene.visible()} in (set(), set(range(6)))


@VERSIONS
@pytest.mark.parametrize("resolved", [None, True, False])
def test_a_batch_torn_by_force_is_not_called_invisible(
    resolved: bool | None, version: int, caplog: pytest.LogCaptureFixture
) -> None:
    """One of its transactions is committed, and the coordinator of the other one loads, when an
    operator aborts that one (and resolves the batch). The driver is alive, and goes on.
    """

    def play(scene: EdgeScene) -> None:
        run, operator = scene.run("run-0"), scene.run("operator")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        prepared = messages[1].prepared
        assert prepared is not None
        last = prepared.transactional_id
        scene.cluster.control.answer(
            ApiKey.END_TXN,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            FOREVER,
            where=lambda r: r.body.transactional_id == last and r.body.committed,
        )
        driver, told = scene.beside(run.process, lambda: scene.commit(run, 0, plan, messages))
        scene.scheduler.block(lambda: bool(scene.visible()), NEVER)
        run.process.freeze(5_000)
        scene.cluster.control.clear()
        with by_hand(scene, operator) as commands:
            assert commands.end(commands.plan_abort([last], force=True)).ended == (last,)
            if resolved is not None:
                with pytest.raises(PartialCommitError):
                    commands.commit(commands.plan_commit(PREFIX))
                commands.resolve(commands.plan_resolve(PREFIX, 0, done=resolved))
        scene.scheduler.block(lambda: driver.done, NEVER)
        assert len({task for _, task, _ in scene.visible()}) == 1
        assert isinstance(told[0], PartialCommitError)
        assert told[0].transactional_ids == (last,)
        scene.stop(run, 0, plan, messages)
        says = "a part of it is lost: 'kprod txn resolve' ends it"
        assert (says in caplog.text) == (resolved is None)

    EdgeScene.of(play, played(version))


@VERSIONS
def test_a_decision_aborted_by_force_is_written_again(version: int) -> None:
    """Nothing of it was committed, and its driver is dead."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        scene.decides_and_dies(run, 0, plan, messages)
        ids = [m.prepared.transactional_id for m in messages if m.prepared is not None]
        with by_hand(scene, scene.run("operator")) as commands:
            assert set(commands.end(commands.plan_abort(ids, force=True)).ended) == set(ids)
        assert scene.batch(scene.run("run-1"), 0) is Commit.COMMITTED

    assert EdgeScene.of(play, played(version)).batches() == {0}


@VERSIONS
def test_a_commit_by_hand_looks_again_while_coordinators_load(version: int) -> None:
    """The second transaction is 8 s younger than the first one, which brokers abort meanwhile: it
    must not be committed, when its coordinator is back, because both were open before.
    """

    def play(scene: EdgeScene) -> None:
        run, operator = scene.run("run-0"), scene.run("operator")
        scene.cluster.abort_scan_ms = 1_000
        plan = scene.plan(run)
        begun = scene.scheduler.now
        stage = Stage(
            scene.scheduler, lambda task, attempt: scene.launch(run, 0, task, attempt, plan)
        )
        stage.start(0)
        scene.scheduler.sleep(8_000)
        stage.start(1)
        assert stage.ends_well(2)
        scene.decides_and_dies(run, 0, plan, stage.messages)
        scene.scheduler.sleep(begun + 58_500 - scene.scheduler.now)
        loading = scene.cluster.control.answer(
            ApiKey.END_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, FOREVER
        )
        after = begun + 64_500 - scene.scheduler.now
        scene.timeline.after(after, lambda: setattr(loading, "times", loading.fired))
        done, told = scene.beside(
            operator.process, lambda: commit_by_hand(scene, operator, TIMEOUT_MS)
        )
        scene.scheduler.block(lambda: done.done, NEVER)
        assert loading.fired > 0
        (state,) = told
        assert isinstance(state, CommitState)
        assert (state.phase, state.last_done) == (Phase.DONE, -1)

    assert EdgeScene.of(play, played(version)).batches() == set()


@VERSIONS
def test_a_commit_beside_a_roll_forward_is_not_taken_for_age(version: int) -> None:
    """A driver ends its first transaction while the next start asks for the old ones: it is in no
    list of open ones any more, as if it had moved, and is committed. The rest must be, too.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        scene.decides_and_dies(run, 0, plan, messages)
        first = messages[0].prepared
        assert first is not None

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

    scene = EdgeScene.of(play, played(version))
    assert {task for _, task, _ in scene.visible()} == {0, 1}
