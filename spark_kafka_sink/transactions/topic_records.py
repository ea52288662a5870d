"""A record that the driver writes: in a transaction of the decision, or without one.

Owns: :class:`TopicRecord` and :func:`write_record`. Never: its content, the transaction.

The record goes to partition 0 of its topic, so that all of them have one order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_kafka_sink.admin.call import retry_code
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.driver_transactions import add_partition_call, produce_call

if TYPE_CHECKING:
    from collections.abc import Callable

    from spark_kafka_sink.admin.call import Call
    from spark_kafka_sink.admin.transaction_client import TransactionClient
    from spark_kafka_sink.base.errors import ErrorCode
    from spark_kafka_sink.protocol.control_messages import AddPartitionsToTxnResponse
    from spark_kafka_sink.protocol.produce import ProduceResponse


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record for partition 0 of ``topic``."""

    topic: str
    value: bytes = field(repr=False)

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def added(self) -> str:
        return f"AddPartitionsToTxn of {self.tp}"

    @property
    def written(self) -> str:
        return f"Produce to {self.tp}"

    def add_call(self, to: PreparedTransaction, where: str) -> Call[AddPartitionsToTxnResponse]:
        return add_partition_call(to, self.tp, self._retry_code(where), once=True)

    def calls(
        self, client: TransactionClient, to: PreparedTransaction | None
    ) -> list[Call[ProduceResponse]]:
        """``to`` None: without a transaction."""
        values = [(None, self.value)]
        return [produce_call(client, self.tp, values, self._retry_code(self.written), to)]

    def _retry_code(self, where: str) -> Callable[[ErrorCode], ErrorCode | None]:
        right = f"WRITE on the topic '{self.topic}' (reportTopic)"
        return lambda code: retry_code(code, where, right)


def write_record(client: TransactionClient, record: TopicRecord, deadline_ms: int) -> None:
    """Write ``record`` without a transaction, at least once."""
    (call,) = record.calls(client, None)
    client.loop.send_and_receive(call, deadline_ms, record.written)
