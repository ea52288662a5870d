"""Reads a partition: its first offset, its end offset, and its batches.

:class:`PartitionReader` sends ListOffsets and Fetch requests to the leader of a partition. It
returns batches as bytes. It does not decode them, and does not decide which records are committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from spark_kafka_sink.protocol.messages.fetch import FetchRequest, FetchResponse
from spark_kafka_sink.protocol.messages.list_offsets import ListOffsetsResponse


class PartitionReader:
    """Reads partitions with the connections of ``client``. The metadata of ``client`` must have the
    topic.

    ``what`` is put before the name of a partition in error messages. ``rights`` are the rights that
    the hint of an AuthorizationError names.
    """

    def __init__(self, client: AdminClient, what: str, rights: str) -> None:
        self._client = client
        self._what = what
        self._rights = rights

    def offset(self, tp: TopicPartition, spec: OffsetSpec, deadline_ms: int) -> int:
        """Requests the first offset of a partition (EARLIEST), or its end offset (LATEST). The end
        offset is the high watermark: the offset after the last record that consumers can read.
        """
        call = self._offset_call(tp, spec)
        return listed_offset(self._client.loop.send_and_receive(call, deadline_ms)).offset

    def fetch(self, tp: TopicPartition, offset: int, deadline_ms: int) -> FetchedPartition:
        """Requests the next batches of a partition from ``offset`` on, some MiB at most. They
        include the batches of open and aborted transactions. The ``error`` of the result may be
        OFFSET_OUT_OF_RANGE.
        """
        call, request = self._fetch_call(tp, offset)
        return FetchedPartition.of(request, self._client.loop.send_and_receive(call, deadline_ms))

    def end_and_fetch(
        self, tp: TopicPartition, offset: int, deadline_ms: int
    ) -> tuple[int, FetchedPartition | None]:
        """Requests the end offset of a partition and its next batches from ``offset`` on, at the
        same time. Returns the end offset and the batches.

        The leader determines the end offset first, and then reads the batches. If one of the
        requests had to be sent again, this order is not certain, so the batches are None.
        """
        # The leader handles the requests of a connection in order: first ListOffsets, then Fetch.
        # If one of them had to be sent again, the order is not known.
        end = self._offset_call(tp, OffsetSpec.LATEST)
        fetched, request = self._fetch_call(tp, offset)
        calls: list[Call[Any]] = [end, fetched]
        self._client.loop.receive_all(calls, deadline_ms)
        assert end.response is not None
        assert fetched.response is not None
        in_order = end.sent == fetched.sent == 1
        found = FetchedPartition.of(request, fetched.response) if in_order else None
        return listed_offset(end.response).offset, found

    def fetch_committed(
        self, positions: Sequence[tuple[TopicPartition, int]], deadline_ms: int
    ) -> list[FetchedPartition | str]:
        """Requests batches of many partitions in parallel, up to the last stable offset.
        ``positions`` has each partition with the offset of its first batch.

        Returns one result for each partition, in the same order: its batches with the list of
        aborted transactions, or a text with the reason why the batches did not arrive in time. The
        ``error`` of a result may be OFFSET_OUT_OF_RANGE.
        """
        fetches = [self._fetch_call(tp, offset, read_committed=True) for tp, offset in positions]
        self._client.loop.run([call for call, _ in fetches], deadline_ms)
        return [
            self._client.loop.timeout([call]).message
            if call.response is None
            else FetchedPartition.of(request, call.response)
            for call, request in fetches
        ]

    def _offset_call(self, tp: TopicPartition, spec: OffsetSpec) -> Call[ListOffsetsResponse]:
        return Call(
            list_offsets(tp, spec),
            Leader(tp),
            f"ListOffsets of {self._what}{tp}",
            lambda response: listed_offset(response).error_code,
            self._rights,
        )

    def _fetch_call(
        self, tp: TopicPartition, offset: int, *, read_committed: bool = False
    ) -> tuple[Call[FetchResponse], FetchRequest]:
        request = fetch(tp, offset, read_committed=read_committed)

        def error_in(response: FetchResponse) -> ErrorCode:
            code = FetchedPartition.of(request, response).error
            return ErrorCode.NONE if code is ErrorCode.OFFSET_OUT_OF_RANGE else code

        what = f"Fetch of {self._what}{tp}"
        return Call(request, Leader(tp), what, error_in, self._rights), request
