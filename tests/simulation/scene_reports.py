"""Reports of a scene: which of them there are, and events around the commit and abort of a batch.

The fixtures ``topic``, ``local`` and ``cut_off`` hold in the module that imports them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.plan import planned_batch
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.kept_reports import kept
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import Scene
from tests.simulation.scene_requests import of_data
from tests.simulation.spark_tasks import Attempt
from tests.simulation.spark_world import Run

REPORTS = "reports"


@pytest.fixture(autouse=True)
def topic(scene: Scene) -> None:
    scene.cluster.create_topic(REPORTS, 1)


@pytest.fixture(autouse=True)
def local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Spark's driver keeps the last report."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a commit is killed before it publishes its report: Spark aborts the batch."""
    published: list[object] = []

    def first_is_lost(*args: object) -> None:
        published.append(args)
        if len(published) == 1:
            raise KafkaError("killed")
        publish(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(planned_batch, "publish", first_is_lost)


def last_outcome() -> str:
    return str(json.loads(kept(None) or "")["outcome"])


def reports(scene: Scene) -> list[tuple[int, str]]:
    """The rows and the outcome of each report, as read_committed shows them."""
    (log,) = scene.cluster.topics[REPORTS].partitions
    found = [json.loads(value or b"") for value in log.values(committed=True)]
    return [(report["rows"], report["outcome"]) for report in found]


def outcomes(scene: Scene) -> list[str]:
    """The outcome of each report in the topic."""
    return [outcome for _, outcome in reports(scene)]


def beside(scene: Scene, run: Run, *calls: Callable[[], object]) -> None:
    """In the process of ``run``, which has names of its own."""

    def all_calls() -> None:
        for call in calls:
            call()

    thread, told = scene.beside(run.process, all_calls)
    scene.wait(lambda: thread.done)
    assert told == [None], told


def when_written(scene: Scene, run: Run, then: Callable[[], object]) -> None:
    """``then`` runs when the tasks of the first write of ``run`` have ended."""
    attempts, ran = scene.attempts, list[object]()

    def attempts_and_then(of: Run, *args: Any, **how: Any) -> list[Attempt]:
        found = attempts(of, *args, **how)
        if of is run and not ran:
            ran.append(then())
        return found

    scene.attempts = attempts_and_then  # type: ignore[assignment]


def fails(write: Callable[[], object], match: str) -> Callable[[], None]:
    def call() -> None:
        with pytest.raises(KafkaError, match=match):
            write()

    return call


def before_abort(monkeypatch: pytest.MonkeyPatch, then: Callable[[], object]) -> None:
    """``then`` comes between the end of the commit's process and Spark's abort."""
    abort = PlannedBatch.abort

    def late(batch: PlannedBatch, messages: Any, batch_id: int | None = None) -> None:
        monkeypatch.setattr(PlannedBatch, "abort", abort)
        then()
        abort(batch, messages, batch_id)

    monkeypatch.setattr(PlannedBatch, "abort", late)


def noted_commits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[PlannedBatch, Any]]:
    """Each commit that Spark begins: the batch, and the tasks' messages."""
    commits: list[tuple[PlannedBatch, Any]] = []
    commit = PlannedBatch.commit

    def noted(batch: PlannedBatch, messages: Any, batch_id: int | None = None) -> None:
        commits.append((batch, messages))
        commit(batch, messages, batch_id)

    monkeypatch.setattr(PlannedBatch, "commit", noted)
    return commits


def ends_a_report(request: Request) -> bool:
    """Whether ``request`` ends the transaction with a report."""
    return ".report" in str(request.body.transactional_id)


def ends_rows(request: Request) -> bool:
    """Whether ``request`` ends the transaction of a task."""
    return of_data(request) and not ends_a_report(request)


def time_out_unended(scene: Scene, fits: Callable[[Request], bool], most: int) -> list[str]:
    """No EndTxn arrives of the first ``most`` transactions that ``fits``. Five seconds after the
    first EndTxn of the commit, brokers abort these transactions, as after their timeout. Returns
    the list that gets their ids.
    """
    lost: list[str] = []
    begun: list[int] = []

    def is_dropped(request: Request) -> bool:
        if of_data(request) and not begun:
            begun.append(scene.cluster.now)
            scene.after(5_000, time_out)
        one = request.body.transactional_id
        if fits(request) and one not in lost and len(lost) < most:
            lost.append(one)
        return one in lost

    def time_out() -> None:
        coordinator = scene.cluster.transactions
        version = 2 if scene.life.transaction_version == 2 else 0
        for one in lost:
            found = coordinator.transactions[one]
            who = (found.producer_id, found.epoch)
            coordinator.end(one, who, commit=False, version=version, now=scene.cluster.now)
        scene.control.clear()

    scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=is_dropped)
    return lost
