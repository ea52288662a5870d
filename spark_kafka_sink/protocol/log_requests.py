"""Requests for reading a partition: ListOffsets, Fetch and DescribeProducers.

The driver sends these requests. Each of them is for one partition. ``records/log_records.py`` reads
the fetched bytes. Fetch sessions are not used, because few partitions are read, and each only a few
times.

The isolation level of a fetch depends on the reader:

* The reader of the commit log also needs uncommitted records: READ_UNCOMMITTED.
* Other readers need the last stable offset and the list of aborted transactions: READ_COMMITTED, as
  for a consumer.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from spark_kafka_sink.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from spark_kafka_sink.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

#: A consumer, not a replica.
_NO_REPLICA: Final = -1
#: Reads everything up to the high watermark, including uncommitted records; or up to the last
#: stable offset, with the list of aborted transactions.
_READ_UNCOMMITTED: Final = 0
_READ_COMMITTED: Final = 1
_NO_RECORDS: Final = memoryview(b"")


class OffsetSpec(IntEnum):
    """The offset that a ListOffsets request selects: the first offset of a partition, or its end.
    The value of a member is the special timestamp that selects this offset in the request.
    """

    LATEST = -1
    EARLIEST = -2


def list_offsets(tp: TopicPartition, spec: OffsetSpec = OffsetSpec.LATEST) -> ListOffsetsRequest:
    """Creates the request for the first or the last offset of ``tp``. The request is sent to the
    leader of ``tp``.

    Versions above 9 are needed only for logs in remote storage. Versions below 2 have no isolation
    level.
    """
    partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=int(spec))
    return ListOffsetsRequest(
        replica_id=_NO_REPLICA,
        isolation_level=_READ_UNCOMMITTED,
        topics=[ListOffsetsTopic(name=tp.topic, partitions=[partition])],
    )


def listed_offset(response: ListOffsetsResponse) -> ListOffsetsPartitionResponse:
    """Reads the only partition of a ListOffsets response. If the request was for LATEST, the
    partition's offset in the response is the high watermark.
    """
    return response.topics[0].partitions[0]


def fetch(
    tp: TopicPartition,
    offset: int,
    *,
    max_bytes: int = 4 * 1024 * 1024,
    read_committed: bool = False,
) -> FetchRequest:
    """Creates the request for the batches of ``tp`` from ``offset`` on. The request is sent to the
    leader of ``tp``.

    The broker returns about ``max_bytes``, but always at least the first batch, even if that is
    larger. The last batch can be incomplete. The broker does not wait for new batches, and keeps no
    fetch session.
    """
    # Versions from 13 on use topic ids. They are not needed, because every broker up to 4.x accepts
    # version 12. Versions below 10 can't read topics with zstd (UNSUPPORTED_COMPRESSION_TYPE).
    partition = FetchPartition(
        partition=tp.partition, fetch_offset=offset, partition_max_bytes=max_bytes
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=16 * 1024 * 1024,
        isolation_level=_READ_COMMITTED if read_committed else _READ_UNCOMMITTED,
        topics=[FetchTopic(topic=tp.topic, partitions=[partition])],
    )


@dataclass(frozen=True, slots=True)
class FetchedPartition:
    """The fetched batches of one partition, or the error code of the response.

    * ``records``: the batches, as a view of the response's bytes. The first batch can begin before
      ``fetch_offset``, and the last batch can be incomplete.
    * ``last_stable_offset``: -1 after an error. ``records`` is then empty.
    * ``aborted``: the aborted transactions as pairs of producer id and first offset, if the
      isolation level was READ_COMMITTED. The records of these transactions are in ``records`` as
      well. The reader must skip them.
    """

    error: ErrorCode
    fetch_offset: int
    records: memoryview = _NO_RECORDS
    last_stable_offset: int = -1
    aborted: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, request: FetchRequest, response: FetchResponse) -> FetchedPartition:
        """Reads the only partition of the response to ``request``."""
        offset = request.topics[0].partitions[0].fetch_offset
        if response.error_code is not ErrorCode.NONE:
            return cls(response.error_code, offset)
        one = response.responses[0].partitions[0]
        if one.error_code is not ErrorCode.NONE:
            return cls(one.error_code, offset)
        listed = one.aborted_transactions if request.isolation_level == _READ_COMMITTED else ()
        aborted = tuple((each.producer_id, each.first_offset) for each in listed)
        return cls(ErrorCode.NONE, offset, one.records, one.last_stable_offset, aborted)


def describe_producers(tp: TopicPartition) -> DescribeProducersRequest:
    """Creates the request for all producers that the leader of ``tp`` has in memory for ``tp``. The
    request is sent to this leader.

    The response shows which transactions are open on the partition. If no coordinator lists such a
    transaction, it is a hanging transaction.
    """
    topic = TopicRequest(name=tp.topic, partition_indexes=[tp.partition])
    return DescribeProducersRequest(topics=[topic])


def described(response: DescribeProducersResponse) -> PartitionResponse:
    """Reads the only partition of a DescribeProducers response.

    In all fields of a producer except the producer id, -1 means that there is no value.
    ``current_txn_start_offset`` is the first offset of the producer's open transaction. The last
    stable offset of the partition is never above this first offset.
    """
    return response.topics[0].partitions[0]
