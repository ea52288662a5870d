"""Responses as kio writes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from spark_kafka_sink.protocol import answers
from tests.fakes.fake_cluster.codec import Answer, write

#: What answers say of it.
THROTTLE_MS = 9


def response(api: str, version: int, **fields: Any) -> bytes:
    """As kio writes it; structs are dicts, and fields that this version has not are left out."""
    plain = {"throttle_time": THROTTLE_MS, "error_code": 0}
    return write(Answer(api, version)(**(plain | fields)))


def decode(request: Any, version: int, data: bytes) -> Any:
    return answers.decode(request, version, memoryview(data))


def in_every_version(*requests: Any) -> list[tuple[Any, int]]:
    return [(r, version) for r in requests for version in range(r.versions.min, r.versions.max + 1)]


def by_topic(
    topics: Iterable[tuple[str, Iterable[int]]], name: str = "name", **each: Any
) -> list[dict[str, Any]]:
    """Topics of an answer, whose partitions are ``each`` alike."""
    return [
        {name: topic, "partitions": [{"partition_index": n, **each} for n in numbers]}
        for topic, numbers in topics
    ]
