"""The identity of the task and the write that this process runs, from Spark's TaskContext."""

from __future__ import annotations

import platform
from dataclasses import dataclass

from spark_kafka_sink.base.errors import IllegalStateError


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The ids and names of the task attempt and its write, as far as Spark's TaskContext in Python
    has them.

    In a batch job, ``query_id``, ``run_id`` and ``query_name`` are empty, and ``batch_id`` is -1.
    """

    partition_id: int = 0
    attempt: int = 0
    task_attempt_id: int = 0
    stage_id: int = -1
    host: str = ""
    app_id: str = ""
    query_id: str = ""
    run_id: str = ""
    batch_id: int = -1
    app_name: str = ""
    query_name: str = ""
    #: The run of an orchestrator, for OpenLineage: ``namespace/name/runId``.
    parent_run: str = ""

    @classmethod
    def current(cls) -> TaskIdentity:
        """The identity of the task that runs in this process. Raises IllegalStateError outside of a
        task.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise IllegalStateError("write() was called outside of a Spark task")

        # The keys are those of StreamExecution.QUERY_ID_KEY and MicroBatchExecution.BATCH_ID_KEY.
        # The job group of a stream is its run id, and the job's description begins with the query's
        # name.
        local = local_property
        query_id = local("sql.streaming.queryId")
        batch_id = local("streaming.sql.batchId")
        return cls(
            partition_id=context.partitionId(),
            attempt=context.attemptNumber(),
            task_attempt_id=context.taskAttemptId(),
            stage_id=context.stageId(),
            host=platform.node(),
            app_id=local("spark.app.id"),
            query_id=query_id,
            run_id=local("spark.jobGroup.id") if query_id else "",
            batch_id=int(batch_id) if query_id and batch_id.isdigit() else -1,
            app_name=local("spark.app.name"),
            query_name=_query_name(local("spark.job.description"), query_id) if query_id else "",
            parent_run="/".join(local(name) for name in _PARENT).strip("/"),
        )


#: The properties that orchestrators set for OpenLineage's own integration with Spark.
_PARENT = (
    "spark.openlineage.parentJobNamespace",
    "spark.openlineage.parentJobName",
    "spark.openlineage.parentRunId",
)

#: Separates the lines of a query's description: a newline, before Spark 4.0 "<br/>".
_NEW_LINES = ("\n", "<br/>")


def _query_name(description: str, query_id: str) -> str:
    """The query's name, from the description of a micro-batch's job. Empty if the query has no
    name.
    """
    # Lines of the description (StreamExecution.getBatchDescriptionString): the name, "id = ...",
    # "runId = ..." and "batch = ...".
    before, _, found = description.partition(f"id = {query_id}")
    line = next((one for one in _NEW_LINES if found and before.endswith(one)), None)
    return "" if line is None else before.removesuffix(line)


def local_property(name: str) -> str:
    """A local property of the current task, such as ``spark.jobGroup.id``. Empty if the property is
    not set. Spark also passes entries of its configuration to tasks as local properties.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    return "" if context is None else context.getLocalProperty(name) or ""
