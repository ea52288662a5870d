"""One write through the sink's own code, as Spark calls it: planned, written, committed, aborted.

Only what asks the operating system is replaced: connections, the clock, random names. Each call
belongs to the simulated process that makes it (``Machine.current``).
"""

from __future__ import annotations

import os
import pickle
import random
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource import foreach_batch
from spark_kafka_sink.datasource.exactly_once import (
    checkpoint,
    offsets_group,
    transaction_commit,
    transaction_plan,
)
from spark_kafka_sink.datasource.exactly_once.named_writes import NamedWrites
from spark_kafka_sink.datasource.process import calling_query
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions import exactly_once
from spark_kafka_sink.transactions.driver_transactions import TopicRecord
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.results import Commit, Visible
from tests.fakes.jvm_session import RunningQuery, jvm_session
from tests.simulation.processes import Machine, Process
from tests.simulation.spark_checkpoints import read_by_spark
from tests.simulation.spark_tasks import PythonWorker, new_client, write_rows

SERVERS = "kafka.bootstrap.servers"
#: What Spark keeps of a write at planning, and gives back to commit or abort.
Planned = bytes
Save = Callable[[dict[str, str], int | None], None]
#: How a write that was to abort its block has ended, for the checks of the observer.
_OF_ABORTED_BLOCK = {
    Visible.NONE: Commit.EMPTY,
    Visible.ALL: Commit.ALREADY_DONE,
    Visible.SOME: Commit.PARTIAL,
    Visible.UNKNOWN: Commit.UNKNOWN,
}


@cache
def config_of(options: tuple[tuple[str, str], ...]) -> SinkConfig:
    return parse_sink_config(dict(options))


class Sink:
    """All writes of one world, over ``machine``'s processes. ``warm``: a process keeps its
    connections from one call to the next.
    """

    def __init__(self, machine: Machine, seed: int, *, warm: bool) -> None:
        self._machine = machine
        self._names = random.Random(f"names {seed}")
        self._warm = warm
        self._kept: dict[tuple[Process, ProducerConfig, str], ExactlyOnceDriver] = {}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """In place of what this process has of its own."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(exactly_once, "shared_driver", self._shared))
            stack.enter_context(patch.object(uuid, "uuid4", self._uuid4))
            # (It names the Python process that a Connect server starts for a query's function, and
            # means nothing where a session is classic.)
            stack.enter_context(patch.dict(os.environ, {"SPARK_CONNECT_LOCAL_URL": "simulated"}))
            for module, name, make in _OF_A_PROCESS:
                kept = _ByProcess(self._machine, make)
                stack.enter_context(patch.object(module, name, kept))
            yield

    def _uuid4(self) -> uuid.UUID:
        return uuid.UUID(int=self._names.getrandbits(128), version=4)

    @contextmanager
    def _shared(self, config: ProducerConfig, log_topic: str) -> Iterator[ExactlyOnceDriver]:
        """As ``exactly_once.shared_driver``, of the process that asks."""
        process = self._machine.current
        key = (process, config, log_topic)
        driver = self._kept.pop(key, None)
        if driver is None:
            driver = ExactlyOnceDriver(
                config, log_topic, clock=self._machine.scheduler, new_client=new_client(process)
            )
        try:
            yield driver
        except BaseException:
            driver.close()
            raise
        if self._warm:
            self._kept[key] = driver
        else:
            driver.close()

    # -- the driver's side --

    def plan(self, options: Mapping[str, str], *, streaming: bool, driver: str) -> Planned:
        """``driver`` is the JVM's token."""
        config = config_of(tuple(options.items()))
        named = driver if streaming or config.txn_app_id is not None else ""
        return pickle.dumps(
            transaction_plan.plan_transactions(config, streaming=streaming, driver=named)
        )

    def commit(
        self,
        options: Mapping[str, str],
        planned: Planned,
        messages: Sequence[TaskCommitMessage],
        batch_id: int | None,
        report: TopicRecord | None = None,
    ) -> Commit:
        """``batch_id`` is None for a batch write, whose plan comes back."""
        config = config_of(tuple(options.items()))
        plan = pickle.loads(planned) if batch_id is None else None
        if plan is not None and plan.aborts_block:
            found = transaction_commit.abort_block(config, plan, _unpickled(messages))
            return _OF_ABORTED_BLOCK[found.visible]
        return transaction_commit.commit(config, plan, _unpickled(messages), batch_id, report)

    def abort(
        self,
        options: Mapping[str, str],
        planned: Planned,
        messages: Sequence[TaskCommitMessage],
        batch_id: int | None,
        *,
        tasks_may_run: bool,
        driver: str,
    ) -> tuple[str, ...]:
        config = config_of(tuple(options.items()))
        plan = pickle.loads(planned) if batch_id is None else None
        return transaction_commit.abort(
            config,
            plan,
            _unpickled(messages),
            batch_id,
            tasks_may_run=tasks_may_run,
            driver_token="" if plan is not None else driver,
        ).swept

    @contextmanager
    def operator(self, options: Mapping[str, str]) -> Iterator[Operator]:
        """``kprod txn``, in the process that asks."""
        config = config_of(tuple(options.items()))
        client = TransactionClient(
            config.producer,
            clock=self._machine.scheduler,
            new_client=new_client(self._machine.current),
        )
        from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog

        log = CommitLog(client, config.commit_log_topic)
        with client:
            yield Operator(log, client)

    # -- a task --

    def write(
        self,
        worker: PythonWorker,
        options: Mapping[str, str],
        planned: Planned,
        identity: TaskIdentity,
        batches: Iterator[pa.RecordBatch],
        columns: ColumnPlan,
        dead_letters: str | None,
    ) -> TaskCommitMessage:
        """An attempt of a task."""
        config = config_of(tuple(options.items())).producer
        return write_rows(
            worker, pickle.loads(planned), config, identity, batches, columns, dead_letters
        )


def _unpickled(messages: Sequence[TaskCommitMessage]) -> list[TaskCommitMessage]:
    return [pickle.loads(pickle.dumps(message)) for message in messages]


#: What a process remembers from one call to the next (``ProcessLocal``).
_OF_A_PROCESS: tuple[tuple[ModuleType, str, Callable[[], Any]], ...] = (
    (foreach_batch, "_runs", NamedWrites),
    (calling_query, "_found", dict),
    (calling_query, "_process", lambda: uuid.uuid4().hex),
    (checkpoint, "_unreadable", set),
    (offsets_group, "_checked", dict),
)


class _ByProcess:
    def __init__(self, machine: Machine, make: Callable[[], Any]) -> None:
        self._machine = machine
        self._make = make
        self._kept: dict[Process, Any] = {}

    def __call__(self) -> Any:
        process = self._machine.current
        if process not in self._kept:
            self._kept[process] = self._make()
        return self._kept[process]


class Frame:
    """A DataFrame, as far as ``foreach_batch`` and ``transaction`` look at it: ``save`` gets the
    options, and ``part``. Without a query id it is one of Spark Connect's.
    """

    def __init__(
        self, save: Save, query_id: str | None, part: int | None = 0, run_id: str = ""
    ) -> None:
        self._save = save
        self._part = part
        self._query_id = query_id
        self._run_id = run_id
        self._options: dict[str, str] = {}
        self._mode = ""

    @property
    def sparkSession(self) -> Any:
        """With the frame without rows that ends a transaction."""
        nothing = Frame(self._save, self._query_id, None, self._run_id)
        session = SimpleNamespace(
            range=lambda _: SimpleNamespace(selectExpr=lambda *_: nothing), read=read_by_spark()
        )
        if self._query_id is not None:
            name = f"session of {self._query_id} {self._run_id}"
            query = RunningQuery(self._query_id, self._run_id, name)
            session._jsparkSession = jvm_session(name, query)
        return session

    @property
    def write(self) -> Frame:
        return self

    def semanticHash(self) -> int:
        return self._part or 0

    @property
    def schema(self) -> Any:
        return SimpleNamespace(json=str)

    def format(self, name: str) -> Frame:
        assert name == "kprod"
        return self

    def options(self, **options: object) -> Frame:
        self._options |= {name: _text(value) for name, value in options.items()}
        return self

    def option(self, name: str, value: object) -> Frame:
        self._options[name] = _text(value)
        return self

    def mode(self, mode: str) -> Frame:
        self._mode = mode
        return self

    def save(self) -> None:
        assert self._mode == "append"
        self._save(self._options, self._part)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
