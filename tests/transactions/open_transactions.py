"""Open transactions without a producer: what tasks would have prepared, thousands in a second."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.admin.call import Call, CoordinatorKey
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.transaction_requests import add_partitions_to_txn
from tests.fakes.kafka_messages import init_request

TIMEOUT_MS = 30_000


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


def fence(client: TransactionClient, ids: Sequence[str]) -> dict[str, ErrorCode | None]:
    """InitProducerId for each: what was open is aborted."""
    return dict(client.fence(ids, client.clock.now_ms() + TIMEOUT_MS))
