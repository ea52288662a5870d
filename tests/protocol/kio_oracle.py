"""Responses as kio writes them."""

from __future__ import annotations

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
