"""Two processes end one decision while its coordinators load: all of it is committed, or none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode, PartialCommitError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.committer import Commit
from spark_kafka_sink.transactions.transactional_ids import parse
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.edge_scene import EdgeScene
from tests.simulation.spark_scene import Scene, of_the_log
from tests.simulation.spark_world import SparkLife

TASKS = 6
VERSIONS = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture(autouse=True)
def _patient_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    """delivery.timeout.ms as it is shipped, above the transactions' own time-out."""
    given = Scene.config

    def config(self: Scene, client_id: str) -> object:
        return replace(given(self, client_id), delivery_timeout_ms=120_000)

    monkeypatch.setattr(Scene, "config", config)


@VERSIONS
@pytest.mark.parametrize(
    ("comes_ms", "back_ms"),
    [
        (20_000, 34_000),
        pytest.param(30_000, 53_500, marks=pytest.mark.long),
        (46_000, 46_400),
        pytest.param(52_900, 53_000, marks=pytest.mark.long),
        (53_000, 54_500),
    ],
)
def test_a_start_beside_a_driver_tears_no_decision(
    comes_ms: int, back_ms: int, version: int
) -> None:
    """The driver was never away; the start finds its decision ``comes_ms`` old, and about to time
    out. The coordinators are back at ``back_ms``, one after another.
    """

    def play(scene: EdgeScene) -> None:
        old, new = scene.run("run-0"), scene.run("run-1")
        plan = scene.plan(old)
        messages = scene.write(old, 0, plan)
        begun = scene.scheduler.now
        loading = [
            scene.cluster.control.answer(
                ApiKey.END_TXN,
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                FOREVER,
                where=lambda r, nth=nth: not of_the_log(r) and _number(r) % 3 == nth,
            )
            for nth in range(3)
        ]
        one, told = scene.beside(old.process, lambda: scene.commit(old, 0, plan, messages))
        scene.scheduler.block(lambda: loading[0].fired > 0, NEVER)
        for nth, fault in enumerate(loading):
            after = begun + back_ms + 150 * nth - scene.scheduler.now
            scene.timeline.after(after, lambda fault=fault: setattr(fault, "times", fault.fired))
        scene.scheduler.sleep(begun + comes_ms - scene.scheduler.now)
        two, planned = scene.beside(new.process, lambda: scene.plan(new))
        scene.scheduler.block(lambda: one.done and two.done, NEVER)
        assert not any(isinstance(one, PartialCommitError) for one in (*told, *planned))
        seen = {task for _, task, _ in scene.visible()}
        assert seen == (set(range(TASKS)) if told == [Commit.COMMITTED] else set())

    EdgeScene.of(play, SparkLife(1, tasks=TASKS, transaction_version=version))


@VERSIONS
def test_what_is_committed_is_not_committed_again(version: int) -> None:
    """One coordinator loads for longer than the lease; the others have committed at once."""

    def play(scene: EdgeScene) -> None:
        run = scene.run("run-0")
        plan = scene.plan(run)
        messages = scene.write(run, 0, plan)
        prepared = [m.prepared for m in messages if m.prepared is not None]
        slow, *others = [one.transactional_id for one in prepared]
        loading = scene.cluster.control.answer(
            ApiKey.END_TXN,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            FOREVER,
            where=lambda r: r.body.transactional_id == slow,
        )
        scene.timeline.after(14_000, scene.cluster.control.clear)
        watched = scene.watch()
        assert scene.commit(run, 0, plan, messages) is Commit.COMMITTED
        assert loading.fired
        ended = [request.body.transactional_id for request in watched.of(ApiKey.END_TXN)]
        assert {ended.count(one) for one in others} == {1}

    scene = EdgeScene.of(play, SparkLife(1, tasks=TASKS, transaction_version=version))
    assert scene.batches() == {0}


def _number(request: Request) -> int:
    found = parse(request.body.transactional_id)
    assert found is not None
    return found.number
