"""docs/runbook.md: every command in it runs on a real broker, and shows what the page shows.

What differs from run to run (ages, producer ids, addresses, ids of clusters) does not count, nor
does where a cell is wrapped; steps that are ok or were skipped are left out.
``KPROD_RUNBOOK=write`` writes what was shown into the page.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC
from spark_kafka_sink.cli.app import app
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.topic_requests import NewTopic
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Decision
from tests.transactions.open_transactions import task_that_wrote
from tests.waiting import wait_for

pytestmark = [pytest.mark.broker, pytest.mark.long]  # a broker of its own, for the page's names

PAGE = Path(__file__).parents[2] / "docs" / "runbook.md"
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
COLUMNS = 110
#: Steps of a check that are ok or were skipped: the page has three dots.
_LEFT_OUT = re.compile(r"(?:^│ [^│]+│ (?:skipped|ok) +│.*\n(?:^│ +│ +│.*\n)*)+", re.MULTILINE)
BROKER, NOBODY = "broker1:9092", "broker9:9092"


class RunbookCluster:
    """A broker with the page's topics; what is open, is open until the end."""

    def __init__(self, cluster: KafkaCluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap.partition(",")[0]
        self._stack = stack
        config = parse_producer_config({"bootstrap.servers": self.bootstrap})
        self.client = stack.enter_context(TransactionClient(config))
        for topic in (
            NewTopic("orders", 3),
            NewTopic("payments", 3, 2, {"min.insync.replicas": "2"}),
            NewTopic(COMMIT_LOG_TOPIC, 1, configs={"cleanup.policy": "compact"}),
        ):
            self.client.create_topic(topic)

    def task(self, run: str, number: int) -> KafkaProducer:
        """A task that has written, and is silent since."""
        name = f"orders-sink~{run}~g1.5a0e~{number}"
        long = {"transaction_timeout_ms": "600000"}
        task = task_that_wrote(self.bootstrap, name, "orders", "row", partition=number, **long)
        return self._stack.enter_context(task)

    def state(self, state: CommitState) -> None:
        log = CommitLog(self.client, COMMIT_LOG_TOPIC)
        log.open("orders-sink", self.client.deadline()).write(state, self.client.deadline())


def stands_still(world: RunbookCluster) -> None:
    world.state(CommitState(generation=1, run_id="77c3d1", last_done=7))
    world.task("1b2c3d", 0)
    other = Producer(
        {
            "bootstrap.servers": world.bootstrap,
            "transactional.id": "flink-orders-1",
            "transaction.timeout.ms": 600_000,
            "log_level": 0,
        }
    )
    other.init_transactions(30)
    other.begin_transaction()
    other.produce("orders", b"row", partition=1)
    other.flush(30)
    world._stack.callback(other.flush, 0)


def partial(world: RunbookCluster) -> None:
    prepared = tuple(world.task("77c3d1", number).prepare() for number in (1, 2))
    state = CommitState(generation=2, run_id="77c3d1", last_done=7)
    state = state.decided(Decision(8, prepared))
    committed, lost = prepared
    soon = world.client.deadline()
    world.client.end([committed], committed=True, deadline_ms=soon)
    world.client.end([lost], committed=False, deadline_ms=soon)
    # EndTxn is answered before the markers are written; the page shows what comes after that.
    over = {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
    ids = [one.transactional_id for one in prepared]
    wait_for(
        lambda: {one.state for one in world.client.describe(ids, soon).values()} == over,
        what="both transactions' markers",
    )
    world.state(state.partly_lost([lost.transactional_id]))


def a_broker_down(world: RunbookCluster) -> None:
    """The others have noticed it when replicas are out of sync."""
    world.cluster.node(3).stop()

    def noticed() -> bool:
        world.client.loop.metadata.request_update()
        found = world.client.describe_topics(("payments",))
        return 3 not in found.nodes and all(
            one.leader in found.nodes for one in found.topics["payments"]
        )

    wait_for(noticed, 90, "the loss of a broker")


#: What must be there before a section's first command.
SCENES: dict[str, Callable[[RunbookCluster], None]] = {
    "A consumer stands still": stands_still,
    "PARTIAL": partial,
    "A partition is missing": a_broker_down,
}


@pytest.fixture
def world() -> Iterator[RunbookCluster]:
    with KafkaCluster(nodes=3) as cluster, ExitStack() as stack:
        yield RunbookCluster(cluster, stack)


def commands_in(block: str) -> Iterator[tuple[str, str]]:
    """Each command with what it shows."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def stable(text: str) -> list[str]:
    """Words, whatever the order, with digits and ids of clusters masked."""
    text = re.sub(r"\S{22}, (?=\d+ brokers)", "ID, ", text)
    text = re.sub(r"[+-]\d+ ms versus", "0 ms versus", text)
    text = re.sub(r"[^\x00-\x7f]", " ", text)
    return sorted(re.sub(r"\d+", "#", text).split())


def shown_by(command: str, world: RunbookCluster) -> str:
    words = shlex.split(command)
    assert words[0] == "kprod", command
    here = {BROKER: world.bootstrap, NOBODY: "127.0.0.1:11"}
    run = CliRunner().invoke(app, [here.get(word, word) for word in words[1:]])
    assert run.exit_code in (0, 1, 3), run.output
    assert run.exception is None or isinstance(run.exception, SystemExit), run.exception
    text = run.output
    for name, address in here.items():
        # In a cell of a table, what the name is shorter by comes behind it.
        spaces = " " * (len(address) - len(name))
        cell = re.compile(rf"{re.escape(address)}([^│\n]*)│")
        text = cell.sub(rf"{name}\1{spaces}│", text).replace(address, name)
    text = _LEFT_OUT.sub("...\n", text)
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def test_every_command_of_the_page_shows_what_the_page_shows(
    world: RunbookCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "client.properties").write_text(f"bootstrap.servers={world.bootstrap}\n")
    page = PAGE.read_text(encoding="utf-8")
    sections = re.split(r"(?=^## )", page, flags=re.MULTILINE)
    differ: dict[str, tuple[str, str]] = {}
    for number, section in enumerate(sections):
        SCENES.get(section.partition("\n")[0].removeprefix("## "), lambda _: None)(world)

        def again(block: re.Match[str]) -> str:
            found = [(c, shown_by(c, world), shown) for c, shown in commands_in(block[1])]
            differ.update((c, (now, then)) for c, now, then in found if stable(now) != stable(then))
            shown = "".join(f"$ {command}\n{now}" for command, now, _ in found)
            return f"```console\n{shown}```"

        sections[number] = BLOCK.sub(again, section)
    if os.environ.get("KPROD_RUNBOOK") == "write":
        PAGE.write_text("".join(sections), encoding="utf-8")
        return
    assert differ == {}, "".join(f"$ {c}\n{now}not:\n{then}" for c, (now, then) in differ.items())


def test_every_scene_is_a_section() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert set(SCENES) <= set(re.findall(r"^## (.+)$", page, re.MULTILINE))
