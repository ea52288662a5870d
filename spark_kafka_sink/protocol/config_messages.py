"""How topics and brokers are configured: DescribeConfigs (KIP-133, KIP-226).

Owns: this request with its answer. Never: what a setting means. It stands before a record's way:
the driver's preflight sends it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol import messages
from spark_kafka_sink.protocol.bodies import check_version, once_each, read_body
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError, WireReader, error_code

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages.describe_configs import DescribeConfigsResult

__all__ = [
    "ConfigResource",
    "ConfigResourceType",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "ResourceConfigs",
]

#: A broker has some 350.
_MOST_SETTINGS: Final = 1_000


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

    Empty when ``error`` is not NONE; ``message`` is the broker's own text.
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
class DescribeConfigsRequest:
    """Settings of ``resources``: any broker has those of topics, only a broker itself its own.

    ``names`` None requests all; the broker silently omits unknown names.
    Needs DESCRIBE_CONFIGS on the topic, or on the cluster for a broker.
    """

    resources: tuple[ConfigResource, ...]
    names: tuple[str, ...] | None = None

    api_key = ApiKey.DESCRIBE_CONFIGS
    versions = VersionRange(1, 4)

    def encode(self, version: int) -> Buffers:
        check_version(self, version)
        resource = messages.describe_configs.DescribeConfigsResource
        request = messages.describe_configs.DescribeConfigsRequest(
            resources=[
                resource(
                    resource_type=int(one.type),
                    resource_name=one.name,
                    configuration_keys=self.names,
                )
                for one in dict.fromkeys(self.resources)
            ]
        )
        return [request.encode(version)]

    def decode(self, version: int, body: memoryview) -> DescribeConfigsResponse:
        """The answer, which names every resource of this request once and no other."""
        requested = {(int(resource.type), resource.name): resource for resource in self.resources}

        def parse(reader: WireReader, version: int) -> DescribeConfigsResponse:
            answer = messages.describe_configs.DescribeConfigsResponse.read(reader, version)
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

        return read_body(self, version, body, parse)


def _resource_configs(result: DescribeConfigsResult) -> ResourceConfigs:
    error = error_code(result.error_code)
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
