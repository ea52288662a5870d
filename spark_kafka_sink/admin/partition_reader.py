"""Reads a partition: where it begins and ends, and its batches.

Owns: :class:`PartitionReader`, the two requests to the partition's leader. Never: what a batch
means, which of its records are committed.
"""

from __future__ import annotations

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.call import Call, Leader
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import (
    FetchedPartition,
    OffsetSpec,
    fetch,
    list_offsets,
    listed_offset,
)
from spark_kafka_sink.protocol.messages.fetch import FetchResponse


class PartitionReader:
    """Over the connections of ``client``, which knows the topic. ``what`` precedes a partition in
    messages; ``rights`` are what an AuthorizationError names.
    """

    def __init__(self, client: AdminClient, what: str, rights: str) -> None:
        self._client = client
        self._what = what
        self._rights = rights

    def offset(self, tp: TopicPartition, spec: OffsetSpec, deadline_ms: int) -> int:
        """The partition's first offset, or the one behind its last."""
        call = Call(
            list_offsets(tp, spec),
            Leader(tp),
            f"ListOffsets of {self._what}{tp}",
            lambda response: listed_offset(response).error_code,
            self._rights,
        )
        return listed_offset(self._client.loop.send_and_receive(call, deadline_ms)).offset

    def fetch(self, tp: TopicPartition, offset: int, deadline_ms: int) -> FetchedPartition:
        """Batches from ``offset`` on, of any transaction; or OFFSET_OUT_OF_RANGE."""
        request = fetch(tp, offset)

        def error_in(response: FetchResponse) -> ErrorCode:
            code = FetchedPartition.of(request, response).error
            return ErrorCode.NONE if code is ErrorCode.OFFSET_OUT_OF_RANGE else code

        what = f"Fetch of {self._what}{tp}"
        call = Call(request, Leader(tp), what, error_in, self._rights)
        return FetchedPartition.of(request, self._client.loop.send_and_receive(call, deadline_ms))
