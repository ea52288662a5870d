"""Which version of an API we and a broker share. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.errors import ErrorCode, UnsupportedVersionError
from spark_kafka_sink.protocol.request import ApiKey, VersionRange


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """What one broker answered to ApiVersions (Java's NodeApiVersions)."""

    api_versions: Mapping[int, VersionRange]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1

    def latest_usable(self, api_key: ApiKey, ours: VersionRange) -> int:
        """The highest version both sides know; UnsupportedVersionError when there is none."""
        theirs = self.api_versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(
                f"the broker does not offer {api_key.name}",
                hint="Kafka 2.1 is the oldest broker that is supported",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        version = min(ours.max, theirs.max)
        if version < max(ours.min, theirs.min):
            raise UnsupportedVersionError(
                f"{api_key.name}: the broker offers versions {theirs.min} to {theirs.max}, "
                f"this client {ours.min} to {ours.max}",
                hint="Kafka 2.1 is the oldest broker that is supported",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        return version
