"""Nothing stays open behind a clean end, and nothing is ended twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.foreach_batch import foreach_batch
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.committer import Commit
from tests.fakes.fake_cluster.codec import Request
from tests.simulation.edge_scene import PLANNED, EdgeScene, UntoldScene
from tests.simulation.seeded_cluster import NODES, ClusterFaults
from tests.simulation.spark_world import PREFIX, TIMEOUT_MS, Run, SparkLife

#: Of threads that repeat a version.
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in (2, 3))]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("batches_before", [0, 1, 3])
def test_an_abort_of_a_restarted_query_ends_its_killed_tasks(
    batches_before: int, version: int
) -> None:
    """Spark kills the task's process when all its rows are in Kafka: it says no goodbye."""

    def play(scene: EdgeScene) -> None:
        before = scene.run("run-0")
        for number in range(batches_before):
            scene.batch(before, number)
        run = scene.run("run-1")
        plan = scene.plan(run)
        good, killed = scene.attempts(run, batches_before, plan, 2)
        killed.worker.process.kill()
        assert good.message is not None
        assert len(scene.open_ids()) == 2
        scene.stop(run, batches_before, plan, [good.message])
        assert scene.open_ids() == []

    scene = EdgeScene.of(play, SparkLife(1, tasks=2, new_worker=1.0, transaction_version=version))
    assert scene.batches() == set(range(batches_before))


@pytest.mark.parametrize("version", [1, 2])
def test_an_id_missed_while_its_coordinator_moved_is_ended_next(
    version: int,
) -> None:
    """An id that moves is in no list for a moment. Its run died before its first commit, so
    that the log does not know it; that it planned before the take-over, its ids tell.
    """

    def play(scene: EdgeScene) -> None:
        dead = scene.run("run-dead")
        scene.write(dead, 0, scene.plan(dead))
        dead.process.kill()
        (orphan,) = scene.open_ids()
        run = scene.run("run-next")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)

        def move() -> None:
            node = scene.cluster.coordinator_of(orphan) % NODES + 1
            scene.cluster.move_coordinator(orphan, node, resigned_ms=2_000)

        listed = scene.before_send(run, lambda r: r.api == ApiKey.LIST_TRANSACTIONS, move)
        assert scene.commit(run, 0, plan, messages) is Commit.COMMITTED
        assert listed
        assert scene.open_ids() == [orphan]
        scene.scheduler.sleep(2_000)
        assert scene.batch(run, 1) is Commit.COMMITTED
        assert scene.open_ids() == []

    EdgeScene.of(play, SparkLife(1, tasks=1, transaction_version=version))


def test_an_abort_ends_what_superseded_runs_have_open() -> None:
    """Their batch was rolled forward, say, so that no commit came by that swept them."""

    def play(scene: EdgeScene) -> None:
        dead = scene.run("run-dead")
        scene.write(dead, 0, scene.plan(dead))
        dead.process.kill()
        (used,) = scene.open_ids()
        run = scene.run("run-next")
        scene.batch(run, 0)
        late = f"{used.rpartition('~')[0]}~5"
        scene.begin_foreign(late)
        plan = scene.plan(run)
        (only,) = scene.attempts(run, 1, plan, 1)
        assert only.message is not None
        assert late in scene.open_ids()
        scene.stop(run, 1, plan, [only.message])
        assert scene.open_ids() == []

    EdgeScene.of(play)


@pytest.mark.parametrize("done_before", [0, 1, 3])
def test_an_abort_of_a_named_job_ends_its_killed_tasks(
    done_before: int,
) -> None:
    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        for number in range(done_before):
            scene.job(run, scene.options(txnAppId="app", txnVersion=number), number)
        options = scene.options(txnAppId="app", txnVersion=done_before)
        with pytest.raises(KafkaError, match=PLANNED):
            scene.job(run, options, done_before, ends="fail")
        assert scene.open_ids() == []

    scene = UntoldScene.of(play, SparkLife(1, tasks=2, new_worker=1.0))
    assert scene.batches() == set(range(done_before))


def test_a_version_without_rows_leaves_its_run_alone() -> None:
    """What was left open in it (its sweep was refused, or a task came behind it) ends with the next
    version that has rows: another thread may be writing one now.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        options = [scene.options(txnAppId="app", txnVersion=number) for number in range(4)]
        scene.job(run, options[1], 1)
        (used, *_) = scene.data_ids()
        late = f"{used.rpartition('~')[0]}~9"
        scene.begin_foreign(late)
        scene.job(run, options[2], 2, rows=0)
        assert scene.open_ids() == [late]
        scene.job(run, options[3], 3)
        assert scene.open_ids() == []

    UntoldScene.of(play)


def test_a_version_without_rows_ends_superseded_runs() -> None:
    def play(scene: EdgeScene) -> None:
        options = [scene.options(txnAppId="app", txnVersion=number) for number in range(4)]
        scene.job(scene.run("driver 1"), options[1], 1)
        (used, *_) = scene.data_ids()
        scene.job(scene.run("driver 2"), options[2], 2)
        late = f"{used.rpartition('~')[0]}~9"
        scene.begin_foreign(late)
        scene.job(scene.run("driver 3"), options[3], 3, rows=0)
        assert scene.open_ids() == []

    UntoldScene.of(play)


def version_1_is_repeated(scene: EdgeScene, owner: Run, other: Run, rows: int = 2) -> None:
    """By ``other``, as ``owner`` is about to decide on version 2, whose transactions stay open."""
    options = [scene.options(txnAppId="app", txnVersion=number) for number in range(3)]
    scene.job(owner, options[0], 0)  # (one run are versions behind the first with rows)
    scene.job(owner, options[1], 1, rows=rows)

    def repeat() -> None:
        written = set(scene.open_ids()) & set(scene.data_ids())
        assert len(written) == 2
        scene.job(other, options[1], 1, rows=rows)
        assert written <= set(scene.open_ids())

    repeated = scene.before_send(owner, lambda r: r.api == ApiKey.END_TXN, repeat)
    scene.job(owner, options[2], 2)
    assert repeated
    assert scene.open_ids() == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_dropped_version_leaves_the_owners_next_one(version: int) -> None:
    """Another driver repeats version 1 while its owner commits version 2: had the owner decided
    by then, its rows would be lost.
    """

    def play(scene: EdgeScene) -> None:
        version_1_is_repeated(scene, scene.run("driver 1"), scene.run("driver 2"))

    scene = UntoldScene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("rows", [0, 2])
def test_a_version_dropped_in_a_thread_leaves_the_next_one(version: int, rows: int) -> None:
    """One driver: a thread repeats version 1, with or without rows, while another one commits
    version 2. Both are one run.
    """

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        version_1_is_repeated(scene, run, run, rows)

    scene = UntoldScene.of(play, SparkLife(1, tasks=2, transaction_version=version))
    assert scene.batches() == ({0, 1, 2} if rows else {0, 2})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_versions_repeated_in_threads_do_not_fail_the_next_one(seed: int, version: int) -> None:
    """Each opens the log, and shuts out who is about to write to it: plannings, too, while version
    2 is decided and not done. Brokers are slow.
    """
    repeating, repeats = 6, 6

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")

        def write(number: int, times: int = 1) -> None:
            for _ in range(times):
                scene.job(run, scene.options(txnAppId="app", txnVersion=number), number)

        write(1)
        threads = [scene.beside(run.process, lambda: write(1, repeats)) for _ in range(repeating)]
        threads.append(scene.beside(run.process, lambda: write(2)))
        scene.scheduler.block(lambda: all(thread.done for thread, _ in threads), NEVER)
        assert [told for _, told in threads] == [[None]] * len(threads)

    life = SparkLife(seed, tasks=1, transaction_version=version)
    life = replace(life, cluster=ClusterFaults(work_ms=50, append_ms=30))
    assert UntoldScene.of(play, life).batches() == {1, 2}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("how", ["aborted", "superseded"])
def test_a_repeated_version_needs_no_owner(how: str, version: int) -> None:
    """Version 1 is done, and its repetition has nothing to decide: that its run is aborted or
    superseded meanwhile does not fail it, with a hint that its rows are not visible.
    """

    def play(scene: EdgeScene) -> None:
        run, other = scene.run("driver"), scene.run("another")
        options = [scene.options(txnAppId="app", txnVersion=number) for number in (1, 2)]
        scene.job(run, options[0], 1)

        def meanwhile() -> None:
            if how == "superseded":
                scene.job(other, options[1], 2)
            else:
                with pytest.raises(KafkaError, match=PLANNED):
                    scene.job(run, options[1], 2, ends="fail")

        def opens_the_log(request: Request) -> bool:
            init = request.api == ApiKey.INIT_PRODUCER_ID
            return init and request.body.transactional_id.endswith("~~log")

        met = scene.before_send(run, opens_the_log, meanwhile)
        scene.job(run, options[0], 1)
        assert met

    found = UntoldScene.of(play, SparkLife(1, tasks=2, transaction_version=version)).batches()
    assert found == ({1, 2} if how == "superseded" else {1})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_failing_version_is_aborted_while_another_is_repeated(seed: int, version: int) -> None:
    """Threads that repeat version 1 shut the abort of version 2 out of the log, too."""
    repeating, repeats = 6, 6

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")

        def write(number: int, ends: str = "commit", times: int = 1) -> None:
            for _ in range(times):
                options = scene.options(txnAppId="app", txnVersion=number)
                scene.job(run, options, number, ends=ends)

        write(1)
        threads = [
            scene.beside(run.process, lambda: write(1, times=repeats)) for _ in range(repeating)
        ]
        failing, told = scene.beside(run.process, lambda: write(2, "fail"))
        scene.scheduler.block(lambda: failing.done, NEVER)
        assert PLANNED in str(told)
        assert scene.open_ids() == []
        scene.scheduler.block(lambda: all(thread.done for thread, _ in threads), NEVER)

    life = SparkLife(seed, tasks=2, transaction_version=version)
    life = replace(life, cluster=ClusterFaults(work_ms=50, append_ms=30))
    assert UntoldScene.of(play, life).batches() == {1}


@pytest.mark.parametrize("kind", [EdgeScene, UntoldScene])
def test_a_failing_micro_batch_of_foreach_batch_leaves_none_open(
    kind: type[EdgeScene],
) -> None:
    """The first two went well, the third one fails and is written again."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        write = foreach_batch("failing", **scene.options())
        for number in range(2):
            scene.micro_batch(run, write, number)
        with pytest.raises(KafkaError, match=PLANNED):
            scene.micro_batch(run, write, 2, ends="fail")
        assert scene.open_ids() == []
        scene.micro_batch(run, write, 2)
        assert scene.open_ids() == []

    scene = kind.of(play, SparkLife(1, tasks=2, new_worker=1.0))
    assert scene.batches() == {0, 1, 2}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("kind", [EdgeScene, UntoldScene])
def test_the_next_batch_of_a_name_ends_a_killed_drivers_orphans(
    kind: type[EdgeScene], version: int
) -> None:
    def play(scene: EdgeScene) -> None:
        write = foreach_batch("killed", **scene.options())
        dead = scene.run("driver 1")
        scene.micro_batch(dead, write, 0)
        scene.micro_batch(dead, write, 1, ends="kill")
        assert len(scene.open_ids()) == 2
        run = scene.run("driver 2")
        scene.micro_batch(run, write, 1)
        assert scene.open_ids() == []

    life = SparkLife(1, tasks=2, rows=2, transaction_version=version)
    scene = kind.of(play, life)
    assert scene.batches() == {0, 1}


def test_a_foreach_batch_needs_no_more_ids_than_twice_its_tasks() -> None:
    tasks = 2

    def play(scene: EdgeScene) -> None:
        run = scene.run("driver")
        write = foreach_batch("long", **scene.options())
        for number in range(40):
            scene.micro_batch(run, write, number)
        assert len(scene.data_ids()) <= 2 * tasks

    scene = EdgeScene.of(play, SparkLife(1, tasks=tasks, rows=2, new_worker=0.0))
    assert scene.batches() == set(range(40))


def test_two_names_of_foreach_batch_do_not_sweep_each_other() -> None:
    """Both are written in one micro-batch, from two threads, say."""

    def play(scene: EdgeScene) -> None:
        first, second = scene.run("driver 1"), scene.run("driver 2")
        one, two = (foreach_batch(f"of-two-{i}", **scene.options()) for i in (1, 2))
        for number in range(2):
            scene.micro_batch(first, one, number)
        scene.micro_batch(second, two, 0, ends="kill")
        left = scene.open_ids()
        assert len(left) == 1
        scene.micro_batch(first, one, 2)
        with pytest.raises(KafkaError, match=PLANNED):
            scene.micro_batch(first, one, 3, ends="fail")
        assert scene.open_ids() == left

    EdgeScene.of(play)


@pytest.mark.parametrize("dead_runs", [5, 33, 100])
def test_a_dead_run_is_swept_however_many_died_before_it(dead_runs: int) -> None:
    """Of each of those one id is known still, with nothing open."""

    def play(scene: EdgeScene) -> None:
        scene.batch(scene.run("run-0"), 0)
        for i in range(dead_runs):
            scene.cluster.transactions.initialize(
                f"{PREFIX}~run-old-{i:03}~w~0", TIMEOUT_MS, None, scene.cluster.now
            )
        dead = scene.run("run-dead")
        scene.write(dead, 1, scene.plan(dead))
        dead.process.kill()
        assert len(scene.open_ids()) == 1
        assert scene.batch(scene.run("run-next"), 1) is Commit.COMMITTED
        assert scene.open_ids() == []

    scene = EdgeScene.of(play)
    assert scene.batches() == {0, 1}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("warm", [True, False])
def test_an_orphan_is_ended_once_and_never_touched_again(warm: bool, version: int) -> None:
    """One beaten attempt in each micro-batch, whose worker ends: idle for a minute. A trigger of
    more than that has a new driver process for each commit, which remembers nothing.
    """
    #: By id, the commits that ended something under it.
    touched: Counter[str] = Counter()

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        for number in range(12):
            plan = scene.plan(run)
            winner = scene.launch(run, number, 0, 0, plan)
            loser = scene.launch(run, number, 0, 1, plan)
            scene.scheduler.block(lambda w=winner, o=loser: w.over and o.over, NEVER)
            assert winner.message is not None
            assert loser.message is not None
            ours = winner.message.prepared
            assert ours is not None
            watched = scene.watch()
            assert scene.commit(run, number, plan, [winner.message]) is Commit.COMMITTED
            assert scene.open_ids() == []
            ends = watched.of(ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN)
            ids = {request.body.transactional_id for request in ends}
            touched.update(i for i in ids if "~~" not in i and i != ours.transactional_id)
            scene.cluster.control.__dict__.pop("met_by")
            for worker in run.workers:
                worker.lost = True

    life = SparkLife(1, tasks=1, warm_driver=warm, new_worker=1.0, transaction_version=version)
    EdgeScene.of(play, life)
    assert len(touched) == 12
    assert set(touched.values()) == {1}, touched
