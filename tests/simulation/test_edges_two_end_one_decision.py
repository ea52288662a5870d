"""Two processes end one decision while its coordinators load: all of it is committed, or none."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import PartialCommitError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import parse
from tests.fakes.fake_cluster.codec import Request
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_requests import of_data, of_id

TASKS = 6
pytestmark = [VERSIONS, pytest.mark.life(tasks=TASKS)]


@pytest.fixture
def scene(scene: Scene) -> Scene:
    """delivery.timeout.ms as it is shipped, above the transactions' own time-out."""
    scene.changes = {"delivery_timeout_ms": 120_000}
    return scene


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
    scene: Scene, comes_ms: int, back_ms: int
) -> None:
    """The driver was never away; the start finds its decision ``comes_ms`` old, and about to time
    out. The coordinators are back at ``back_ms``, one after another.
    """
    old, new = scene.run("run-0"), scene.run("run-1")
    written = scene.written(old, 0)
    begun = scene.scheduler.now
    loading = [
        scene.coordinators_load(lambda r, nth=nth: of_data(r) and _number(r) % 3 == nth)
        for nth in range(3)
    ]
    one, told = scene.beside(old.process, lambda: scene.commit(*written))
    scene.wait(lambda: loading[0].fired)
    for nth, fault in enumerate(loading):
        after = begun + back_ms + 150 * nth - scene.scheduler.now
        scene.timeline.after(after, fault.stop)
    scene.scheduler.sleep(begun + comes_ms - scene.scheduler.now)
    two, planned = scene.beside(new.process, lambda: scene.plan(new))
    scene.wait(lambda: one.done and two.done)
    assert not any(isinstance(one, PartialCommitError) for one in (*told, *planned))
    seen = {task for _, task, _ in scene.visible()}
    assert seen == (set(range(TASKS)) if told == [Commit.COMMITTED] else set())


def test_what_is_committed_is_not_committed_again(scene: Scene) -> None:
    """One coordinator loads for longer than the lease; the others have committed at once."""
    written = scene.first_batch()
    slow, *others = written.ids
    loading = scene.coordinators_load(of_id(slow))
    scene.timeline.after(14_000, scene.control.clear)
    watched = scene.watch()
    assert scene.commit(*written) is Commit.COMMITTED
    assert loading.fired
    ended = [request.body.transactional_id for request in watched.of(ApiKey.END_TXN)]
    assert {ended.count(one) for one in others} == {1}
    scene.ends_with(0)


def _number(request: Request) -> int:
    found = parse(request.body.transactional_id)
    assert found is not None
    return found.number
