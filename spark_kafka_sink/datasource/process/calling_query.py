"""Finds the streaming query that has called the user's foreachBatch function.

- Usually the session of the DataFrame identifies the query. Spark runs each query in a clone of the
  user's session, and the DataFrames of a micro-batch have this clone as their session, in every
  thread.
- If the user writes a DataFrame of another session, Spark's local properties may identify the
  query. Spark sets the properties only on the stream's own thread. A thread of a pool may have
  properties of another query or of an earlier micro-batch. So the properties count only if they
  name the micro-batch that is written.
- With Spark Connect, the server starts a new Python process for each run of a query, and passes no
  id to the process. So the process creates a random id for the run.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.transactions.transactional_ids import is_part

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Set in the Python process that a Connect server starts for a foreachBatch function.
_CONNECT_WORKER = "SPARK_CONNECT_LOCAL_URL"


@dataclass(frozen=True, slots=True)
class CallingQuery:
    """The streaming query that has called a foreachBatch function.

    - ``id`` is the query's id, or empty if the query is unknown.
    - ``run`` differs for each run of a query, and is the same for all writes of one run. It is
      empty outside of a query.
    - ``session`` identifies the session of the DataFrame that the function writes.
    """

    id: str = ""
    run: str = ""
    session: str = ""


_found: ProcessLocal[dict[str, CallingQuery]] = ProcessLocal(dict)
#: The name of this process's run in a Connect worker.
_process: ProcessLocal[str] = ProcessLocal(lambda: uuid.uuid4().hex)


def calling_query(session: SparkSession, number: int) -> CallingQuery:
    """Finds the streaming query that writes a DataFrame of ``session``. ``number`` is the id of the
    micro-batch. If the query can't be found, fields of the result are empty. Never raises.
    """
    try:
        name = session._jsparkSession.sessionUUID()  # noqa: SLF001 - Spark's own have no other name
    except Exception:  # noqa: BLE001 - Spark Connect has no such thing; the write must not fail for it
        return CallingQuery(_local_id(session), _process() if _CONNECT_WORKER in os.environ else "")
    if not isinstance(name, str):
        return CallingQuery(_local_id(session))
    known = _found().get(name)
    return _active_query(session, name, number) if known is None else known


def _active_query(session: SparkSession, name: str, number: int) -> CallingQuery:
    """Finds the active query that runs in ``session``. ``name`` is the UUID of ``session``, and
    ``number`` is the micro-batch's id. If no active query runs in ``session``, the local properties
    of this thread may identify the query. They count only if they name this micro-batch.
    """
    here, of_thread = _local_id(session), CallingQuery("", "", name)
    is_written_here = here != "" and _local(session, "streaming.sql.batchId") == str(number)
    try:
        active = session._jsparkSession.sharedState().activeStreamingQueries()  # noqa: SLF001
        for query in active.values():
            if query.sparkSessionForStream().sessionUUID() == name:
                found = CallingQuery(query.id().toString(), query.runId().toString(), name)
                return _found().setdefault(name, found)
            if is_written_here and query.id().toString() == here:
                of_thread = CallingQuery(here, query.runId().toString(), name)
    except Exception:  # noqa: BLE001 - Spark's own, and may be another in another version
        return CallingQuery(here, "", name)
    return of_thread


def _local_id(session: SparkSession) -> str:
    """The query id in this thread's local properties. Empty if there is none."""
    found = _local(session, "sql.streaming.queryId")
    return found if is_part(found) else ""


def _local(session: SparkSession, name: str) -> str:
    """The value of a Spark local property of this thread. Empty if it is not set."""
    try:
        found = session.sparkContext.getLocalProperty(name)
    except Exception:  # noqa: BLE001 - Spark Connect has no such thing; the write must not fail for it
        return ""
    return found if isinstance(found, str) else ""
