"""ApiVersions: what this cluster speaks, and its features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Answer, Request, peek, write

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 18, (0, 4)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    body = request.body
    if request.version >= 3:
        told = (body.client_software_name, body.client_software_version)
        if not all(_SOFTWARE.fullmatch(text) for text in told):
            return refuse(cluster, request, ErrorCode.INVALID_REQUEST)
    return _answer(cluster, request.answer, ErrorCode.NONE, cluster.ranges)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request.answer, error, {})


def unsupported(cluster: FakeCluster, frame: bytes) -> bytes:
    """To a version from the future: version 0, with the versions that we have of this API."""
    correlation_id = peek(frame)[2]
    answer = Answer("api_versions", 0)
    body = _answer(cluster, answer, ErrorCode.UNSUPPORTED_VERSION, {KEY: VERSIONS})
    return correlation_id.to_bytes(4, "big", signed=True) + write(body)


def _answer(
    cluster: FakeCluster, answer: Answer, error: ErrorCode, ranges: dict[int, tuple[int, int]]
) -> Any:
    level = cluster.transaction_version
    features = [("metadata.version", 7, 29, 29), ("transaction.version", 0, 2, level)]
    shown = features if error is ErrorCode.NONE else []
    return answer.ApiVersionsResponse(
        error_code=error,
        # (Produce is told from 0 for librdkafka's sake, KAFKA-18659.)
        api_keys=[
            answer.ApiVersion(api_key=k, min_version=0 if k == 0 else lo, max_version=hi)
            for k, (lo, hi) in sorted(ranges.items())
        ],
        throttle_time=0 if error else cluster.throttle_ms(),
        supported_features=[
            # (Version 3 can't say 0 as a minimum.)
            answer.SupportedFeatureKey(name=n, min_version=max(1, lo), max_version=hi)
            for n, lo, hi, _ in shown
            if hasattr(answer, "SupportedFeatureKey")
        ],
        finalized_features_epoch=1 if shown else -1,
        finalized_features=[
            answer.FinalizedFeatureKey(name=n, max_version_level=v, min_version_level=v)
            for n, _, _, v in shown
            if v > 0 and hasattr(answer, "FinalizedFeatureKey")
        ],
    )
