"""How topics and brokers are configured: DescribeConfigs (KIP-133, KIP-226).

Owns: this request with its answer. Never: what a setting means. It stands before a record's way:
the driver's preflight asks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.protocol.kio_codec import check_version, read_body, write_body
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import INT8, MalformedError, WireReader, error_code

__all__ = [
    "ConfigResource",
    "ConfigResourceType",
    "DescribeConfigsRequest",
    "DescribeConfigsResponse",
    "ResourceConfigs",
]

_READ_ONLY_AND_SOURCE: Final = 2  # bytes
#: A broker has some 350.
_MOST_SETTINGS: Final = 1_000


class ConfigResourceType(IntEnum):
    """The kinds of resources that are asked for here (Java's ``ConfigResource.Type``)."""

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
    """``resources``: every one that was asked for."""

    resources: Mapping[ConfigResource, ResourceConfigs]
    throttle_ms: int = 0


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """The settings of ``resources``: of topics any broker can tell, of a broker only itself.

    ``names`` None asks for all of them; a name that the broker doesn't know is left out silently.
    Needs DESCRIBE_CONFIGS on the topic, or on the cluster for a broker.
    """

    resources: tuple[ConfigResource, ...]
    names: tuple[str, ...] | None = None

    api_key = ApiKey.DESCRIBE_CONFIGS
    versions = VersionRange(1, 4)

    def encode(self, version: int) -> Buffers:
        check_version(self.api_key, version, self.versions)
        return write_body(
            self.api_key,
            version,
            lambda kio: kio.DescribeConfigsRequest(
                resources=tuple(
                    self._resource(kio, resource) for resource in dict.fromkeys(self.resources)
                )
            ),
        )

    def _resource(self, kio: Any, resource: ConfigResource) -> object:  # noqa: ANN401 - a module of kio, one for each version
        return kio.DescribeConfigsResource(
            resource_type=int(resource.type),
            resource_name=resource.name,
            configuration_keys=self.names,
        )

    def decode(self, version: int, body: memoryview) -> DescribeConfigsResponse:
        """The answer, which names every resource of this request once and no other."""
        check_version(self.api_key, version, self.versions)
        asked = {(int(resource.type), resource.name): resource for resource in self.resources}

        def parse(reader: WireReader, version: int) -> DescribeConfigsResponse:
            throttle_ms = max(0, reader.int32())
            found: dict[ConfigResource, ResourceConfigs] = {}
            for _ in range(reader.count(7)):
                key, configs = _resource_configs(reader, version)
                resource = asked.get(key)
                if resource is None or resource in found:
                    raise MalformedError("a resource comes twice, or was not asked for")
                found[resource] = configs
            reader.skip_tagged_fields()
            if len(found) != len(asked):
                raise MalformedError("a resource that was asked for is not in it")
            return DescribeConfigsResponse(found, throttle_ms)

        return read_body(self.api_key, version, body, parse)


def _resource_configs(reader: WireReader, version: int) -> tuple[tuple[int, str], ResourceConfigs]:
    error = error_code(reader.int16())
    message = reader.nullable_string()
    (kind,) = reader.unpack(INT8)
    name = reader.string()
    values: dict[str, str | None] = {}
    count = reader.count(6)
    if count > _MOST_SETTINGS:
        raise MalformedError(f"a resource has {count} settings")
    for _ in range(count):
        setting, value = _setting(reader, version)
        if setting in values:
            raise MalformedError("a setting comes twice")
        values[setting] = value
    reader.skip_tagged_fields()
    if error is not ErrorCode.NONE:
        values = {}
    return (kind, name), ResourceConfigs(error, values, message)


def _setting(reader: WireReader, version: int) -> tuple[str, str | None]:
    name, value = reader.string(), reader.nullable_string()
    reader.raw(_READ_ONLY_AND_SOURCE)
    sensitive = reader.boolean()
    for _ in range(reader.count(4)):  # synonyms: not asked for
        reader.string()
        reader.nullable_string()
        reader.unpack(INT8)
        reader.skip_tagged_fields()
    if version >= 3:
        reader.unpack(INT8)  # the value's type
        reader.nullable_string()  # the documentation: not asked for
    reader.skip_tagged_fields()
    return name, None if sensitive else value
