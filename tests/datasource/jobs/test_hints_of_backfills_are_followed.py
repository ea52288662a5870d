"""The hints of damaged and lost records of a backfill work when they are followed, on a broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from typer.testing import CliRunner

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import CommitLogError
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.datasource.jobs.backfill_ledger import Caller, Ledger
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from tests.real_kafka import RealKafka

ONE = Caller("id1", "host1", 1)
PLAN = BackfillPlan(8, "day", "int", ("1", "2"), (5, 5, 5), facts={"topic": "orders"})
PROGRESS, PLANNED = "p~~backfill~b", "p~~backfill-plan~b"


@dataclass
class Recorded:
    """The backfill ``b``, which has a plan and an open step, with a log of its own."""

    client: TransactionClient
    log: CommitLog
    where: tuple[str, ...]

    @property
    def ledger(self) -> Ledger:
        def state_of(key: str) -> CommitState:
            return self.log.read(key, self.client.deadline()).state or CommitState()

        return Ledger(self.client, self.log, state_of, "p", "b")

    def damage(self, key: str, field: str) -> None:
        """Another program has written the record."""
        session = self.log.open(key, self.client.deadline())
        state = CommitState(generation=1, other=((field, '{"later":1}'),))
        session.write(state, self.client.deadline())

    def destroy(self, key: str) -> None:
        """Another client has written the record, which is no state."""
        session, record = self.log.open(key, self.client.deadline()), {key.encode(): b"junk"}
        session._writer.commit(lambda _: record, self.client.deadline(), lambda _: None)

    def lose(self, key: str) -> None:
        self.log.open(key, self.client.deadline()).write(None, self.client.deadline())

    def kprod(self, *words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, ["backfill", "b", *words, "--prefix", "p", *self.where])
        assert result.exit_code == code, result.output
        return " ".join(result.output.split())


@pytest.fixture
def recorded(kafka: RealKafka) -> Iterator[Recorded]:
    topic = kafka.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    config = parse_producer_config({"bootstrap.servers": kafka.bootstrap})
    with TransactionClient(config) as client:
        where = ("-b", kafka.bootstrap, "--log-topic", topic)
        found = Recorded(client, CommitLog(client, topic), where)
        begin(found.ledger)
        found.ledger.step(ONE, 8)
        yield found


def begin(ledger: Ledger) -> None:
    ledger.claim(ONE, {})
    ledger.begin(ONE, PLAN)


def assert_forget_works(recorded: Recorded) -> None:
    assert "Forgotten: backfill b." in recorded.kprod("--forget", "--yes")
    assert recorded.ledger.read() == (None, None)
    begin(recorded.ledger)
    assert recorded.ledger.read()[1] == PLAN


def test_progress_that_another_program_wrote_is_forgotten(recorded: Recorded) -> None:
    recorded.damage(PROGRESS, "backfill")
    with pytest.raises(CommitLogError, match="was not written by this") as raised:
        recorded.ledger.read()
    assert "'kprod backfill NAME --forget' removes the record" in str(raised.value.hint)
    assert "was not written by this" in recorded.kprod(code=1)
    dry = recorded.kprod("--forget", "--dry-run")
    assert "forget the backfill b (the record of the backfill was not written by" in dry
    assert json.loads(recorded.kprod("--forget", "--dry-run", "--json"))["damage"]
    assert_forget_works(recorded)


def test_a_plan_that_another_program_wrote_is_forgotten(recorded: Recorded) -> None:
    recorded.damage(PLANNED, "backfillPlan")
    with pytest.raises(CommitLogError, match="was not written by") as raised:
        recorded.ledger.read()
    assert "'kprod backfill NAME --forget' removes the plan" in str(raised.value.hint)
    assert_forget_works(recorded)


@pytest.mark.parametrize("key", [PROGRESS, PLANNED])
def test_a_record_that_is_no_state_is_forgotten(recorded: Recorded, key: str) -> None:
    recorded.destroy(key)
    with pytest.raises(CommitLogError, match="was not written by spark-kafka-sink") as raised:
        recorded.ledger.read()
    assert "'kprod backfill b --forget' removes the record" in str(raised.value.hint)
    assert "forget the backfill b" in recorded.kprod("--forget", "--dry-run")
    assert_forget_works(recorded)


def test_a_lost_plan_is_shown_and_forgotten(recorded: Recorded) -> None:
    recorded.lose(PLANNED)
    with pytest.raises(CommitLogError, match="is lost") as raised:
        recorded.ledger.read()
    assert "'kprod backfill b' shows what was written; --forget" in str(raised.value.hint)
    shown = recorded.kprod()
    assert "0 steps, 0 rows" in shown
    assert "txnVersion 0 was begun" in shown
    assert "the plan of the backfill 'b' is lost" in shown
    found = json.loads(recorded.kprod("--json"))
    assert (found["finished"], found["share"], found["plan"]) == (False, None, None)
    assert_forget_works(recorded)
