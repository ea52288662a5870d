"""What a sweep ends: what a run's dead attempts left open, and what they might still open."""

from __future__ import annotations

import uuid

import pytest

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.sweep import open_ids, sweep
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.real_kafka import RealKafka
from tests.transactions.open_transactions import open_transactions

pytestmark = pytest.mark.broker


def test_an_idle_identity_without_rows_is_ended_once(
    kafka: RealKafka, client: TransactionClient, operator_topics: tuple[str, str]
) -> None:
    """With version 2 its first Produce, late, would open a transaction that is never ended."""
    tp = TopicPartition(operator_topics[0], 0)
    key = f"sweep{uuid.uuid4().hex[:8]}"
    idle, kept, orphan = (f"{key}~run~g2.w~{n}" for n in range(3))
    strangers = (
        f"{key}~other~g2.w~0",
        f"{key}.b~run~g2.w~0",
        f"{key}~name~run~g2.w~0",
        f"{key}~~check",
    )

    def soon() -> int:
        return client.clock.now_ms() + 30_000

    given = {i: client.init_producer_id(i, 60_000, soon()) for i in (idle, kept, *strangers)}
    open_transactions(client, [orphan], tp)

    def is_orphan(one: TransactionalId) -> bool:
        return one.run == "run"

    assert {str(i) for i in open_ids(client, key, soon(), is_orphan)} == {orphan}
    assert sweep(client, key, is_orphan, soon(), keep=[kept], spared="other") == ((orphan,), True)
    found = client.describe([idle, kept, orphan, *strangers], soon())
    ended = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    assert all(found[i].state in ended for i in (idle, orphan))
    assert found[idle].producer_epoch == given[idle].epoch + 1
    for untouched in (kept, *strangers):
        assert found[untouched].producer_epoch == given[untouched].epoch

    assert sweep(client, key, is_orphan, soon(), keep=[kept], spared="run") == ((), False)
    now_ = client.describe([idle, kept, orphan, *strangers], soon())
    assert {i: d.producer_epoch for i, d in now_.items()} == {
        i: d.producer_epoch for i, d in found.items()
    }

    # A worker that lives takes the id up again; it may be slow again.
    used_again = client.init_producer_id(idle, 60_000, soon())
    assert sweep(client, key, is_orphan, soon(), keep=[kept]) == ((), False)
    (now,) = client.describe([idle], soon()).values()
    assert now.producer_epoch == used_again.epoch + 1, "and is ended again"
