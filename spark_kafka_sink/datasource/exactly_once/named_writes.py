"""Generates the run ids of the named writes of this process, and refuses some named writes.

A *named write* is a write of ``foreach_batch(name)`` or ``transaction(name)``. In one run of a
streaming query, all writes with the same name get the same run id. The commit log compares run ids,
so it detects two queries that use one name.

The commit log may treat two writes with the same name and the same run id as one write. So
:class:`NamedWrites` refuses a named write in two cases:

- Another write with the same name is running in this process.
- This process has already written other DataFrames with the same name in the same micro-batch.
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

#: The hint for a write that does not name its query.
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
    """The DataFrames that one micro-batch writes with the same name. The name is the argument of
    ``foreach_batch`` or ``transaction``.

    - ``query_run`` is ``CallingQuery.run`` of the query that makes the write. It is empty if the
      query is unknown.
    - ``number`` is the micro-batch's id.
    - ``plans`` has a hash of each DataFrame's plan and options.
    """

    query_run: str
    number: int
    plans: Counter[int]


class _Run(NamedTuple):
    """A run id that :class:`NamedWrites` has generated.

    - ``id`` is the run id. The writes pass this id to the commit log.
    - ``query_run`` is ``CallingQuery.run`` of the query that makes the writes. It is empty if the
      query is unknown.
    """

    id: str
    query_run: str


class NamedWrites:
    """The named writes of this process. For each name, this class stores the run ids, the running
    write, and the micro-batch that was written last. ``_lock`` guards all fields.
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
        another thread.

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
        """Returns the run id for a write with the identity ``place``. In one run of a query, all
        writes with the same identity get the same run id. After a call of :meth:`end`, the next
        write gets a new run id.

        - ``query_run`` is ``CallingQuery.run`` of the query that makes the write. It is empty if
          the query is unknown. Then the result is the run id of the last write with the same
          identity and ``session``.
        - ``session`` identifies the Spark session of the write.
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
        """Forgets the run id of a failed write, so that the next write with the identity ``place``
        gets a new run id. Does not abort the transactions of the failed write.
        """
        with self._lock:
            ended = self._found(place, query_run, session)
            self._runs = {
                n: one for n, one in self._runs.items() if not ended or one.id != ended.id
            }

    def check(self, place: Place, name: str, written: Written, *, whole: bool) -> None:
        """Raises ConfigError if the last write under the same name had other DataFrames, but the
        same micro-batch. Without this error, the sink could treat the new write as a replay, and
        its rows would be lost. Call this method before the new write.

        - ``place`` is the identity of the new write, and ``name`` is its name for the error.
        - ``written`` has the DataFrames of the new write.
        - ``whole`` is true if ``written`` has all DataFrames of the micro-batch. If ``whole`` is
          false, more DataFrames may follow.

        Two writes of different runs of the query are not compared here, but at the commit.
        """
        # (A restart of the query changes the plans of its DataFrames.)
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
        """Whether this process has already written the DataFrames of ``written`` in the same
        micro-batch. Only the last micro-batch with the identity ``place`` is compared.
        """
        with self._lock:
            before = self._last.get(place)
        return (
            before is not None and before.number == written.number and written.plans <= before.plans
        )

    def wrote(self, place: Place, written: Written) -> None:
        with self._lock:
            self._last[place] = written
