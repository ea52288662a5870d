"""Transactions that the driver itself writes. Such a transaction has the offsets of a consumer
group, or the report of a batch (a record for the topic of the option reportTopic).

:func:`prepare` begins the transaction, writes into it, and leaves it open. ``committer.py`` commits
or aborts it together with the tasks' transactions.

:func:`add_partition_call` and :func:`produce_call` create the requests AddPartitionsToTxn and
Produce. The writer of the commit log (``log_writer.py``) also uses these two functions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.admin.call import Call, CoordinatorKey, Leader, Resend
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from spark_kafka_sink.protocol.produce import PartitionProduceData, ProduceRequest, ProduceResponse
from spark_kafka_sink.protocol.producer_ids import (
    NO_PRODUCER_ID,
    PreparedTransaction,
    ProducerIdAndEpoch,
)
from spark_kafka_sink.protocol.transaction_requests import add_partitions_to_txn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spark_kafka_sink.admin.transaction_client import TransactionClient
    from spark_kafka_sink.transactions.offset_commits import GroupOffsets

#: The last version of Produce whose batches are of transaction version 1 (KIP-890).
_LAST_PRODUCE_OF_VERSION_1: Final = 11
_LATEST_PRODUCE: Final = 12


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record to write to partition 0 of ``topic``. All such records are in one partition, so
    consumers read them in the order of their writes.

    ``option`` is the option whose value is the topic, for error messages.
    """

    topic: str
    value: bytes = field(repr=False)
    key: bytes | None = None
    option: str = "reportTopic"

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    @property
    def right(self) -> str:
        return f"WRITE on the topic '{self.topic}' ({self.option})"

    def add_call(self, to: PreparedTransaction) -> Call[AddPartitionsToTxnResponse]:
        """Creates the AddPartitionsToTxn request. ``to`` is the transaction that the record is
        written in. If this transaction has version 1, the request must be sent before the Produce
        request.
        """
        return add_partition_call(to, self.tp, self.right, resend=Resend.AFTER_CODE)

    def calls(
        self, client: TransactionClient, to: PreparedTransaction | None
    ) -> list[Call[ProduceResponse]]:
        """Creates the Produce request for the record. ``to`` is the transaction that the record is
        written in, or None to write it without a transaction. The list has only this request.
        """
        return [produce_call(client, self.tp, [(self.key, self.value)], self.right, to)]


def prepare(
    client: TransactionClient,
    transactional_id: str,
    content: TopicRecord | GroupOffsets,
    deadline_ms: int,
) -> PreparedTransaction:
    """Begins a transaction with the id ``transactional_id``, and writes ``content`` in it. Returns
    the open transaction.

    After an error the transaction may be open, and the caller must end it. Raises one of these
    errors:

    * AuthorizationError: a right is missing. The text has the right.
    * ProducerFencedError: another producer has taken over the id.
    * ConfigError: transaction.timeout.ms is above the broker's limit.
    * KafkaTimeoutError: there is no definite response.
    * ApiError, for any other error code of a broker.
    """
    version = client.transaction_version(deadline_ms)
    # InitProducerId and AddPartitionsToTxn are never sent twice, because the first request may
    # arrive after the second. A late InitProducerId would abort the transaction. A late
    # AddPartitionsToTxn, after the commit, would open another transaction.
    producer = client.init_producer_id(
        transactional_id,
        client.config.transaction_timeout_ms,
        deadline_ms,
        resend=Resend.AFTER_CODE,
    )
    transaction = PreparedTransaction(transactional_id, *producer, version)
    if version < 2:
        added: Call[Any] = content.add_call(transaction)
        client.loop.send_and_receive(added, deadline_ms)
    calls: Sequence[Call[Any]] = content.calls(client, transaction)
    client.loop.receive_all(calls, deadline_ms)
    return transaction


def write_record(client: TransactionClient, record: TopicRecord, deadline_ms: int) -> None:
    """Writes ``record`` without a transaction. After an error the record may be in the topic, and a
    retry may write it twice.
    """
    (call,) = record.calls(client, None)
    client.loop.send_and_receive(call, deadline_ms)


def add_partition_call(
    to: PreparedTransaction, tp: TopicPartition, right: str, *, resend: Resend = Resend.ALWAYS
) -> Call[AddPartitionsToTxnResponse]:
    """Creates the AddPartitionsToTxn request that adds a partition to a transaction. ``tp`` is the
    partition, and ``to`` is the transaction. Only transactions of version 1 need this request
    (KIP-890).
    """
    one = to.transactional_id
    return Call(
        add_partitions_to_txn(one, ProducerIdAndEpoch(to.producer_id, to.producer_epoch), [tp]),
        CoordinatorKey(one),
        f"AddPartitionsToTxn of {tp}, transactional id '{one}'",
        lambda response: response.results_by_topic[0].results_by_partition[0].partition_error_code,
        right,
        resend=resend,
    )


def produce_call(
    client: TransactionClient,
    tp: TopicPartition,
    records: Sequence[tuple[bytes | None, bytes | None]],
    right: str,
    within: PreparedTransaction | None,
    sequence: int = 0,
) -> Call[ProduceResponse]:
    """Creates the Produce request for ``records`` (pairs of key and value), all in one record batch
    for partition ``tp``.

    * ``within``: the transaction of the record batch. None if it is written without a transaction.
    * ``sequence``: the batch's first sequence number in the transaction.
    * ``right``: the right (ACL) that the principal needs, such as "WRITE on the topic 'orders'". It
      is shown in the hint of an AuthorizationError.
    """
    # Imported here, so that a commit without exactly-once doesn't load Arrow.
    from spark_kafka_sink.records.single_record import batch_of

    producer, version = NO_PRODUCER_ID, 2
    if within is not None:
        producer = ProducerIdAndEpoch(within.producer_id, within.producer_epoch)
        version = within.transaction_version
    batch = batch_of(records, client.clock.wall_ms(), producer, sequence)

    def error_in(response: ProduceResponse) -> ErrorCode:
        code = response.partitions[0].error
        # A duplicate: an earlier request without a response had arrived.
        return ErrorCode.NONE if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER else code

    data = (PartitionProduceData(tp, batch, sum(map(len, batch))),)
    latest = _LATEST_PRODUCE if version >= 2 else _LAST_PRODUCE_OF_VERSION_1
    id_ = None if within is None else within.transactional_id
    request = ProduceRequest(-1, client.config.request_timeout_ms, data, id_, max_version=latest)
    return Call(request, Leader(tp), f"Produce to {tp}", error_in, right)
