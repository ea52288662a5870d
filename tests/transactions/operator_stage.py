"""What the tests of operations and of ``kprod txn`` share: a prefix of its own on a real broker,
with transactions that are open and a log that says something.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from typer.testing import CliRunner, Result

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog, LogSession
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, Payload
from spark_kafka_sink.transactions.operations.operator import Operator
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, log_key
from tests.real_kafka import RealKafka
from tests.transactions.open_transactions import TIMEOUT_MS, fence, open_transactions

Json = dict[str, Any]


def topics_of(kafka: RealKafka) -> tuple[str, str]:
    """Of open transactions without rows, and of the log."""
    log = kafka.unique_topic("commits", 2, {"cleanup.policy": "compact"})
    return kafka.unique_topic("data", 2), log


@contextmanager
def set_stage(
    kafka: RealKafka, client: TransactionClient, topics: tuple[str, str]
) -> Iterator[Stage]:
    """What it leaves open is ended with it."""
    stage = Stage(kafka, client, topics)
    yield stage
    if left := list(stage.still_open()):
        fence(client, left)


class Stage:
    """A prefix of its own on the broker, the log, and the command line."""

    def __init__(self, kafka: RealKafka, client: TransactionClient, topics: tuple[str, str]):
        self.kafka = kafka
        self.client = client
        self.topic, self.log_topic = topics
        self.prefix = f"p{uuid.uuid4().hex[:8]}"
        self.log = CommitLog(client, self.log_topic)
        self.operator = Operator(self.log, client)

    # -- the world --------------------------------------------------------------------------------

    def soon(self) -> int:
        return self.client.clock.now_ms() + TIMEOUT_MS

    def open(
        self, count: int, run: str = "run-1", worker: str = "w", *, name: str | None = None
    ) -> list[PreparedTransaction]:
        """Transactions that tasks of ``run`` left open: of a stream, or of the job ``name``."""
        key = log_key(self.prefix, name)
        ids = [str(TransactionalId(key, run, worker, k, 2)) for k in range(count)]
        return open_transactions(self.client, ids, TopicPartition(self.topic, 0))

    def state(self, transactions: Sequence[PreparedTransaction] = (), **fields: Any) -> CommitState:
        """Batch 7 is done by run-1; with ``transactions`` batch 8 is decided."""
        state = CommitState(generation=2, run_id="run-1", query_id="query", last_done=7)
        if transactions:
            state = state.decided(Decision(8, tuple(transactions), (Payload(),)))
        return replace(state, **fields)

    def write(self, state: CommitState | None, key: str | None = None) -> LogSession:
        session = self.log.open(key or self.prefix, self.soon())
        session.write(state, self.soon())
        return session

    def read(self, key: str | None = None) -> CommitState | None:
        return self.log.read(key or self.prefix, self.soon()).state

    def states(self, transactions: Sequence[PreparedTransaction]) -> list[TransactionState]:
        ids = [t.transactional_id for t in transactions]
        found = self.client.describe(ids, self.soon())
        return [found[i].state for i in ids]

    def still_open(self) -> set[str]:
        found = self.client.open_transactions(f"{self.prefix}~", self.soon())
        return {t.transactional_id for t in found.transactions}

    # -- the command line -------------------------------------------------------------------------

    def run(self, *arguments: str, code: int = 0, answer: str = "", log: str = "") -> Result:
        where = ["--bootstrap-servers", self.kafka.bootstrap, "--log-topic", log or self.log_topic]
        result = CliRunner().invoke(app, ["txn", *arguments, *where], input=answer)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    def json(self, *arguments: str, code: int = 0) -> Json:
        found: Json = json.loads(self.run(*arguments, "--json", code=code).stdout)
        assert found["command"] == arguments[0]
        return found

    def refused(self, *arguments: str, code: int = 1) -> str:
        """The one line on standard error; nothing on standard output."""
        result = self.run(*arguments, "--json", "--yes", code=code)
        assert result.stdout == ""
        assert result.stderr.startswith("kprod: ")
        assert result.stderr.count("\n") == 1
        return result.stderr


def names(transactions: Sequence[PreparedTransaction]) -> list[str]:
    return [t.transactional_id for t in transactions]
