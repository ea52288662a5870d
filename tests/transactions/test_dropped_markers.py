"""Markers that Kafka drops: a partition has no leader when its transaction is committed.

Kafka 4.3.1: the coordinator takes it for a deleted one, and says CompleteCommit. Any client's
transaction then hangs in that partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient as ConfluentAdmin
from confluent_kafka.admin import NewTopic

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import KafkaTimeoutError
from spark_kafka_sink.cli.operations.blockers import blockers
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.real_kafka import RealKafka
from tests.transactions.operator_stage import Stage, set_stage
from tests.waiting import wait_for

pytestmark = pytest.mark.long

NODE = 2


@pytest.fixture
def stage(kafka3: RealKafka) -> Iterator[Stage]:
    config = ProducerConfig.parse({"bootstrap.servers": kafka3.bootstrap, "max.block.ms": "20000"})
    topic = f"alone-{uuid.uuid4().hex[:8]}"
    new = NewTopic(topic, num_partitions=1, replica_assignment=[[NODE]])
    admin = ConfluentAdmin({"bootstrap.servers": kafka3.bootstrap})
    admin.create_topics([new])[topic].result(60)
    log = kafka3.unique_topic("commits", 1, {"cleanup.policy": "compact"})
    with TransactionClient(config) as client, set_stage(kafka3, client, (topic, log)) as found:
        yield found


def test_a_commit_without_markers_is_told_and_no_abort_advised(
    kafka3: RealKafka, stage: Stage
) -> None:
    ids = (str(TransactionalId(stage.prefix, "run-1", "w", n)) for n in range(100))
    name = next(i for i in ids if stage.client.loop.coordinators([i], stage.soon())[i].id != NODE)
    options = {"bootstrap.servers": kafka3.bootstrap, "transactional.id": name}
    with KafkaProducer(options) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(ProducerRecord(stage.topic, b"row"))
        prepared = producer.prepare()
    stage.write(stage.state([prepared]))
    report = stage.operator.plan_commit(stage.prefix)
    kafka3.node(NODE).freeze()

    def is_leaderless() -> bool:
        stage.client.loop.metadata.request_update()
        cluster = stage.client.describe_topics((stage.topic,), timeout_ms=20_000)
        return cluster.topics[stage.topic][0].leader < 0

    wait_for(is_leaderless, 120, "a partition without a leader", pause=0.5)
    with pytest.raises(KafkaTimeoutError, match="whether its rows are visible is not known"):
        stage.operator.commit(report)
    kafka3.node(NODE).thaw()
    deadline = stage.client.deadline(60_000)
    (left,) = wait_for(
        lambda: blockers(stage.client, stage.log, stage.topic, deadline), 60, "what hangs"
    )
    assert left.owner == f"{name}, committed without its marker"
    assert "an abort loses its rows" in left.advice
