"""The named writes of this process: their run ids, the running writes, and the last writes.

A *named write* is a write of ``foreach_batch(name)`` or ``transaction(name)``. In one run of a
streaming query, all writes with one name share a run id. The commit log detects two writes with the
same name and different run ids. Two writes of one process may have the same run id, so
:class:`NamedWrites` detects two writes of one process with the same name.
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
    """The identity of a write of ``foreach_batch(name)`` or ``transaction(name)``.

    - ``servers`` are the bootstrap servers. They are compared as text, so two addresses of one
      cluster are different.
    - ``log_topic`` is the topic of the commit log.
    - ``key`` is the key in the commit log.
    """

    servers: str
    log_topic: str
    key: str


@dataclass(frozen=True, slots=True)
class Written:
    """The DataFrames of one micro-batch that are written under one name of ``foreach_batch`` or
    ``transaction``.

    - ``query_run`` is the id of the query's run, or empty if the query is unknown.
    - ``number`` is the micro-batch's id.
    - ``plans`` has a hash of each DataFrame's plan and options.
    """

    query_run: str
    number: int
    plans: Counter[int]


class _Run(NamedTuple):
    """A run id that :class:`NamedWrites` has generated. ``query_run`` identifies the run of the
    query that uses the run id (``CallingQuery.run``). It is empty if the query is unknown.
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
        ends. Raises ConfigError if another write with this identity is running, for example in
        another thread. The rows of both writes would be mixed.

        ``described`` is a text about this write, such as ``transaction('orders') at job.py:12 in
        thread MainThread``. The errors of other writes with the same identity show this text.
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

        ``query_run`` is empty if the query that writes is unknown. Then the write gets the last run
        id of its Spark session.
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
        run id. This method ends no transactions: the commit or the abort of the failed write ends
        them.
        """
        with self._lock:
            ended = self._found(place, query_run, session)
            self._runs = {
                n: one for n, one in self._runs.items() if not ended or one.id != ended.id
            }

    def check(self, place: Place, name: str, written: Written, *, whole: bool) -> None:
        """Raises ConfigError if this process has already written other DataFrames under the same
        name in the same micro-batch. Call this method before the write. Otherwise the sink would
        treat the write as a replay of the first write, and would not write its DataFrames.

        - ``place`` is the identity of the new write, and ``written`` describes it.
        - ``name`` is the name of the write, for the error.
        - ``whole`` is true if ``written`` has all DataFrames of the batch. If it is false, more
          DataFrames may follow.

        Writes of two different runs of the query are not compared here, because a restart changes
        the plans of the DataFrames. The commit log compares these writes.
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
        with the identity ``place``. In a repetition, the batch id is the same, and the last
        micro-batch contained all DataFrames of ``written``.
        """
        with self._lock:
            before = self._last.get(place)
        return (
            before is not None and before.number == written.number and written.plans <= before.plans
        )

    def wrote(self, place: Place, written: Written) -> None:
        with self._lock:
            self._last[place] = written
