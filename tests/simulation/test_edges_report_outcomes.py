"""Reports of a commit beside its abort: which of them there are, and which counts."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.errors import IllegalStateError
from spark_kafka_sink.config.sink_config import TXN_CONTEXT
from spark_kafka_sink.datasource.foreach_batch import Transaction, transaction
from spark_kafka_sink.datasource.write.write_context import WriteContext
from tests.simulation import test_edges_reports as reporting
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.test_edges_reports import REPORTS, last_outcome, reports

pytestmark = [VERSIONS, pytest.mark.life(tasks=2, rows=2, new_worker=1.0)]
topic, local = reporting.topic, reporting.local


def outcomes(scene: Scene) -> list[str]:
    """Of the reports in the topic."""
    return [outcome for _, outcome in reports(scene)]


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

        t._check_plans = slow  # type: ignore[method-assign]

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
