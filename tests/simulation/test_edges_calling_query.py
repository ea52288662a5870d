"""Frames of the session in which a query was started, written in its foreachBatch function: Spark
gives them that session's name, and the local properties of the stream's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from spark_kafka_sink import foreach_batch, transaction
from spark_kafka_sink.base.errors import KafkaError
from tests.fakes.jvm_session import RunningQuery, jvm_session
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.spark_sink import Frame

OUTER = "the session in which queries are started"


def _query(name: str) -> RunningQuery:
    """Its session is a clone of the outer one."""
    return RunningQuery(name, f"run of {name}", f"session of {name}")


class SessionFrame(Frame):
    """Of the session of that name, in the thread of ``query``'s micro-batch ``number``; in a
    thread of the user's own without them.
    """

    def __init__(
        self,
        save: Callable[[dict[str, str], int | None], None],
        session: str,
        active: list[RunningQuery],
        thread: tuple[RunningQuery, int] | None,
        plan: int,
    ) -> None:
        super().__init__(save, None, plan)
        self._name, self._active, self._thread = session, active, thread

    @property
    def sparkSession(self) -> Any:
        session = super().sparkSession
        session._jsparkSession = jvm_session(self._name, *self._active)
        of_thread = {}
        if self._thread is not None:
            query, number = self._thread
            of_thread = {"sql.streaming.queryId": query.id, "streaming.sql.batchId": str(number)}
        session.sparkContext = SimpleNamespace(getLocalProperty=of_thread.get)
        return session


def _saves(scene: Scene, run: Any, number: int) -> Callable[[dict[str, str], int | None], None]:
    """Writes rows that say that they are of batch ``number``."""

    def save(options: dict[str, str], part: int | None) -> None:
        scene.job(run, options, number, rows=0 if part is None else None)

    return save


def _writes(scene: Scene, way: str, frame: Any, number: int) -> None:
    if way == "foreach_batch":
        foreach_batch("name", **scene.options())(frame, number)
        return
    with transaction("name", number, **scene.options()) as block:
        block.write(frame)


@VERSIONS
@pytest.mark.parametrize("way", ["foreach_batch", "transaction"])
@pytest.mark.parametrize("sessions", ["bobo", "bbob", "obbo", "oo"])
@pytest.mark.life(tasks=2)
def test_frames_of_both_sessions_are_one_querys(scene: Scene, way: str, sessions: str) -> None:
    """``static.join(batch)`` is of the session of ``static``; "b" is the micro-batch's, "o" not."""
    run, query = scene.run("driver"), _query("query")
    for number, which in enumerate(sessions):
        session = query.session if which == "b" else OUTER
        save = _saves(scene, run, number)
        frame = SessionFrame(save, session, [query], (query, number), number)
        _writes(scene, way, frame, number)
    scene.ends_with(*range(len(sessions)))


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_thread_of_the_users_own_has_the_sessions_run(scene: Scene) -> None:
    run, query = scene.run("driver"), _query("query")
    for number in range(4):
        thread = None if number % 2 else (query, number)
        frame = SessionFrame(_saves(scene, run, number), OUTER, [query], thread, number)
        _writes(scene, "foreach_batch", frame, number)
    scene.ends_with(*range(4))


@VERSIONS
@pytest.mark.parametrize("is_outer", [True, False])
@pytest.mark.life(tasks=2)
def test_two_queries_of_one_name_hide_no_rows(scene: Scene, is_outer: bool) -> None:
    """Their micro-batches have equal numbers, rows and bytes, and no checkpointLocation."""
    run, queries = scene.run("driver"), [_query("a"), _query("b")]
    written: list[int] = []
    told: list[KafkaError] = []
    for number in range(3):
        for nth, query in enumerate(queries):
            batch = 10 * nth + number
            session = OUTER if is_outer else query.session
            save = _saves(scene, run, batch)
            frame = SessionFrame(save, session, queries, (query, number), batch)
            try:
                _writes(scene, "foreach_batch", frame, number)
            except KafkaError as error:
                told.append(error)
            else:
                written.append(batch)
    assert told
    scene.ends_with(*written)


@VERSIONS
@pytest.mark.life(tasks=2)
def test_the_outer_session_does_not_hide_a_new_checkpoint(scene: Scene) -> None:
    """The same name and number, equal rows and bytes, another query in another process."""
    for nth, query in enumerate((_query("a"), _query("b"))):
        run = scene.run(f"driver {nth}")
        frame = SessionFrame(_saves(scene, run, nth), OUTER, [query], (query, 0), nth)
        if nth:
            with pytest.raises(KafkaError, match="at batch 0 of query a, and query b"):
                _writes(scene, "foreach_batch", frame, 0)
        else:
            _writes(scene, "foreach_batch", frame, 0)
    scene.ends_with(0)


@VERSIONS
@pytest.mark.life(tasks=2)
def test_a_failed_write_ends_the_run_of_both_sessions(scene: Scene) -> None:
    run, query = scene.run("driver"), _query("query")

    def frame(number: int, session: str, ends: str = "commit") -> SessionFrame:
        def save(options: dict[str, str], _: int | None) -> None:
            scene.job(run, options, number, ends=ends)

        return SessionFrame(save, session, [query], (query, number), number)

    _writes(scene, "foreach_batch", frame(0, query.session), 0)
    _writes(scene, "foreach_batch", frame(1, OUTER), 1)
    with suppress(KafkaError):
        _writes(scene, "foreach_batch", frame(2, OUTER, "fail"), 2)
    _writes(scene, "foreach_batch", frame(2, query.session), 2)
    scene.ends_with(0, 1, 2)
