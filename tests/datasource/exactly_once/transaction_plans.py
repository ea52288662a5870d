"""Plans of exactly-once, the options of one, and the identity of a task."""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.ownership import Numbering

#: Nobody listens there.
OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "topic": "t",
    "kafka.max.block.ms": "200",
    "deliveryGuarantee": "exactly-once",
    "preflight": "off",
}
RUN = "5b0c1c2e-7f3e-4a52-8a50-0d3a3d1a9c11"


def plan(**changes: object) -> TransactionPlan:
    values: dict[str, object] = {
        "key": "p",
        "state": CommitState(generation=3),
        "numbering": Numbering.STREAM,
        "context": None,
        "number": None,
        "driver": "",
        "verify": True,
        "transaction_timeout_ms": 60_000,
        "log_topic": "log",
    }
    return TransactionPlan(**(values | changes))  # type: ignore[arg-type]


#: A batch job without txnAppId, as it is planned.
JOB = {"key": "p~j0b", "context": WriteContext("j0b"), "number": 0, "numbering": Numbering.ONCE}


#: A stream, and a job with txnAppId, of which others have written before.
STATE = CommitState(
    generation=3, run_id="run-2", query_id="query-1", last_done=6,
    superseded=("old-run",),
)  # fmt: skip
STREAM = plan(state=STATE, transaction_timeout_ms=900_000)
NAMED_JOB = replace(
    STREAM,
    key="p~app",
    state=replace(STATE, run_id="j0a", query_id="", superseded=()),
    numbering=Numbering.VERSIONS,
    context=WriteContext("j0b"),
    number=7,
)


def identity(**changes: object) -> TaskIdentity:
    stream = TaskIdentity(query_id="q", run_id=RUN, batch_id=0, app_id="app-1")
    return replace(stream, **changes)  # type: ignore[arg-type]


def config(**options: str) -> SinkConfig:
    return parse_sink_config(OPTIONS | options)
