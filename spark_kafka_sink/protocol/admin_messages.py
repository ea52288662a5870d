"""What the driver's preflight and ``kprod check`` request: DescribeConfigs (KIP-133, KIP-226),
DescribeQuorum (KIP-595, KIP-836), and Metadata for the names of all topics.

Owns: these requests and their responses. Of the quorum only the active controller's time is read:
DescribeQuorum is the only API that returns a broker's clock and changes nothing. Never: what a
config, or a difference between clocks, means (``datasource/checks/topic_checks.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.bodies import ControlRequest, Message, once_each
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages import describe_configs, describe_quorum, metadata
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, error_of

__all__ = [
    "ConfigResource",
    "ConfigResourceType",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "DescribeQuorumRequest",
    "DescribeQuorumResponse",
    "ResourceConfigs",
    "TopicNamesRequest",
    "TopicNamesResponse",
]

#: A broker has some 350.
_MOST_SETTINGS: Final = 1_000
#: The log of KRaft's metadata has one partition (Java: ``Topic.CLUSTER_METADATA_TOPIC_NAME``).
_METADATA_LOG: Final = TopicPartition("__cluster_metadata", 0)


@dataclass(frozen=True, slots=True)
class TopicNamesResponse:
    """``names`` of topics, in the broker's order."""

    names: tuple[str, ...]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class TopicNamesRequest(ControlRequest[TopicNamesResponse]):
    """The names of all topics that the principal may DESCRIBE. Its response is as large as the
    cluster, so it is for an error of the driver's, never for a task.
    """

    api_key = ApiKey.METADATA
    versions = VersionRange(4, 13)

    def message(self, version: int) -> Message:
        return metadata.MetadataRequest(topics=None, allow_auto_topic_creation=False)

    def read(self, reader: WireReader, version: int) -> TopicNamesResponse:
        answer = metadata.MetadataResponse.read(reader, version)
        names = tuple(topic.name for topic in answer.topics if topic.name is not None)
        return TopicNamesResponse(names, max(0, answer.throttle_time_ms))


class ConfigResourceType(IntEnum):
    """The kinds of resources that are requested here (Java's ``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4


class ConfigResource(NamedTuple):
    """A topic by its name, or a broker by its id in digits."""

    type: ConfigResourceType
    name: str


@dataclass(frozen=True, slots=True)
class ResourceConfigs:
    """``values`` by the setting's name, defaults included; None is unset, or a secret.

    Empty when ``error`` is not NONE; ``message`` is the broker's text.
    """

    error: ErrorCode
    values: Mapping[str, str | None]
    message: str | None = None


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    """``resources``: every one that was requested."""

    resources: Mapping[ConfigResource, ResourceConfigs]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest(ControlRequest[DescribeConfigsResponse]):
    """Configs of ``resources``: any broker returns a topic's, only the broker itself a broker's.

    ``names`` None requests all; the broker silently omits unknown names.
    Needs DESCRIBE_CONFIGS on the topic, or on the cluster for a broker.
    """

    resources: tuple[ConfigResource, ...]
    names: tuple[str, ...] | None = None

    api_key = ApiKey.DESCRIBE_CONFIGS
    versions = VersionRange(1, 4)

    def message(self, version: int) -> Message:
        resource = describe_configs.DescribeConfigsResource
        return describe_configs.DescribeConfigsRequest(
            resources=[
                resource(
                    resource_type=int(one.type),
                    resource_name=one.name,
                    configuration_keys=self.names,
                )
                for one in dict.fromkeys(self.resources)
            ]
        )

    def read(self, reader: WireReader, version: int) -> DescribeConfigsResponse:
        """The response, which has every resource of this request once and no other."""
        requested = {(int(resource.type), resource.name): resource for resource in self.resources}
        answer = describe_configs.DescribeConfigsResponse.read(reader, version)
        found = once_each(
            (
                ((result.resource_type, result.resource_name), _resource_configs(result))
                for result in answer.results
            ),
            requested,
            "a resource",
        )
        return DescribeConfigsResponse(
            {requested[key]: configs for key, configs in found.items()},
            max(0, answer.throttle_time_ms),
        )


def _resource_configs(result: describe_configs.DescribeConfigsResult) -> ResourceConfigs:
    error = error_of(result.error_code)
    if len(result.configs) > _MOST_SETTINGS:
        raise MalformedError(f"a resource has {len(result.configs)} settings")
    values: dict[str, str | None] = {}
    for setting in result.configs:
        if setting.name in values:
            raise MalformedError("a setting comes twice")
        values[setting.name] = None if setting.is_sensitive else setting.value
    if error is not ErrorCode.NONE:
        values = {}
    return ResourceConfigs(error, values, result.error_message)


@dataclass(frozen=True, slots=True)
class DescribeQuorumResponse:
    """``leader`` is the active controller's id, -1 when there is none. ``leader_time_ms`` is its
    wall clock when it responded, in milliseconds since the epoch; None when it does not report it.
    """

    error: ErrorCode
    leader: int = -1
    leader_time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeQuorumRequest(ControlRequest[DescribeQuorumResponse]):
    """Any broker of a KRaft cluster since 3.3 forwards it. Needs DESCRIBE on the cluster."""

    api_key = ApiKey.DESCRIBE_QUORUM
    versions = VersionRange(1, 1)

    def message(self, version: int) -> Message:
        message = describe_quorum
        partition = message.PartitionData(partition_index=_METADATA_LOG.partition)
        topic = message.TopicData(topic_name=_METADATA_LOG.topic, partitions=[partition])
        return message.DescribeQuorumRequest(topics=[topic])

    def read(self, reader: WireReader, version: int) -> DescribeQuorumResponse:
        """The response; one with an error has no partition."""
        answer = describe_quorum.DescribeQuorumResponse.read(reader, version)
        error = error_of(answer.error_code)
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


def _quorum(one: describe_quorum.PartitionDataResponse) -> DescribeQuorumResponse:
    times = [
        voter.last_caught_up_timestamp
        for voter in one.current_voters
        if voter.replica_id == one.leader_id and voter.last_caught_up_timestamp > 0
    ]
    return DescribeQuorumResponse(
        error_of(one.error_code), max(-1, one.leader_id), times[0] if times else None
    )
