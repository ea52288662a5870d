"""Requests for topics and configs: CreateTopics and DescribeConfigs. Also reads the values of a
DescribeConfigs response.

``admin/admin_client.py`` chooses the broker and sends the requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from spark_kafka_sink.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from spark_kafka_sink.protocol.request import VersionRange


class ConfigResourceType(IntEnum):
    """The kinds of resources whose configs this client requests (Java's
    ``ConfigResource.Type``).
    """

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. If the number of partitions or replicas is -1, the broker uses its default
    (brokers of version 2.4 or newer, v4 of the request).
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


def describe_configs(
    resource_type: ConfigResourceType,
    resources: Iterable[str],
    names: Collection[str] | None = None,
) -> DescribeConfigsRequest:
    """Creates the request for the configs of topics or of a broker.

    * Topics: ``resources`` are the names of the topics. The request may be sent to any broker. The
      principal needs DESCRIBE_CONFIGS on each topic.
    * A broker: ``resources`` is the broker's id. The request must be sent to that broker. The
      principal needs DESCRIBE_CONFIGS on the cluster.

    ``names`` are the configs to request, or None for all configs. The broker leaves out names that
    do not exist.
    """
    return DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(
                resource_type=resource_type.value,
                resource_name=name,
                configuration_keys=None if names is None else tuple(names),
            )
            for name in dict.fromkeys(resources)
        ]
    )


def config_values(result: DescribeConfigsResult) -> dict[str, str | None]:
    """Reads the value of each config in a DescribeConfigs response, including configs that have
    their default. Returns an empty dict if the response has an error.

    A value is None if the config is not set, or if it is a secret.
    """
    if result.error_code is not ErrorCode.NONE:
        return {}
    return {one.name: None if one.is_sensitive else one.value for one in result.configs}


def create_topics(
    topics: Sequence[NewTopic], timeout_ms: int, *, validate_only: bool = False
) -> CreateTopicsRequest:
    """Creates the request to create ``topics``. The broker responds when the topics are created, or
    after ``timeout_ms``. After the response, another broker may not know the topics yet. With
    ``validate_only``, the broker only checks whether it could create the topics.
    """
    defaults = any(-1 in (topic.partitions, topic.replication_factor) for topic in topics)
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=(),
                configs=[
                    CreatableTopicConfig(name=name, value=value)
                    for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
        versions=VersionRange(4 if defaults else 2, 7),
    )
