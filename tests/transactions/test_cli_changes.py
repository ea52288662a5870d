"""What ``kprod txn`` says of its changes: of a fence, and of what others change while it asks."""

from __future__ import annotations

import pytest
import typer

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.transactional_ids import log_id
from tests.transactions.open_transactions import fence, open_transactions
from tests.transactions.operator_stage import Stage


@pytest.mark.parametrize("given", ["--yes", "--dry-run"])
def test_a_fence_says_in_json_what_it_has_changed(stage: Stage, given: str) -> None:
    name = f"theirs-{stage.prefix}"
    open_transactions(stage.client, [name], TopicPartition(stage.topic, 0))
    told = stage.json("fence", name, given)
    assert told["changed"] == (given == "--yes")
    (found,) = stage.client.describe([name], stage.soon()).values()
    assert (found.state is TransactionState.ONGOING) == (given == "--dry-run")
    fence(stage.client, [name])


def test_a_fence_refuses_what_is_not_open_or_a_drivers(stage: Stage) -> None:
    told = stage.refused("fence", f"nobody-{stage.prefix}")
    assert "has no open transaction (its coordinator says TRANSACTIONAL_ID_NOT_FOUND)" in told
    assert "it writes the commit log" in stage.refused("fence", log_id(stage.prefix), code=2)


def test_a_batch_decided_while_abort_asks_is_kept_and_named(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (one,) = stage.open(1, run="run-1")
    stage.write(stage.state())

    def hesitate(*_: object, **__: object) -> bool:
        stage.write(stage.state([one]))
        return True

    monkeypatch.setattr(typer, "confirm", hesitate)
    result = stage.run("abort", one.transactional_id, "--force", code=1)
    assert "Kept after the second check (1)" in result.stdout
    assert "its batch is decided" in result.stdout
    assert result.stdout.endswith("Aborted 0 transactions.\n")
    assert stage.still_open() == {one.transactional_id}
