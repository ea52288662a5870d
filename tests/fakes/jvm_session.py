"""The JVM's session behind a DataFrame, as far as is asked of it: its name, and who is active."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class RunningQuery:
    """A run of a streaming query, and the name of the session in which it runs."""

    id: str
    run: str
    session: str


def jvm_session(name: str, *active: RunningQuery) -> Any:
    """The session of that name, while these queries run in its application."""
    queries = {query.run: _java_query(query) for query in active}
    shared = SimpleNamespace(activeStreamingQueries=lambda: queries)
    return SimpleNamespace(sessionUUID=lambda: name, sharedState=lambda: shared)


def _java_query(query: RunningQuery) -> Any:
    id_, run = (SimpleNamespace(toString=lambda text=text: text) for text in (query.id, query.run))
    session = SimpleNamespace(sessionUUID=lambda: query.session)
    return SimpleNamespace(id=lambda: id_, runId=lambda: run, sparkSessionForStream=lambda: session)
