"""The way of a request to its API: the table of APIs, and what faults make of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes import fake_cluster
from tests.fakes.fake_cluster import api_api_versions, api_produce
from tests.fakes.fake_cluster.codec import (
    Request,
    UnreadableError,
    peek,
    read_request,
    write_answer,
)
from tests.fakes.fake_cluster.control import Fault, Kind
from tests.fakes.fake_cluster.outcome import Closed, Outcome

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster

#: By API key: the module ``api_<name>.py`` of each.
APIS: Mapping[int, Any] = {
    api.KEY: api
    for api in (
        import_module(f"{fake_cluster.__name__}.{found.name}")
        for found in iter_modules(fake_cluster.__path__)
        if found.name.startswith("api_")
    )
}


def readable(cluster: FakeCluster, node: int, frame: bytes) -> Request | Outcome:
    """The request; or what becomes of one that ``node`` can't read, or has no version for."""
    try:
        api, version, _ = peek(frame)
        lowest, highest = cluster.ranges.get(api, (0, -1))
        if not lowest <= version <= highest:
            if api == api_api_versions.KEY:
                return Outcome(api_api_versions.unsupported(cluster, frame))
            return Outcome(closes=True)
        return read_request(frame)
    except UnreadableError as e:
        cluster.trace(f"node {node} can't read a request: {e}")
        return Outcome(closes=True)


def held_ms(cluster: FakeCluster, node: int, frame: bytes) -> int:
    """So long a fault keeps this request from being worked on."""
    if not cluster.control.may_hold:
        return 0
    try:
        request = read_request(frame)
    except UnreadableError:
        return 0
    fault = cluster.control.held_by(request, node)
    if fault is None:
        return 0
    cluster.trace(f"{request} is held for {fault.delay_ms} ms")
    return fault.delay_ms


def outcome_of(
    cluster: FakeCluster, request: Request, node: int, faults: dict[Kind, Fault]
) -> Outcome:
    """Have the request's API answer it, unless a fault does."""
    delay = faults[Kind.DELAY].delay_ms if Kind.DELAY in faults else 0
    lost = faults.get(Kind.CUT) or faults.get(Kind.DROP)
    closes = Kind.CUT in faults
    if lost is not None and not lost.processed:
        return Outcome(None, delay, closes)
    body = _answer(cluster, request, node, faults.get(Kind.ANSWER))
    delay += cluster.appended_ms
    if lost is not None:
        return Outcome(None, delay, closes)
    if isinstance(body, Closed):
        return Outcome(None, delay, closes=True)
    if body is None:
        return Outcome(None, delay)
    answer = body if isinstance(body, bytes) else write_answer(request, body)
    return Outcome(answer, delay)


def _answer(cluster: FakeCluster, request: Request, node: int, fault: Fault | None) -> Any:
    api = APIS[request.api]
    if fault is None or (request.api == api_produce.KEY and isinstance(fault.answer, ErrorCode)):
        if request.api == api_produce.KEY:
            return api_produce.handle(cluster, node, request, fault)
        return api.handle(cluster, node, request)
    if fault.processed:
        api.handle(cluster, node, request)
    if isinstance(fault.answer, ErrorCode):
        return api.refuse(cluster, request, fault.answer)
    return fault.answer(request) if callable(fault.answer) else fault.answer
