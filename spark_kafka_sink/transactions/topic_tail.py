"""The records that are added to a topic, for who follows it: no transactions, partition 0.

Owns: :class:`TopicTail`, the reading side of :func:`driver_transactions.write_record`. Never: a
consumer group, a committed offset: it begins at the end, each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spark_kafka_sink.admin.call import Call, Leader, retry_code
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.fetch_messages import (
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    OffsetSpec,
)
from spark_kafka_sink.records.log_records import read_batches

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient


class TopicTail:
    """``option`` names the topic, for an error."""

    def __init__(self, client: TransactionClient, topic: str, option: str) -> None:
        self._client = client
        self._tp = TopicPartition(topic, 0)
        self._right = f"READ and DESCRIBE on the topic '{topic}' ({option})"
        self._next: int | None = None

    def new_values(self, timeout_ms: int) -> list[bytes]:
        """The values of records with a key since the last call, of one Fetch; of the first call
        none. What is cut off or can't be read is skipped: newer records replace it.

        Raises AuthorizationError, KafkaTimeoutError, and what a missing topic raises.
        """
        deadline_ms = self._client.deadline(timeout_ms)
        if self._next is None:
            self._next = self._offset(OffsetSpec.LATEST, deadline_ms)
            return []
        fetched = self._fetch(self._next, deadline_ms)
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # Deleted by then, or the topic is another one.
            self._next = self._offset(OffsetSpec.EARLIEST, deadline_ms)
            return []
        values = []
        for batch in read_batches(fetched, lambda _: True, transactional=False):
            self._next = max(self._next, batch.next_offset)
            values += [one.value for one in batch.records if one.value is not None]
        return values

    def _offset(self, spec: OffsetSpec, deadline_ms: int) -> int:
        where = f"ListOffsets of {self._tp}"
        call = Call(
            ListOffsetsRequest((self._tp,), spec),
            Leader(self._tp),
            lambda response: retry_code(response.partitions[self._tp].error, where, self._right),
        )
        found = self._client.loop.send_and_receive(call, deadline_ms, where)
        return found.partitions[self._tp].offset

    def _fetch(self, offset: int, deadline_ms: int) -> FetchedPartition:
        where = f"Fetch of {self._tp}"

        def handle_response(response: FetchResponse) -> ErrorCode | None:
            code = response.error
            if code is ErrorCode.NONE:
                code = response.partitions[self._tp].error
                if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    return None
            return retry_code(code, where, self._right)

        request = FetchRequest((FetchPartition(self._tp, offset),), max_wait_ms=0)
        call = Call(request, Leader(self._tp), handle_response)
        found = self._client.loop.send_and_receive(call, deadline_ms, where)
        return found.partitions[self._tp]
