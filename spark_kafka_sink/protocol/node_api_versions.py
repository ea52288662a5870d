"""What a broker has said of itself in ApiVersions (Java's ``NodeApiVersions``).

Owns: :class:`NodeApiVersions`, the value. Never: who requests it, and when.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.base.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import MalformedError

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.messages.api_versions import (
        ApiVersion,
        ApiVersionsResponse,
        FinalizedFeatureKey,
    )

_KNOWN_APIS: Final = frozenset(int(key) for key in ApiKey)
_MOST_FEATURES: Final = 256


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """The API versions of a broker, without APIs that this client does not support.

    ``finalized_features`` are the cluster's feature levels, of epoch ``finalized_features_epoch``
    (-1: the broker reports none).

    An advertised minimum is not to be relied on: brokers since 4.0 say Produce 0 and refuse what
    is below 3, for librdkafka's sake (KAFKA-18659). So :meth:`latest_usable` intersects the
    broker's range with ours, which has what is really written.
    """

    api_versions: Mapping[int, VersionRange]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> NodeApiVersions:
        """Raises MalformedError for what no broker offers."""
        ranges = _ranges(response.api_keys)
        epoch, features = response.finalized_features_epoch, _levels(response.finalized_features)
        if epoch < 0:  # then the levels say nothing (ApiVersionsResponse.json)
            epoch, features = -1, {}
        return cls(ranges, features, epoch)

    @property
    def transaction_version(self) -> int:
        """The cluster's level of ``transaction.version`` (KIP-890); 2 and up is protocol 2 (TV2).

        0 when the broker reports no features: brokers before 4.0, or ApiVersions below v3.
        """
        return self.finalized_features.get("transaction.version", 0)

    def latest_usable(self, api_key: ApiKey, ours: VersionRange) -> int:
        """The highest version that both sides support; UnsupportedVersionError without one."""
        theirs = self.api_versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(
                f"the broker does not offer {api_key.name}",
                hint="Kafka 2.1 is the oldest broker that is supported",
            )
        version = min(ours.max, theirs.max)
        if version < max(ours.min, theirs.min):
            raise UnsupportedVersionError(
                f"{api_key.name}: the broker offers versions {theirs.min} to {theirs.max}, "
                f"this client {ours.min} to {ours.max}",
                hint="Kafka 2.1 is the oldest broker that is supported",
            )
        return version


def _ranges(keys: Iterable[ApiVersion]) -> dict[int, VersionRange]:
    """The versions of each API that we support."""
    ranges: dict[int, VersionRange] = {}
    for api in keys:
        if api.api_key not in _KNOWN_APIS:
            continue
        if not 0 <= api.min_version <= api.max_version:
            raise MalformedError(
                f"it offers versions {api.min_version} to {api.max_version} of an API"
            )
        if api.api_key in ranges:
            raise MalformedError("an API comes twice")
        ranges[api.api_key] = VersionRange(api.min_version, api.max_version)
    return ranges


def _levels(features: Sequence[FinalizedFeatureKey]) -> dict[str, int]:
    if len(features) > _MOST_FEATURES:
        raise MalformedError(f"it has {len(features)} features")
    levels = {feature.name: feature.max_version_level for feature in features}
    if len(levels) != len(features):
        raise MalformedError("a feature comes twice")
    return levels
