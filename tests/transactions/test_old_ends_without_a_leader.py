"""A decision gets too old to be begun while EndTxn is refused and a partition has no leader."""

from __future__ import annotations

from contextlib import suppress

import pytest

from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.lease import margin_ms
from tests.fakes.fake_cluster import transaction_coordinator
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.fake_cluster.transaction_coordinator import Transaction
from tests.simulation.scene import VERSIONS, Scene
from tests.transactions.test_outcome_hints import KEY, decided

pytestmark = VERSIONS


@pytest.mark.parametrize("by_hand", [False, True], ids=["start", "operator"])
def test_no_old_transaction_is_the_first_to_be_committed(
    scene: Scene, by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the rest of a batch may be committed into a partition without a leader."""
    timeout = 3_600_000 if by_hand else 900_000  # an operator has a 32nd of the margin
    monkeypatch.setattr(transaction_coordinator, "MAX_TIMEOUT_MS", timeout)
    scene.changes |= {"transaction_timeout_ms": timeout}
    written = decided(scene)
    cluster = scene.cluster
    cluster.drops_markers = True
    transactions = [cluster.transactions.transactions[one.transactional_id] for one in written]
    margin = margin_ms(timeout)
    age = timeout - (3 * margin // 32 - 100 if by_hand else margin // 2 + 5_000)
    scene.scheduler.sleep(age - cluster.open_for_ms(transactions[0]))
    partitions = {tp for one in transactions for tp in one.partitions}
    refused: list[int] = []

    def loses_the_leader(request: Request) -> bool:
        if request.body.transactional_id not in {one.transactional_id for one in written}:
            return False
        for tp in partitions:
            cluster.move_leader(tp, -1)
        refused.append(cluster.now)
        return cluster.now < refused[0] + 2_000

    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    scene.control.answer(ApiKey.END_TXN, loading, FOREVER, where=loses_the_leader)
    committed: list[str] = []
    told = cluster.on_decided

    def on_decided(one: Transaction, commit: bool) -> None:
        told(one, commit)
        committed.extend([one.transactional_id] * commit)

    cluster.on_decided = on_decided
    with suppress(KafkaError):
        if by_hand:
            scene.commit_by_hand(timeout)
        else:
            with scene.driver() as driver:
                driver.plan(KEY)
    assert refused
    assert not {one.transactional_id for one in written} & set(committed)
