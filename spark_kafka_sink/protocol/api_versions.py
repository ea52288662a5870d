"""Which version of an API we and a broker share. Values only.

Owns: :class:`NodeApiVersions`. Never: asking for it (``network/``), nor which versions we speak
(each request says its own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spark_kafka_sink.errors import ErrorCode, UnsupportedVersionError
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.responses import ApiVersionsResponse


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """What one broker answered to ApiVersions (Java's NodeApiVersions).

    An advertised minimum is not to be relied on: brokers since 4.0 say Produce 0 and refuse what
    is below 3, for librdkafka's sake (KAFKA-18659). So :meth:`latest_usable` cuts the broker's
    range with ours, which says what we really write.
    """

    api_versions: Mapping[int, VersionRange]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> NodeApiVersions:
        """The values that an answer without error holds."""
        return cls(
            response.api_versions, response.finalized_features, response.finalized_features_epoch
        )

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
