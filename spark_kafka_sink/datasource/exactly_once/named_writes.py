"""The named writes of this process: the running writes with their runs, and the last writes.

Owns: :class:`NamedWrites`. Never: a write (``foreach_batch.py``), the writes of other processes,
which the commit log has.

The commit log distinguishes runs. Within a process, two writes with the same name may have the same
run, so the log can't distinguish them: this module does.
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
    """The place of a name's decisions: a cluster's commit log. A cluster with two spellings has two
    places; writes that meet there are compared like replays, by offsets or rows.
    """

    servers: str
    log_topic: str
    key: str


@dataclass(frozen=True, slots=True)
class Written:
    """The content of a written micro-batch: the DataFrames, by hashes of their plans and of the
    options of each. ``query_run`` is empty when it is unknown.
    """

    query_run: str
    number: int
    plans: Counter[int]


class _Run(NamedTuple):
    """``query_run`` is empty when it is unknown."""

    id: str
    query_run: str


class NamedWrites:
    """``_lock`` guards all fields."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By the place, with the run of the query and with the session.
        self._runs: dict[tuple[Place, str], _Run] = {}
        self._open: dict[Place, str] = {}
        self._last: dict[Place, Written] = {}

    @contextmanager
    def open(self, place: Place, described: str) -> Iterator[None]:
        """ConfigError while another write of that name is open; ``described`` describes this write.
        Two writes that are nested, in two threads, or of two queries would mix their rows.
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
        """The run that the name is written under: one for each run of a query, the same until
        :meth:`end`. If a write has no known query (``query_run`` is empty), it gets the last run of
        its session.
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
        """Ends the write. A failed write has aborted its run, so the next write gets another
        run.
        """
        with self._lock:
            ended = self._found(place, query_run, session)
            self._runs = {
                n: one for n, one in self._runs.items() if not ended or one.id != ended.id
            }

    def check(self, place: Place, name: str, written: Written, *, whole: bool) -> None:
        """ConfigError for DataFrames that contradict the DataFrames that this process has written
        under this name and number, from any session or thread: they would count as done. ``whole``:
        these are all DataFrames. A query that was started again runs its micro-batch again, with
        other plans: then the commit log compares.
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
        """Whether this process has written that number, with these plans."""
        with self._lock:
            before = self._last.get(place)
        return (
            before is not None and before.number == written.number and written.plans <= before.plans
        )

    def wrote(self, place: Place, written: Written) -> None:
        with self._lock:
            self._last[place] = written
