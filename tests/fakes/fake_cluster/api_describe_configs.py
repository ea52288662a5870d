"""DescribeConfigs of topics and of the broker that is asked, in a cluster with broker_configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.codec import Request

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

KEY, VERSIONS = 32, (1, 4)
_BROKER = 4


def handle(cluster: FakeCluster, node: int, request: Request) -> Any:
    results = []
    for resource in request.body.resources:
        name, error = resource.resource_name, ErrorCode.NONE
        configs = dict(cluster.broker_configs or {})
        if resource.resource_type == _BROKER:
            if name != str(node):
                error = ErrorCode.INVALID_REQUEST
        elif name in cluster.topics:
            configs |= cluster.topics[name].configs
        else:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        asked = resource.configuration_keys
        told = {n: v for n, v in configs.items() if asked is None or n in asked}
        results.append((resource, error, {} if error else told))
    return _answer(cluster, request, results)


def refuse(cluster: FakeCluster, request: Request, error: ErrorCode) -> Any:
    return _answer(cluster, request, [(one, error, {}) for one in request.body.resources])


def _answer(
    cluster: FakeCluster,
    request: Request,
    results: Sequence[tuple[Any, ErrorCode, Mapping[str, str]]],
) -> Any:
    answer = request.answer
    return answer.DescribeConfigsResponse(
        throttle_time=cluster.throttle_ms(),
        results=[
            answer.DescribeConfigsResult(
                error_code=error,
                error_message=None if error is ErrorCode.NONE else error.name,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    answer.DescribeConfigsResourceResult(
                        name=name,
                        value=value,
                        read_only=False,
                        config_source=1,
                        is_sensitive=False,
                        synonyms=(),
                        config_type=2,
                        documentation=None,
                    )
                    for name, value in configs.items()
                ],
            )
            for resource, error, configs in results
        ],
    )
