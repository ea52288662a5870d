"""The named writes of this process: their run ids, the running writes, and the last writes.

A *named write* is a write of ``foreach_batch(name)`` or ``transaction(name)``. All writes with one
name, in one run of a streaming query, share a run id. If two writes with the same name have
different run ids, the commit log detects this. But two writes of one process may have the same run
id. So :class:`NamedWrites` detects two writes of one process with the same name.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from spark_kafka_sink.base.errors import ConfigError

#: For a write that does not name its query.
SAYS_REPLAY: Final = (
    "in a thread take the DataFrame from batch_df.sparkSession, which identifies its query; if it "
    "is the same write again, set verifyReplays=false for this run"
)


class Place(NamedTuple):
    """The identity of a write of ``foreach_batch(name)`` or ``transaction(name)``: the bootstrap
    servers, the topic of the commit log, and the key in the commit log.

    The bootstrap servers are compared as text. So two writes with different addresses of one
    cluster have different identities.
    """

    servers: str
    log_topic: str
    key: str


@dataclass(frozen=True, slots=True)
class Written:
    """The DataFrames of one micro-batch that are written under one name. The user has given this
    name to ``foreach_batch`` or ``transaction``. ``number`` is the micro-batch's id. ``plans`` has
    a hash of each DataFrame's plan and options. ``query_run`` is the id of the query's run, or
    empty if the query is unknown.
    """

    query_run: str
    number: int
    plans: Counter[int]


class _Run(NamedTuple):
    """A run id that :class:`NamedWrites` has generated, and the query that uses it. ``id`` is the
    run id. ``query_run`` identifies the run of the query (``CallingQuery.run``), and is empty if
    the query is unknown.
    """

    id: str
    query_run: str


class NamedWrites:
    """For each name of ``foreach_batch`` and ``transaction`` in this process: its run id, its
    running write, and the micro-batch that was written last. ``_lock`` guards all fields.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: A run id has up to two entries: by place and run of the query, by place and session.
        self._runs: dict[tuple[Place, str], _Run] = {}
        self._open: dict[Place, str] = {}
        self._last: dict[Place, Written] = {}

    @contextmanager
    def open(self, place: Place, described: str) -> Iterator[None]:
        """Registers the write with the identity ``place`` as running, until the ``with`` block
        ends. Raises ConfigError if another write with this identity is running, because the rows of
        both would be mixed. For example, two threads or two queries may use one name.

        ``described`` is a text about this write, such as ``transaction('orders') at job.py:12 in
        thread MainThread``. If another write with the same identity starts meanwhile, the error of
        that write shows this text.
        """
        with self._lock:
            other = self._open.setdefault(place, described)
            if other is not described:
                raise ConfigError(
                    f"{described} begins while {other} is running; they have one name, so their "
                    "rows would be mixed",
                    hint="give each query, and each block or write that runs at the same time, its "
                    "own name",
                )
        try:
            yield
        finally:
            with self._lock:
                del self._open[place]

    def run(self, place: Place, query_run: str, session: str) -> str:
        """The run id of a named write. In one run of a query, all writes with a name get the same
        run id, until :meth:`end` is called.

        If ``query_run`` is empty, the query that writes is unknown. In that case, the write gets
        the last run id of its Spark session.
        """
        with self._lock:
            found = self._found(place, query_run, session) or _Run(uuid.uuid4().hex, query_run)
            if query_run:
                found = self._runs[place, query_run] = found._replace(query_run=query_run)
            self._runs[place, session] = found
            return found.id

    def _found(self, place: Place, query_run: str, session: str) -> _Run | None:
        of_session = self._runs.get((place, session))
        if not query_run:
            return of_session
        # (Several queries may have been started in the same session.)
        is_others = of_session is not None and of_session.query_run != ""
        return self._runs.get((place, query_run), None if is_others else of_session)

    def end(self, place: Place, query_run: str, session: str) -> None:
        """Forgets the run id of a failed write, so that the next write with this name gets a new
        run id. Ends no transactions: the commit or the abort of the failed write does that.
        """
        with self._lock:
            ended = self._found(place, query_run, session)
            self._runs = {
                n: one for n, one in self._runs.items() if not ended or one.id != ended.id
            }

    def check(self, place: Place, name: str, written: Written, *, whole: bool) -> None:
        """Raises ConfigError if this process has already written different DataFrames with the
        identity ``place`` and with the batch id of the new write. ``written`` describes the new
        write, which has not begun yet. ``name`` is the name of the write, for the error.

        Without this error, the sink would treat the write as a replay of the finished batch, and
        would not write the new DataFrames. ``whole`` is true if ``written`` has all DataFrames of
        the batch. If it is false, more DataFrames may follow.

        A restart of the query changes the plans of its DataFrames. So two writes of different runs
        of the query are not compared here, but by the commit log.
        """
        with self._lock:
            before = self._last.get(place)
        if before is None or before.number != written.number:
            return
        runs = {before.query_run, written.query_run}
        if len(runs) == 2 and "" not in runs:
            return
        if written.plans == before.plans or (not whole and written.plans <= before.plans):
            return
        raise ConfigError(
            f"'{name}' wrote another DataFrame in micro-batch {written.number} already (or this "
            "DataFrame with other options), so it would count as done, and none of its rows would "
            "be written",
            hint="give each write in a foreachBatch function a different name, or make them "
            "one transaction (spark_kafka_sink.transaction)"
            + ("" if written.query_run else f"; {SAYS_REPLAY}"),
        )

    def repeats(self, place: Place, written: Written) -> bool:
        """Whether the write ``written`` repeats the last micro-batch that this process has written
        with the identity ``place``: both have the same batch id, and the last micro-batch contained
        all DataFrames of ``written``.
        """
        with self._lock:
            before = self._last.get(place)
        return (
            before is not None and before.number == written.number and written.plans <= before.plans
        )

    def wrote(self, place: Place, written: Written) -> None:
        with self._lock:
            self._last[place] = written
