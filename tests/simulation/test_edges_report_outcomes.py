"""Reports of a commit beside its abort: which of them there are, and which counts."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.errors import IllegalStateError, KafkaError
from spark_kafka_sink.config.sink_config import TXN_CONTEXT
from spark_kafka_sink.datasource.foreach_batch import Transaction, foreach_batch, transaction
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation import scene_reports
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.scene_reports import (
    REPORTS,
    before_abort,
    beside,
    ends_rows,
    last_outcome,
    noted_commits,
    outcomes,
    time_out_unended,
)
from tests.simulation.scene_requests import of_data

pytestmark = [VERSIONS, pytest.mark.life(tasks=2, rows=2, new_worker=1.0)]
topic, local = scene_reports.topic, scene_reports.local


def test_an_abort_finds_a_report_that_another_job_replaced(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job in another thread of the driver, with the same options, ends between the failed commit
    and its abort.
    """
    options = scene.options(reportTopic=REPORTS)

    def another_job() -> None:
        run = scene.run("driver")
        beside(scene, run, lambda: scene.job(run, options, 1))

    before_abort(monkeypatch, another_job)
    time_out_unended(scene, ends_rows, 1)
    with pytest.raises(KafkaError, match="committed in part"):
        scene.job(scene.run("driver"), options, 0)
    assert [one for one in outcomes(scene) if one != "committed"] == ["partial"]


def test_the_last_report_of_a_commit_beside_its_abort_is_its_own(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user stops a query that hangs. The abort finds the decision, and the commit goes on, and
    ends well. Its report has the time of its begin, which is before the abort.
    """
    run, stopped = scene.run("driver"), scene.run("driver")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    silent = scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
    commits = noted_commits(monkeypatch)
    thread, told = scene.beside(run.process, lambda: write(scene.frame(run, 0), 0))
    scene.wait(lambda: silent.fired)
    (batch, messages) = commits[0]
    with scene.driving(stopped):
        batch.abort(messages)
    assert last_outcome() == "unknown"
    scene.control.clear()
    scene.wait(lambda: thread.done)
    assert told == [None]
    assert last_outcome() == "committed"
    scene.ends_with(0)


# -- a thread commits a block, and the code of the block raises ------------------------------------


def raises_beside_its_commit(scene: Scene, *, begun: bool) -> object:
    """A block whose code raises while a thread is about to commit it. The write that aborts the
    block starts when the thread has ended. Gives what the thread raised, or None.

    ``begun``: the thread has begun to commit the block, when the code raises.
    """
    run = scene.run("driver")
    frame = scene.frame(run, 0)
    save, threads, met = frame._save, list[Any](), list[str]()

    def until_it_raises() -> None:
        met.append("commit")
        scene.wait(lambda: "abort" in met)

    def in_this_order(options: dict[str, str], part: int | None) -> None:
        options = dict(options)
        if part is None and WriteContext.of_option(options[TXN_CONTEXT]).abort:
            met.append("abort")
            scene.wait(lambda: threads[0][0].done)
        elif part is None and begun:
            until_it_raises()
        save(options, part)

    def slowly(t: Transaction) -> None:
        check = t._check_plans

        def slow(*args: Any, **how: Any) -> None:
            check(*args, **how)
            until_it_raises()

        t._check_plans = slow

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            frame._save = in_this_order
            t.write(frame)
            if not begun:
                slowly(t)
            threads.append(scene.beside(run.process, t.commit))
            scene.wait(lambda: "commit" in met)
            raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        block()
    return threads[0][1][0]


def test_a_block_that_a_thread_commits_is_not_aborted(scene: Scene) -> None:
    assert raises_beside_its_commit(scene, begun=True) is None
    assert (outcomes(scene), last_outcome()) == (["committed"], "done before")
    scene.ends_with(0)


def test_a_block_that_is_aborted_is_not_committed_by_a_thread(scene: Scene) -> None:
    """The thread had not begun the commit. (The block was committed, and reported as `aborted`.)"""
    raised = raises_beside_its_commit(scene, begun=False)
    assert isinstance(raised, IllegalStateError)
    assert (outcomes(scene), last_outcome()) == (["aborted"], "aborted")
    scene.ends_with()
