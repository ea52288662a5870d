"""The named writes of this process: which are running, under which run, and which were the last.

Owns: :class:`NamedWrites`. Never: a write (``foreach_batch.py``), what other processes do, which
the commit log knows.

The commit log keeps runs apart. Within one process two writes of one name may have the same run, so
that the log can't tell them apart: they are kept apart here.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from spark_kafka_sink.base.errors import ConfigError


class Place(NamedTuple):
    """Where a name is decided. A cluster that is spelt in two ways has two places; what meets there
    is compared as a replay is, by offsets or rows.
    """

    servers: str
    log_topic: str
    key: str


@dataclass(frozen=True, slots=True)
class Written:
    """What was written as a micro-batch: the DataFrames, by hashes of their plans and of the
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
        """ConfigError while another write of that name is open; ``described`` says what and where
        this one is. Two that are nested, in two threads, or of two queries would mix their rows.
        """
        with self._lock:
            other = self._open.setdefault(place, described)
            if other is not described:
                raise ConfigError(
                    f"{described} begins while {other} is running; they have one name, so their "
                    "rows would be mixed",
                    hint="give each query, and each block or write that runs at the same time, a "
                    "name of its own",
                )
        try:
            yield
        finally:
            with self._lock:
                del self._open[place]

    def run(self, place: Place, query_run: str, session: str) -> str:
        """The run under which the name is written: one for each run of a query, the same until
        :meth:`end`. A write that does not know its query (``query_run`` is empty) has the run of
        its session's last one.
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
        # (The session in which queries were started is that of several.)
        is_others = of_session is not None and of_session.query_run != ""
        return self._runs.get((place, query_run), None if is_others else of_session)

    def end(self, place: Place, query_run: str, session: str) -> None:
        """A failed write has aborted its run: the next write has another one."""
        with self._lock:
            ended = self._found(place, query_run, session)
            self._runs = {
                n: one for n, one in self._runs.items() if not ended or one.id != ended.id
            }

    def check(self, place: Place, name: str, written: Written, *, whole: bool) -> None:
        """ConfigError for DataFrames that contradict those that the same run of a query has written
        under this name and number: they would count as done. ``whole``: these are all of them.
        Outside of a query it is not known whether a number is used again, and rows are compared.
        """
        with self._lock:
            before = self._last.get(place)
        if before is None or not written.query_run:
            return
        if (before.query_run, before.number) != (written.query_run, written.number):
            return
        if written.plans == before.plans or (not whole and written.plans <= before.plans):
            return
        raise ConfigError(
            f"'{name}' wrote another DataFrame in micro-batch {written.number} already (or this "
            "one with other options), so it would count as done, and none of its rows would be "
            "written",
            hint="give each write in a foreachBatch function a different name, or make them "
            "one transaction (spark_kafka_sink.transaction)",
        )

    def wrote(self, place: Place, written: Written) -> None:
        with self._lock:
            self._last[place] = written
