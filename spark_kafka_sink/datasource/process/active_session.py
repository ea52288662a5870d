"""Makes a DataFrame's session active for a write or a read, so that Spark finds the format in every
thread.

Spark looks up a Python data source in the active session of the thread, not in the session of the
DataFrame. Many threads have no active session: a new thread, a thread of a pool, an
``InheritableThread`` and a notebook's worker. There, Spark raises DATA_SOURCE_NOT_FOUND, although
the source is registered.

``spark.sql`` and a Connect server make their session active themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def active_session(session: object) -> Iterator[None]:
    """Makes ``session`` the active session of this thread while the block runs, and then restores
    the previous session. Does nothing for a Connect session.

    Sets only the active session of the JVM. Python's ``SparkSession.getActiveSession`` also reads
    the JVM's active session.
    """
    restore = _made_active(session)
    # The body runs within no handler, whose error would be the context of its own.
    try:
        yield
    finally:
        restore()


def _made_active(session: object) -> Callable[[], object]:
    """Makes ``session`` active, and returns a function that restores the previous session."""
    try:
        sessions = session._get_j_spark_session_class(session._jvm)  # type: ignore[attr-defined] # noqa: SLF001 - Spark has no other way
        before = sessions.getActiveSession()
        sessions.setActiveSession(session._jsparkSession)  # type: ignore[attr-defined] # noqa: SLF001 - as above
    except Exception:  # noqa: BLE001 - Connect has none, a later Spark may have another: as without it
        return lambda: None
    if before.isDefined():
        return lambda: sessions.setActiveSession(before.get())
    return sessions.clearActiveSession  # type: ignore[no-any-return] # a method of the JVM
