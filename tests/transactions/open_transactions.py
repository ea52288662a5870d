"""What tasks would have prepared, thousands in a second without a producer, or with one; and what
readers of committed records see of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from spark_kafka_sink.admin.call import Call, CoordinatorKey
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from spark_kafka_sink.protocol.messages.init_producer_id import InitProducerIdResponse
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.transaction_requests import add_partitions_to_txn
from tests.fakes.fake_cluster.cluster import FakeCluster
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import FOREVER
from tests.fakes.kafka_messages import init_request
from tests.real_kafka import RealKafka, consume_topic
from tests.simulation.scene import Scene
from tests.waiting import PATIENCE, wait_for

TIMEOUT_MS = int(30_000 * PATIENCE)


def one_for_each_broker(cluster: FakeCluster, ids: Iterable[str]) -> dict[int, str]:
    """The first of the transactional ids ``ids`` that a broker coordinates, by the broker."""
    found: dict[int, str] = {}
    for one in ids:
        found.setdefault(cluster.coordinator_of(one), one)
    return found


def leaders_at(
    scene: Scene, tp: TopicPartition, api: ApiKey, where: Callable[[Request], bool]
) -> list[int]:
    """The leader of ``tp`` at each such request: -1 if the marker there would be lost."""
    found: list[int] = []

    def watched(request: Request) -> bool:
        if where(request):
            found.append(scene.cluster.logs[tp].leader)
        return False

    scene.cluster.drops_markers = True
    scene.control.delay(api, 0, FOREVER, where=watched)
    return found


def open_transactions(
    client: TransactionClient, ids: Sequence[str], tp: TopicPartition
) -> list[PreparedTransaction]:
    """Of version 1: InitProducerId and AddPartitionsToTxn. Nothing is written."""
    deadline = client.clock.now_ms() + TIMEOUT_MS
    identities: dict[str, tuple[int, int]] = {}

    def initialise(i: str) -> Call[InitProducerIdResponse]:
        def error_in(response: InitProducerIdResponse) -> ErrorCode:
            identities[i] = (response.producer_id, response.producer_epoch)
            return response.error_code

        return Call(init_request(i, 60_000), CoordinatorKey(i), "it", error_in)

    def add(i: str) -> Call[AddPartitionsToTxnResponse]:
        return Call(
            add_partitions_to_txn(i, ProducerIdAndEpoch(*identities[i]), [tp]),
            CoordinatorKey(i),
            "it",
            lambda response: (
                response.results_by_topic[0].results_by_partition[0].partition_error_code
            ),
        )

    assert client.loop.run([initialise(i) for i in ids], deadline)
    assert client.loop.run([add(i) for i in ids], deadline)
    return [PreparedTransaction(i, *identities[i], 1) for i in ids]


def task_that_wrote(
    bootstrap: str,
    transactional_id: str,
    topic: str,
    *values: str,
    partition: int | None = None,
    **options: str,
) -> KafkaProducer:
    """A task's producer, whose transaction is open with these values; to be closed."""
    config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id}
    config |= {name.replace("_", "."): value for name, value in options.items()}
    producer = KafkaProducer(config)
    producer.init_transactions()
    producer.begin_transaction()
    for value in values:
        producer.send(ProducerRecord(topic, value.encode(), partition=partition))
    producer.flush()
    return producer


def fence(client: TransactionClient, ids: Sequence[str]) -> dict[str, ErrorCode | None]:
    """InitProducerId for each: what was open is aborted."""
    return dict(client.fence(ids, client.clock.now_ms() + TIMEOUT_MS))


def visible(kafka: RealKafka, topic: str, expected: Sequence[str]) -> bool:
    """A read_committed reader sees exactly these rows, once the markers are written (within
    milliseconds of the EndTxn's answer) and nothing is open.
    """
    wanted = sorted(value.encode() for value in expected)

    def shows_them() -> bool:
        found = consume_topic(kafka.bootstrap, topic, isolation="read_committed").values
        return sorted(value or b"" for value in found) == wanted

    wait_for(shows_them, 60, f"{wanted}")
    return True
