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
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.cli.commands import commands_of
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


def others(stage: Stage) -> None:
    open_transactions(stage.client, ["other-client-1"], TopicPartition(stage.topic, 0))


#: What must be there, and what the example then tells of it. All others: no matter, anything.
SCENES: dict[tuple[str, ...], tuple[Callable[[Stage], None], str]] = {
    ("check",): (done, "max.message.bytes"),
    ("convert",): (done, ""),
    ("deadletters",): (done, "letters"),
    ("explain",): (done, "KP0301: "),
    ("options",): (done, "kafka.delivery.timeout.ms"),
    ("size",): (done, "2400"),
    ("template",): (done, "bootstrap.servers="),
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
    prepare, told = SCENES[words]
    prepare(stage)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={stage.kafka.bootstrap}\n")
    (tmp_path / "librdkafka.properties").write_text("metadata.broker.list=broker1:9092\n")
    (tmp_path / "reports.jsonl").write_text(json.dumps(report(1, inputWaitMs=40)) + "\n")
    line = COMMANDS[words].epilog.removeprefix(EXAMPLE).partition(" > ")[0]
    here = {
        "broker1:9092": stage.kafka.bootstrap,
        "orders": stage.topic,
        "dlq.orders": stage.topic,
        "orders-sink": stage.prefix,
    }
    arguments = [here.get(word, word) for word in shlex.split(line)[1:]]
    if words[0] == "txn":
        arguments += ["--log-topic", stage.log_topic]
    before = stage.still_open()
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    assert told in run.stdout
    assert stage.still_open() == before
