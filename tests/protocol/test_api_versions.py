"""Which version we and a broker share."""

from __future__ import annotations

import pytest

from spark_kafka_sink.base.errors import ErrorCode, UnsupportedVersionError
from spark_kafka_sink.protocol.metadata import MetadataRequest
from spark_kafka_sink.protocol.node_api_versions import NodeApiVersions
from spark_kafka_sink.protocol.produce import ProduceRequest
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from tests.fakes.kafka_messages import API_VERSIONS, init_request

#: What brokers offer of the APIs that a plain producer needs (Kafka's message files).
BROKERS = {
    "2.1": {0: (0, 7), 3: (0, 7), 18: (0, 2), 22: (0, 1)},
    "2.8": {0: (0, 9), 3: (0, 11), 18: (0, 3), 22: (0, 4)},
    "3.7": {0: (0, 10), 3: (0, 12), 18: (0, 3), 22: (0, 4)},
    "4.3": {0: (0, 13), 3: (0, 13), 18: (0, 4), 22: (0, 6)},
}
SHARED = {"2.1": (7, 7, 2, 1), "2.8": (9, 11, 3, 4), "3.7": (10, 12, 3, 4), "4.3": (12, 13, 4, 5)}


def broker(name: str) -> NodeApiVersions:
    return NodeApiVersions({key: VersionRange(*pair) for key, pair in BROKERS[name].items()})


@pytest.mark.parametrize("name", BROKERS)
def test_the_highest_version_that_both_know_is_used(name: str) -> None:
    versions = broker(name)
    requests = (
        ProduceRequest(-1, 1000, ()),
        MetadataRequest(()),
        API_VERSIONS,
        init_request(None, 1000),
    )
    used = tuple(versions.latest_usable(request.api_key, request.versions) for request in requests)
    assert used == SHARED[name]


def test_a_transaction_of_protocol_1_caps_produce_at_11() -> None:
    request = ProduceRequest(-1, 1000, (), transactional_id="t", max_version=11)
    assert broker("4.3").latest_usable(ApiKey.PRODUCE, request.versions) == 11


def test_a_claimed_minimum_of_0_for_produce_is_ignored() -> None:
    # KAFKA-18659: offered 0 to 2 only, nothing is shared, whatever the broker claims.
    old = NodeApiVersions({0: VersionRange(0, 2)})
    with pytest.raises(
        UnsupportedVersionError, match="offers versions 0 to 2, this client 3 to 12"
    ):
        old.latest_usable(ApiKey.PRODUCE, ProduceRequest(-1, 1000, ()).versions)


def test_an_api_the_broker_lacks_is_an_unsupported_version() -> None:
    with pytest.raises(UnsupportedVersionError, match="does not offer LIST_TRANSACTIONS") as caught:
        broker("2.1").latest_usable(ApiKey.LIST_TRANSACTIONS, VersionRange(0, 2))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize(
    ("offered", "version"),
    [
        ({0: (0, 12), 26: (0, 5)}, 2),
        ({0: (0, 11), 26: (0, 5)}, 1),
        ({0: (0, 12), 26: (0, 4)}, 1),
        ({0: (0, 12)}, 1),
    ],
)
def test_version_2_needs_the_requests_of_version_2(
    offered: dict[int, tuple[int, int]], version: int
) -> None:
    """A proxy may hand on the cluster's features, and not the versions that they stand for."""
    ranges = {key: VersionRange(*pair) for key, pair in offered.items()}
    assert NodeApiVersions(ranges, {"transaction.version": 2}, 9).transaction_version == version


@pytest.mark.parametrize(
    ("api", "hint"),
    [
        (ApiKey.INIT_PRODUCER_ID, "write with deliveryGuarantee=none"),
        (ApiKey.LIST_TRANSACTIONS, "Apache Kafka has it since 3.0"),
        (ApiKey.CREATE_TOPICS, "Apache Kafka has it since 2.1 or before"),
    ],
)
def test_a_service_that_lacks_an_api_is_not_called_old(api: ApiKey, hint: str) -> None:
    with pytest.raises(UnsupportedVersionError) as caught:
        NodeApiVersions({}).latest_usable(api, VersionRange(0, 2))
    assert caught.value.hint is not None
    assert hint in caught.value.hint
    assert "oldest" not in caught.value.hint


@pytest.mark.parametrize(
    ("features", "version"), [({}, 0), ({"transaction.version": 2}, 2), ({"group.version": 1}, 0)]
)
def test_the_transaction_version_is_a_finalized_feature(
    features: dict[str, int], version: int
) -> None:
    ranges = {0: VersionRange(0, 12), 26: VersionRange(0, 5)}
    response = NodeApiVersions(ranges, features, 9)
    assert response.transaction_version == version
    assert response.finalized_features_epoch == 9
    assert response.api_versions == ranges
