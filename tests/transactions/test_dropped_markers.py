"""Markers that Kafka drops: a partition has no leader when its transaction is committed.

Kafka 4.3.1: the coordinator takes it for a deleted one, and says CompleteCommit. Any client's
transaction then hangs in that partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import KafkaTimeoutError
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.committer import Committer
from spark_kafka_sink.transactions.operations.blockers import blockers
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.real_kafka import Consumed, RealKafka
from tests.transactions.open_transactions import task_that_wrote
from tests.transactions.operator_stage import Stage, set_stage
from tests.waiting import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

NODE = 2


@pytest.fixture
def stage(kafka3: RealKafka) -> Iterator[Stage]:
    config = parse_producer_config({"bootstrap.servers": kafka3.bootstrap, "max.block.ms": "20000"})
    topic = f"alone-{uuid.uuid4().hex[:8]}"
    new = NewTopic(topic, num_partitions=1, replica_assignment=[[NODE]])
    admin = ConfluentAdmin({"bootstrap.servers": kafka3.bootstrap})
    admin.create_topics([new])[topic].result(60)
    log = kafka3.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    with TransactionClient(config) as client, set_stage(kafka3, client, (topic, log)) as found:
        yield found


def prepared(kafka3: RealKafka, stage: Stage) -> PreparedTransaction:
    """With a row, on the node that will be lost; its coordinator is on another."""
    ids = (str(TransactionalId(stage.prefix, "run-1", "w", n, 2)) for n in range(100))
    name = next(i for i in ids if stage.client.loop.coordinators([i], stage.soon())[i].id != NODE)
    task = task_that_wrote(
        kafka3.bootstrap, name, stage.topic, "row", transaction_timeout_ms="600000"
    )
    with task:
        return task.prepare()


def lose_leader(kafka3: RealKafka, stage: Stage) -> None:
    kafka3.node(NODE).freeze()

    def is_leaderless() -> bool:
        stage.client.loop.metadata.request_update()
        cluster = stage.client.describe_topics((stage.topic,), timeout_ms=20_000)
        return cluster.topics[stage.topic][0].leader < 0

    wait_for(is_leaderless, 120, "a partition without a leader", pause=0.5)


def test_a_commit_without_markers_is_told_and_no_abort_advised(
    kafka3: RealKafka, stage: Stage
) -> None:
    transaction = prepared(kafka3, stage)
    stage.write(stage.state([transaction]))
    report = stage.operator.plan_commit(stage.prefix)
    lose_leader(kafka3, stage)
    deadline = stage.client.deadline(60_000)
    # (As if the leader had been lost after the look.)
    now_ms = stage.client.clock.now_ms()
    stage.client.end([transaction], committed=True, deadline_ms=deadline, looked_ms=now_ms)
    with pytest.raises(KafkaTimeoutError, match="whether its rows are visible is not known"):
        stage.operator.commit(report)
    kafka3.node(NODE).thaw()
    (left,) = wait_for(
        lambda: blockers(stage.client, stage.log, stage.topic, stage.client.deadline(60_000)),
        60,
        "what hangs",
    )
    assert left.owner == f"{transaction.transactional_id}, committed without its marker"
    assert "an abort loses its rows" in left.advice
    # A command that comes later finds it, too: coordinators have forgotten the partitions.
    stage.write(stage.state([transaction]))
    report = stage.operator.plan_commit(stage.prefix)
    assert [one.found.partitions for one in report.transactions] == [()]
    with pytest.raises(KafkaTimeoutError, match="its rows in 1 partitions"):
        stage.operator.commit(report)


def test_a_commit_waits_until_its_partition_has_a_leader(
    kafka3: RealKafka, stage: Stage, consume: Callable[..., Consumed]
) -> None:
    transaction = prepared(kafka3, stage)
    stage.write(stage.state())
    lose_leader(kafka3, stage)
    batch = Batch(8, (transaction,), Payload(1, 3, stage.topic))
    config = replace(stage.client.config, max_block_ms=180_000)
    owner = Owner(stage.prefix, "run-1", "query", 2)
    with TransactionClient(config) as client, ThreadPoolExecutor(1) as pool:
        committer = Committer(CommitLog(client, stage.log_topic), client)
        commit = pool.submit(committer.commit, owner, batch)
        with pytest.raises(TimeoutError):
            commit.result(5)
        kafka3.node(NODE).thaw()
        assert commit.result(180) is Commit.COMMITTED
    assert consume(stage.topic, isolation="read_committed").values == [b"row"]
