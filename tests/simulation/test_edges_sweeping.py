"""Nothing stays open behind a clean end, and nothing is ended twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_state import KEPT_RUNS, CommitState
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.simulation.scene import PLANNED, TOLD_OR_NOT, VERSIONS, Scene
from tests.simulation.seeded_cluster import NODES, ClusterFaults
from tests.simulation.spark_world import PREFIX, TIMEOUT_MS, Run

#: Of threads that repeat a version.
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]
SLOW = ClusterFaults(work_ms=50, append_ms=30)


@VERSIONS
@pytest.mark.parametrize("batches_before", [0, 1, 3])
@pytest.mark.life(tasks=2, new_worker=1.0)
def test_an_abort_of_a_restarted_query_ends_its_killed_tasks(
    scene: Scene, batches_before: int
) -> None:
    """Spark kills the task's process when all its rows are in Kafka: it says no goodbye."""
    before = scene.run("run-0")
    for number in range(batches_before):
        scene.batch(before, number)
    run = scene.run("run-1")
    plan = scene.plan(run)
    good, killed = scene.attempts(run, batches_before, plan, 2)
    killed.worker.process.kill()
    assert good.message is not None
    assert len(scene.open_ids()) == 2
    scene.abort(run, batches_before, plan, [good.message], tasks_may_run=True)
    assert scene.open_ids() == []
    scene.ends_with(*range(batches_before))


@VERSIONS
def test_an_id_missed_while_its_coordinator_moved_is_ended_next(scene: Scene) -> None:
    """An id that moves is in no list for a moment. Its run died before its first commit, so
    that the log does not know it; that it planned before the take-over, its ids tell.
    """
    scene.dies_undecided("run-dead", 0)
    (orphan,) = scene.open_ids()
    run = scene.run("run-next")
    written = scene.written(run, 0)

    def move() -> None:
        node = scene.cluster.coordinator_of(orphan) % NODES + 1
        scene.cluster.move_coordinator(orphan, node, resigned_ms=2_000)

    listed = scene.before_send(run, lambda r: r.api == ApiKey.LIST_TRANSACTIONS, move)
    assert scene.commit(*written) is Commit.COMMITTED
    assert listed
    assert scene.open_ids() == [orphan]
    scene.scheduler.sleep(2_000)
    assert scene.batch(run, 1) is Commit.COMMITTED
    assert scene.open_ids() == []


def test_an_abort_ends_what_superseded_runs_have_open(scene: Scene) -> None:
    """Their batch was rolled forward, say, so that no commit came by that swept them."""
    scene.dies_undecided("run-dead", 0)
    (used,) = scene.open_ids()
    run = scene.run("run-next")
    scene.batch(run, 0)
    late = f"{used.rpartition('~')[0]}~5"
    scene.begin_foreign(late)
    plan = scene.plan(run)
    (only,) = scene.attempts(run, 1, plan, 1)
    assert only.message is not None
    assert late in scene.open_ids()
    scene.abort(run, 1, plan, [only.message], tasks_may_run=True)
    assert scene.open_ids() == []


@pytest.mark.parametrize("done_before", [0, 1, 3])
@pytest.mark.life(tasks=2, new_worker=1.0)
def test_an_abort_of_a_named_job_ends_its_killed_tasks(scene: Scene, done_before: int) -> None:
    scene.tells_query = False
    run = scene.run("driver")
    for number in range(done_before):
        scene.version_of_job(run, number)
    with pytest.raises(KafkaError, match=PLANNED):
        scene.version_of_job(run, done_before, ends="fail")
    assert scene.open_ids() == []
    scene.ends_with(*range(done_before))


def test_a_version_without_rows_leaves_its_run_alone(scene: Scene) -> None:
    """What was left open in it (its sweep was refused, or a task came behind it) ends with the next
    version that has rows: another thread may be writing one now.
    """
    scene.tells_query = False
    run = scene.run("driver")
    scene.version_of_job(run, 1)
    (used, *_) = scene.data_ids()
    late = f"{used.rpartition('~')[0]}~9"
    scene.begin_foreign(late)
    scene.version_of_job(run, 2, rows=0)
    assert scene.open_ids() == [late]
    scene.version_of_job(run, 3)
    assert scene.open_ids() == []


def test_what_a_fenced_version_leaves_open_is_told(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread repeats version 1 before version 2 is recorded as done: this commit can't know
    whether the open transactions of its run are decided meanwhile. The next version ends them.
    """
    scene.tells_query = False
    run = scene.run("driver")
    scene.version_of_job(run, 1)
    (used, *_) = scene.data_ids()
    scene.version_of_job(run, 2)
    late = f"{used.rpartition('~')[0]}~9"
    ended: list[bool] = []

    def writes_done(request: Request) -> bool:
        if request.api == ApiKey.END_TXN:
            ended.append(request.body.transactional_id.endswith("~~log"))
        return ended == [True, False] and request.api == ApiKey.PRODUCE

    def meanwhile() -> None:
        scene.begin_foreign(late)
        scene.version_of_job(run, 1)

    met = scene.before_send(run, writes_done, meanwhile)
    scene.version_of_job(run, 3)
    assert met
    assert scene.open_ids() == [late]
    warned = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert [text for text in warned if "open transactions of its own run" in text], warned
    scene.version_of_job(run, 4)
    assert scene.open_ids() == []
    scene.ends_with(1, 2, 3, 4)


def test_a_version_without_rows_ends_superseded_runs(scene: Scene) -> None:
    scene.tells_query = False
    scene.version_of_job(scene.run("driver 1"), 1)
    (used, *_) = scene.data_ids()
    scene.version_of_job(scene.run("driver 2"), 2)
    late = f"{used.rpartition('~')[0]}~9"
    scene.begin_foreign(late)
    scene.version_of_job(scene.run("driver 3"), 3, rows=0)
    assert scene.open_ids() == []


def repeats_version_1(scene: Scene, run: Run) -> None:
    for _ in range(6):
        scene.version_of_job(run, 1)


def version_1_is_repeated(scene: Scene, owner: Run, other: Run, rows: int = 2) -> None:
    """By ``other``, as ``owner`` is about to decide on version 2, whose transactions stay open."""
    scene.version_of_job(owner, 0)  # (one run are versions behind the first with rows)
    scene.version_of_job(owner, 1, rows=rows)

    def repeat() -> None:
        written = set(scene.open_ids()) & set(scene.data_ids())
        assert len(written) == 2
        scene.version_of_job(other, 1, rows=rows)
        assert written <= set(scene.open_ids())

    repeated = scene.before_send(owner, lambda r: r.api == ApiKey.END_TXN, repeat)
    scene.version_of_job(owner, 2)
    assert repeated
    assert scene.open_ids() == []


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_dropped_version_leaves_the_owners_next_one(scene: Scene) -> None:
    """Another driver repeats version 1 while its owner commits version 2: had the owner decided
    by then, its rows would be lost.
    """
    scene.tells_query = False
    version_1_is_repeated(scene, scene.run("driver 1"), scene.run("driver 2"))
    scene.ends_with(0, 1, 2)


@VERSIONS
@pytest.mark.parametrize("rows", [0, 2])
@pytest.mark.life(tasks=2)
def test_a_version_dropped_in_a_thread_leaves_the_next_one(scene: Scene, rows: int) -> None:
    """One driver: a thread repeats version 1, with or without rows, while another one commits
    version 2. Both are one run.
    """
    scene.tells_query = False
    run = scene.run("driver")
    version_1_is_repeated(scene, run, run, rows)
    scene.ends_with(*({0, 1, 2} if rows else {0, 2}))


@VERSIONS
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.life(cluster=SLOW)
def test_versions_repeated_in_threads_do_not_fail_the_next_one(scene: Scene) -> None:
    """Each opens the log, and shuts out who is about to write to it: plannings, too, while version
    2 is decided and not done. Brokers are slow.
    """
    scene.tells_query = False
    run = scene.run("driver")
    scene.version_of_job(run, 1)
    repeated = [lambda: repeats_version_1(scene, run)] * 6
    told = scene.at_once(run, *repeated, lambda: scene.version_of_job(run, 2))
    assert not [error for error in told if isinstance(error, KafkaError)]
    scene.ends_with(1, 2)


@VERSIONS
@pytest.mark.parametrize("how", ["aborted", "superseded"])
@pytest.mark.life(tasks=2)
def test_a_repeated_version_needs_no_owner(scene: Scene, how: str) -> None:
    """Version 1 is done, and its repetition has nothing to decide: that its run is aborted or
    superseded meanwhile does not fail it, with a hint that its rows are not visible.
    """
    scene.tells_query = False
    run, other = scene.run("driver"), scene.run("another")
    scene.version_of_job(run, 1)

    def meanwhile() -> None:
        if how == "superseded":
            scene.version_of_job(other, 2)
        else:
            with pytest.raises(KafkaError, match=PLANNED):
                scene.version_of_job(run, 2, ends="fail")

    def opens_the_log(request: Request) -> bool:
        init = request.api == ApiKey.INIT_PRODUCER_ID
        return init and request.body.transactional_id.endswith("~~log")

    met = scene.before_send(run, opens_the_log, meanwhile)
    scene.version_of_job(run, 1)
    assert met
    scene.ends_with(1, *([2] if how == "superseded" else []))


@VERSIONS
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.life(tasks=2, cluster=SLOW)
def test_a_failing_version_is_aborted_while_another_is_repeated(scene: Scene) -> None:
    """Threads that repeat version 1 shut the abort of version 2 out of the log, too."""
    scene.tells_query = False
    run = scene.run("driver")
    scene.version_of_job(run, 1)
    threads = [scene.beside(run.process, lambda: repeats_version_1(scene, run)) for _ in range(6)]
    failing, told = scene.beside(run.process, lambda: scene.version_of_job(run, 2, ends="fail"))
    scene.wait(lambda: failing.done)
    assert PLANNED in str(told)
    assert scene.open_ids() == []
    scene.wait(lambda: all(thread.done for thread, _ in threads))
    scene.ends_with(1)


@TOLD_OR_NOT
@pytest.mark.life(tasks=2, new_worker=1.0)
def test_a_failing_micro_batch_of_foreach_batch_leaves_none_open(scene: Scene) -> None:
    """The first two went well, the third one fails and is written again."""
    micro_batch = scene.foreach_batch("failing")
    for number in range(2):
        micro_batch(number)
    with pytest.raises(KafkaError, match=PLANNED):
        micro_batch(2, ends="fail")
    assert scene.open_ids() == []
    micro_batch(2)
    assert scene.open_ids() == []
    scene.ends_with(0, 1, 2)


@VERSIONS
@TOLD_OR_NOT
@pytest.mark.life(tasks=2, rows=2)
def test_the_next_batch_of_a_name_ends_a_killed_drivers_orphans(scene: Scene) -> None:
    micro_batch = scene.foreach_batch("killed")
    micro_batch(0)
    micro_batch(1, ends="kill")
    assert len(scene.open_ids()) == 2
    scene.foreach_batch("killed")(1)
    assert scene.open_ids() == []
    scene.ends_with(0, 1)


@pytest.mark.life(tasks=2, rows=2, new_worker=0.0)
def test_a_foreach_batch_needs_no_more_ids_than_twice_its_tasks(scene: Scene) -> None:
    micro_batch = scene.foreach_batch("long")
    for number in range(12):
        micro_batch(number)
    assert len(scene.data_ids()) <= 2 * scene.life.tasks
    scene.ends_with(*range(12))


def test_two_names_of_foreach_batch_do_not_sweep_each_other(scene: Scene) -> None:
    """Both are written in one micro-batch, from two threads, say."""
    one, two = scene.foreach_batch("of-two-1"), scene.foreach_batch("of-two-2")
    for number in range(2):
        one(number)
    two(0, ends="kill")
    left = scene.open_ids()
    assert len(left) == 1
    one(2)
    with pytest.raises(KafkaError, match=PLANNED):
        one(3, ends="fail")
    assert scene.open_ids() == left


@pytest.mark.parametrize("dead_runs", [5, 33, 100])
def test_a_dead_run_is_swept_however_many_died_before_it(scene: Scene, dead_runs: int) -> None:
    """Of each of those one id is known still, with nothing open."""
    scene.batch(scene.run("run-0"), 0)
    for i in range(dead_runs):
        scene.cluster.transactions.initialize(
            f"{PREFIX}~run-old-{i:03}~g2.w~0", TIMEOUT_MS, None, scene.cluster.now
        )
    scene.dies_undecided("run-dead", 1)
    assert len(scene.open_ids()) == 1
    assert scene.batch(scene.run("run-next"), 1) is Commit.COMMITTED
    assert scene.open_ids() == []
    scene.ends_with(0, 1)


@VERSIONS
@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.life(new_worker=1.0)
def test_an_orphan_is_ended_once_and_never_touched_again(scene: Scene, warm: bool) -> None:
    """One beaten attempt in each micro-batch, whose worker ends: idle for a minute. A trigger of
    more than that has a new driver process for each commit, which remembers nothing.
    """
    #: By id, the commits that ended something under it.
    touched: Counter[str] = Counter()
    scene.life = replace(scene.life, warm_driver=warm)
    run = scene.run("run-0")
    for number in range(12):
        plan = scene.plan(run)
        winner, _ = scene.speculative_pair(run, number, plan)
        ours = winner.prepared
        assert ours is not None
        watched = scene.watch()
        assert scene.commit(run, number, plan, [winner]) is Commit.COMMITTED
        assert scene.open_ids() == []
        ends = watched.of(ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN)
        ids = {request.body.transactional_id for request in ends}
        touched.update(i for i in ids if "~~" not in i and i != ours.transactional_id)
        scene.control.__dict__.pop("met_by")
        for worker in run.workers:
            worker.lost = True
    assert len(touched) == 12
    assert set(touched.values()) == {1}, touched


# -- an abort without a message --------------------------------------------------------------------


def aborts_without_a_message(scene: Scene, of_run: str) -> tuple[str, ...]:
    with scene.driver_side(scene.run("aborter")) as driver:
        return driver.abort_unknown(PREFIX, lambda one: one.run == of_run)


def test_an_abort_without_messages_leaves_a_decided_run_alone(scene: Scene) -> None:
    """All that the run has open is decided: no transaction of the aborted batch is open."""
    written = scene.second_batch()
    scene.decides_and_dies(*written)
    before = scene.logged(PREFIX)
    assert aborts_without_a_message(scene, "run-0") == ()
    assert scene.logged(PREFIX) == before
    assert scene.batch(scene.run("run-1"), 1) is Commit.ALREADY_DONE
    scene.ends_with(0, 1)


def test_an_abort_without_messages_names_no_run_that_is_superseded(scene: Scene) -> None:
    """The generation of the run's ids shows it. The list of runs is full: one more would raise the
    generation, and stop the run that has planned at this one.
    """
    scene.batch(scene.run("run-0"), 0)
    planned = scene.logged(PREFIX).generation
    scene.batch(scene.run("run-1"), 1)
    for n in range(KEPT_RUNS):
        aborted = partial(CommitState.with_aborted_run, run_id=f"run-old-{n}", now_ms=1)
        scene.change_log(PREFIX, aborted)
    healthy = scene.written(scene.run("run-2"), 2)
    late = f"{PREFIX}~run-late~g{planned}.w~0"
    scene.begin_foreign(late)
    assert aborts_without_a_message(scene, "run-late") == (late,)
    assert scene.commit(*healthy) is Commit.COMMITTED
    scene.ends_with(0, 1, 2)
