"""The API versions and features that a broker supports (Java's ``NodeApiVersions``).

:class:`NodeApiVersions` is read from an ApiVersions response. The network client sends the
ApiVersions request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
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
#: Protocol 2 of transactions needs these APIs in these versions at least (KIP-890).
_OF_VERSION_2: Final = MappingProxyType({ApiKey.PRODUCE: 12, ApiKey.END_TXN: 5})

#: Apache Kafka's version that brought an API after 2.1, the oldest that is supported.
_CAME_WITH: Final = {
    ApiKey.DESCRIBE_QUORUM: "3.3",
    ApiKey.DESCRIBE_PRODUCERS: "2.8",
    ApiKey.DESCRIBE_TRANSACTIONS: "3.0",
    ApiKey.LIST_TRANSACTIONS: "3.0",
}


@dataclass(frozen=True, slots=True)
class NodeApiVersions:
    """The API versions that a broker supports, for the APIs that this client uses.

    * ``finalized_features``: the feature levels of the cluster, such as ``transaction.version``.
    * ``finalized_features_epoch``: the epoch of these feature levels. -1 if the broker returns no
      features.

    The lowest version of an API is not reliable. For example, brokers of version 4.0 or newer
    return version 0 of Produce because of librdkafka, but reject versions below 3 (KAFKA-18659). So
    :meth:`latest_usable` uses only versions that this client implements.
    """

    api_versions: Mapping[int, VersionRange]
    finalized_features: Mapping[str, int] = field(default_factory=dict)
    finalized_features_epoch: int = -1

    @classmethod
    def of(cls, response: ApiVersionsResponse) -> NodeApiVersions:
        """Reads an ApiVersions response. Raises MalformedError for version ranges that no broker
        sends.
        """
        ranges = _ranges(response.api_keys)
        epoch, features = response.finalized_features_epoch, _levels(response.finalized_features)
        if epoch < 0:  # then the levels say nothing (ApiVersionsResponse.json)
            epoch, features = -1, {}
        return cls(ranges, features, epoch)

    @property
    def transaction_version(self) -> int:
        """The version of transactions to use with this broker (the feature ``transaction.version``,
        KIP-890). From 2 on, transactions use protocol 2 (TV2).

        The result is 0 if the broker's response does not have this feature:

        * Brokers before Kafka 4.0 do not return it, even if they return other features, such as
          ``metadata.version``.
        * Responses of ApiVersions below v3 have no features.

        The result is at most 1 if this broker, or a proxy in front of it, does not support the
        requests of protocol 2. (librdkafka and franz-go do the same.)
        """
        level = self.finalized_features.get("transaction.version", 0)
        if level >= 2 and not all(map(self._offers, _OF_VERSION_2, _OF_VERSION_2.values())):
            return 1
        return level

    def _offers(self, api_key: ApiKey, version: int) -> bool:
        offered = self.api_versions.get(api_key)
        return offered is not None and offered.max >= version

    def latest_usable(self, api_key: ApiKey, ours: VersionRange) -> int:
        """The highest version that both the broker and this client support. ``ours`` are the
        client's versions. Raises UnsupportedVersionError if there is no such version.
        """
        theirs = self.api_versions.get(api_key)
        if theirs is None:
            raise UnsupportedVersionError(
                f"the broker does not offer {api_key.name}", hint=_without(api_key)
            )
        version = min(ours.max, theirs.max)
        if version < max(ours.min, theirs.min):
            raise UnsupportedVersionError(
                f"{api_key.name}: the broker offers versions {theirs.min} to {theirs.max}, "
                f"this client {ours.min} to {ours.max}",
                hint="use newer brokers: Kafka 2.1 is the oldest that is supported, and some "
                "options need a newer one"
                if theirs.max < ours.min
                else "use a newer version of this package",
            )
        return version


def _without(api_key: ApiKey) -> str:
    """The hint for the error about an API that the broker does not support. A server without this
    API is possibly not Apache Kafka, but another product.
    """
    if api_key is ApiKey.INIT_PRODUCER_ID:
        return (
            "this service has no idempotent producers: write with deliveryGuarantee=none (a "
            "KafkaProducer: enable.idempotence=false), where a request that is repeated may "
            "double rows"
        )
    since = _CAME_WITH.get(api_key, "2.1 or before")
    return f"Apache Kafka has it since {since}; a service that speaks its protocol may lack it"


def _ranges(keys: Iterable[ApiVersion]) -> dict[int, VersionRange]:
    """The version range of each API, without the APIs that this client does not use."""
    ranges: dict[int, VersionRange] = {}
    for api in keys:
        if api.api_key not in _KNOWN_APIS:
            continue
        if not 0 <= api.min_version <= api.max_version:
            continue  # it offers no version
        offered = VersionRange(api.min_version, api.max_version)
        if ranges.setdefault(api.api_key, offered) != offered:
            raise MalformedError("an API comes twice")
    return ranges


def _levels(features: Sequence[FinalizedFeatureKey]) -> dict[str, int]:
    if len(features) > _MOST_FEATURES:
        raise MalformedError(f"it has {len(features)} features")
    levels: dict[str, int] = {}
    for feature in features:
        level = feature.max_version_level
        if levels.setdefault(feature.name, level) != level:
            raise MalformedError("a feature comes twice")
    return levels
