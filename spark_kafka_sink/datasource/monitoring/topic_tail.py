"""Reads the new records of a topic's partition 0, without a consumer group.

A :class:`TopicTail` begins at the end of the topic, and commits no offset. The records are written
without a transaction (``transactions/driver_transactions.py``, ``write_record``).
"""

from __future__ import annotations

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.partition_reader import PartitionReader
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.log_requests import OffsetSpec
from spark_kafka_sink.records.log_records import read_batches


class TopicTail:
    """Reads the records that are added to a topic's partition 0 after the first call of
    :meth:`new_values`. ``option`` is the name of the option that sets the topic, for the messages
    of errors.
    """

    def __init__(self, client: AdminClient, topic: str, option: str) -> None:
        self._client = client
        self._tp = TopicPartition(topic, 0)
        rights = f"READ and DESCRIBE on the topic '{topic}' ({option})"
        self._reader = PartitionReader(client, "", rights)
        self._next: int | None = None

    def new_values(self, timeout_ms: int) -> list[bytes]:
        """The values of the records since the last call, from one Fetch request. Incomplete and
        unreadable records are skipped. The first call returns an empty list.

        If the records at the current offset were deleted, the result is an empty list. The next
        call then continues at the new first offset.

        Raises AuthorizationError if a right is missing. Raises KafkaTimeoutError if the topic is
        missing, or if the leader of the partition does not respond in time.
        """
        deadline_ms = self._client.deadline(timeout_ms)
        if self._next is None:
            self._next = self._reader.offset(self._tp, OffsetSpec.LATEST, deadline_ms)
            return []
        fetched = self._reader.fetch(self._tp, self._next, deadline_ms)
        if fetched.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # The records were deleted, or the topic was created again.
            self._next = self._reader.offset(self._tp, OffsetSpec.EARLIEST, deadline_ms)
            return []
        # The next record of a stage also has the sums of a skipped record: each record has the sums
        # since the start of the stage.
        values = []
        for batch in read_batches(fetched, lambda _: True, transactional=False):
            self._next = max(self._next, batch.next_offset)
            values += [one.value for one in batch.records if one.value is not None]
        return values
