"""Writes a consumer group's offsets into a transaction of the driver, which is committed together
with the data. The offsets take effect when the transaction is committed (KIP-98).

:class:`GroupOffsets` creates the requests that add a group's offsets to a transaction.
``datasource/exactly_once/source_offsets.py`` reads the offsets. ``committer.py`` ends the
transaction.

The requests contain no member id and no generation of the group, like those of Java's
``sendOffsetsToTransaction`` with only a group id. So brokers accept the offsets even if consumers
are active in that group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.admin.call import Call, CoordinatorKey, Resend, by_size, retry_code
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata, txn_offset_commit
from spark_kafka_sink.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from spark_kafka_sink.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

#: The maximum size of the offsets of one request, in bytes, as they are stored in
#: __consumer_offsets. There they must fit into one batch of at most 1 MiB (max.message.bytes).
_MOST_BYTES: Final = 512 * 1024
#: The size of one stored offset, without the names of group and topic and without the metadata.
_BYTES_OF_AN_OFFSET: Final = 80
_READ: Final = "READ on the topic whose offsets are committed"
#: The time in ms after which a partition counts as missing. The group's coordinator may learn of a
#: partition of a new topic only after some time.
_MISSING_TIMEOUT_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The offsets of the consumer group ``group_id`` after a batch. The partitions must be in the
    cluster that the sink writes to.

    The transaction that commits the offsets also writes to a partition of the topic
    __consumer_offsets. DescribeTransactions omits this partition if the principal may not see the
    topic. Then
    no check before the commit shows whether this partition has a leader.
    """

    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]

    def add_call(self, to: PreparedTransaction) -> Call[AddOffsetsToTxnResponse]:
        """Creates the AddOffsetsToTxn request. ``to`` is the transaction that the offsets are added
        to. If this transaction has version 1, the request must be sent before the TxnOffsetCommit
        requests.
        """
        # (With version 2, the group's coordinator adds the group when it gets TxnOffsetCommit v5:
        # KIP-890.)
        one = to.transactional_id
        return Call(
            AddOffsetsToTxnRequest(
                transactional_id=one,
                producer_id=to.producer_id,
                producer_epoch=to.producer_epoch,
                group_id=self.group_id,
            ),
            CoordinatorKey(one),
            f"AddOffsetsToTxn of group '{self.group_id}', transactional id '{one}'",
            lambda response: response.error_code,
            resend=Resend.AFTER_CODE,
        )

    def calls(
        self, client: TransactionClient, to: PreparedTransaction
    ) -> list[Call[TxnOffsetCommitResponse]]:
        """Creates the TxnOffsetCommit requests. ``to`` is the transaction that the offsets are
        added to.

        If the cluster does not have one of the partitions, a request fails after 5 seconds with
        InvalidMetadataError.
        """
        # (TxnOffsetCommit is idempotent, so it may be sent again.)
        what = f"TxnOffsetCommit of group '{self.group_id}'"
        return [
            Call(
                txn_offset_commit(to, self.group_id, dict(part)),
                CoordinatorKey(self.group_id, CoordinatorType.GROUP),
                what,
                _error_in_offsets(client, what),
            )
            for part in by_size(self.offsets.items(), self._bytes, _MOST_BYTES)
        ]

    def _bytes(self, offset: tuple[TopicPartition, OffsetAndMetadata]) -> int:
        texts = self.group_id, offset[0].topic, offset[1].metadata
        return _BYTES_OF_AN_OFFSET + sum(len(text.encode()) for text in texts)


def _error_in_offsets(
    client: TransactionClient, what: str
) -> Callable[[TxnOffsetCommitResponse], ErrorCode]:
    """Creates a function that checks a response to TxnOffsetCommit. If the request must be sent
    again, the function returns the error code that is the reason. It returns NONE if the response
    has no error.

    The error of a partition is handled in one of three ways:

    * If it can be retried, its code is returned.
    * If the cluster does not have the partition, its code is returned for the first 5 seconds,
      because the partition may be new. After that it is raised as an exception.
    * Any other error is raised as an exception.

    ``what`` is the name of the request, for the text of the exception.
    """
    unknown_until: int | None = None

    def error_in(response: TxnOffsetCommitResponse) -> ErrorCode:
        nonlocal unknown_until
        again: ErrorCode | None = None
        errors = (
            (TopicPartition(topic.name, one.partition_index), one.error_code)
            for topic in response.topics
            for one in topic.partitions
        )
        for tp, code in errors:
            where = f"{what}, of {tp}"
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                now = client.clock.now_ms()
                unknown_until = unknown_until or now + _MISSING_TIMEOUT_MS
                if now >= unknown_until:
                    raise code.error(
                        where,
                        "the cluster that is written to does not have this partition, so it "
                        "can't keep an offset of it",
                    )
            of_topic = code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
            again = retry_code(code, where, _READ if of_topic else "") or again
        return again or ErrorCode.NONE

    return error_in
