"""The example of every command, as its help and docs/cli.md show it, on a real broker."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from spark_kafka_sink.cli.app import app
from spark_kafka_sink.cli.arguments import EXAMPLE
from spark_kafka_sink.datasource.jobs.backfill_ledger import Caller, Ledger
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from tests.cli.commands import commands_of
from tests.datasource.jobs.audited_writes import written
from tests.monitoring.reports import report
from tests.transactions.open_transactions import open_transactions
from tests.transactions.operator_stage import Stage

COMMANDS = commands_of(app)


def decided(stage: Stage) -> None:
    stage.write(stage.state(stage.open(2)))


def partial(stage: Stage) -> None:
    committed, lost = stage.open(2)
    stage.write(stage.state((committed, lost), lost=(lost.transactional_id,)))
    stage.client.end([committed], committed=True, deadline_ms=stage.soon())
    stage.client.end([lost], committed=False, deadline_ms=stage.soon())


def done(stage: Stage) -> None:
    stage.write(stage.state())
    stage.open(1, run="1b2c3d")


def begun(stage: Stage) -> None:
    """A backfill, by the names of the example."""
    log = CommitLog(stage.client, stage.log_topic)
    ledger = Ledger(stage.client, log, lambda _: CommitState(), "kprod", "orders-2026")
    caller = Caller("id", "host", 1)
    ledger.claim(caller, {})
    ledger.begin(caller, BackfillPlan(64, facts={"steps": "1"}))
    ledger.release(caller)


def others(stage: Stage) -> None:
    open_transactions(stage.client, ["other-client-1"], TopicPartition(stage.topic, 0))


def reported(stage: Stage) -> None:
    Path("reports.jsonl").write_text(written(stage.kafka, stage.topic).json() + "\n")


#: What must be there, and what the example then tells of it. All others: no matter, anything.
SCENES: dict[tuple[str, ...], tuple[Callable[[Stage], None], str]] = {
    ("audit",): (reported, "30 of 30 in 1 partition: complete"),
    ("backfill",): (begun, "Would forget the backfill orders-2026"),
    ("check",): (done, "max.message.bytes"),
    ("convert",): (done, ""),
    ("deadletters",): (done, "letters"),
    ("explain",): (done, "KP0301: "),
    ("options",): (done, "kafka.delivery.timeout.ms"),
    ("report", "show"): (done, "Tasks waited most for Spark's next rows"),
    ("report", "tail"): (done, "orders 1"),
    ("txn", "list"): (decided, "DECIDED"),
    ("txn", "blockers"): (done, "no consumer waits"),
    ("txn", "fence"): (others, "Would abort the open transaction of"),
    ("txn", "describe"): (decided, "The decision"),
    ("txn", "commit"): (decided, "Would commit batch 8"),
    ("txn", "abort"): (done, "Would abort 1 transaction of 1 run"),
    ("txn", "sweep"): (done, "There is nothing to abort"),
    ("txn", "resolve"): (partial, "Would let batch 8"),
    ("txn", "reset"): (done, "Would forget"),
}


def test_every_command_has_an_example_and_none_changes_anything() -> None:
    assert SCENES.keys() == COMMANDS.keys()
    for words, command in COMMANDS.items():
        example = command.epilog.removeprefix(EXAMPLE)
        assert example.startswith(f"kprod {' '.join(words)}")
        if any(p.name == "dry_run" for p in command.params):
            assert "--dry-run" in example


@pytest.mark.parametrize("words", SCENES, ids=" ".join)
def test_the_example_of_a_command_runs(
    words: tuple[str, ...], stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={stage.kafka.bootstrap}\n")
    (tmp_path / "librdkafka.properties").write_text("metadata.broker.list=broker1:9092\n")
    (tmp_path / "reports.jsonl").write_text(json.dumps(report(1, inputWaitMs=40)) + "\n")
    prepare, told = SCENES[words]
    prepare(stage)
    line = COMMANDS[words].epilog.removeprefix(EXAMPLE).partition(" > ")[0]
    here = {
        "broker1:9092": stage.kafka.bootstrap,
        "orders": stage.topic,
        "dlq.orders": stage.topic,
        "orders-sink": stage.prefix,
    }
    arguments = [here.get(word, word) for word in shlex.split(line)[1:]]
    if words[0] in ("backfill", "txn"):
        arguments += ["--log-topic", stage.log_topic]
    before = stage.still_open()
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert told in run.stdout
    assert stage.still_open() == before
