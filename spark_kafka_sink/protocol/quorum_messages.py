"""What the active controller says of its quorum: DescribeQuorum (KIP-595, KIP-836).

Owns: this request with its answer, of which one thing is read: the controller's time. It is the
only API that tells a broker's clock and changes nothing. Never: what a difference means
(``datasource/topic_checks.py``). It is not part of a record's way: ``kprod check`` asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.bodies import check_version, once_each, read_body
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import WireReader, error_code

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages.describe_quorum import PartitionDataResponse

__all__ = ["DescribeQuorumRequest", "DescribeQuorumResponse"]

#: The log of KRaft's metadata has one partition (Java: ``Topic.CLUSTER_METADATA_TOPIC_NAME``).
_METADATA_LOG: Final = TopicPartition("__cluster_metadata", 0)


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
    """``leader`` is the active controller's id, -1 when there is none. ``leader_time_ms`` is its
    wall clock as it answered, in milliseconds since the epoch; None when it does not report it.
    """

    error: ErrorCode
    leader: int = -1
    leader_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest:
    """Any broker of a KRaft cluster since 3.3 hands it on. Needs DESCRIBE on the cluster."""

    api_key = ApiKey.DESCRIBE_QUORUM
    versions = VersionRange(1, 1)

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        message = messages.describe_quorum
        partition = message.PartitionData(partition_index=_METADATA_LOG.partition)
        topic = message.TopicData(topic_name=_METADATA_LOG.topic, partitions=[partition])
        return [message.DescribeQuorumRequest(topics=[topic]).encode(version)]

    def decode(self, version: int, body: memoryview) -> DescribeQuorumResponse:
        """The answer; one that is an error names no partition."""

        def parse(reader: WireReader, version: int) -> DescribeQuorumResponse:
            answer = messages.describe_quorum.DescribeQuorumResponse.read(reader, version)
            error = error_code(answer.error_code)
            if error is not ErrorCode.NONE:
                return DescribeQuorumResponse(error)
            found = once_each(
                (
                    (TopicPartition(topic.topic_name, one.partition_index), _quorum(one))
                    for topic in answer.topics
                    for one in topic.partitions
                ),
                (_METADATA_LOG,),
            )
            return found[_METADATA_LOG]

        return read_body(self, version, body, parse)


def _quorum(one: PartitionDataResponse) -> DescribeQuorumResponse:
    times = [
        voter.last_caught_up_timestamp
        for voter in one.current_voters
        if voter.replica_id == one.leader_id and voter.last_caught_up_timestamp > 0
    ]
    return DescribeQuorumResponse(
        error_code(one.error_code), max(-1, one.leader_id), times[0] if times else None
    )
