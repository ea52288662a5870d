"""InitProducerId 6 (KIP-939): the fake cluster answers as Kafka 4.x does that offers it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance.script import INIT, VERSIONS, Script, compare, error_name
from tests.conformance.worlds import FakeWorld, RealWorld
from tests.fakes.fake_cluster import FakeCluster
from tests.real_kafka import local_broker

pytestmark = pytest.mark.broker


@pytest.fixture(
    params=[True, None, pytest.param(False, marks=pytest.mark.long)],
    ids=["enabled", "stable", "disabled"],
)
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[bool | None, RealWorld]]:
    enabled: bool | None = request.param
    with ExitStack() as stack:
        if enabled is False:
            overrides = {"unstable.api.versions.enable": "true"}
            kafka = stack.enter_context(local_broker(overrides=overrides))
        else:
            kafka = request.getfixturevalue("kafka_2pc" if enabled else "kafka")
        yield enabled, stack.enter_context(RealWorld(kafka.bootstrap))


def init(
    s: Script,
    name: str,
    tid: str,
    timeout: int = 1000,
    *,
    own: tuple[int, int] = (-1, -1),
    **flags: bool,
) -> tuple[int, int]:
    fields: dict[str, Any] = {
        "transactional_id": tid,
        "transaction_timeout": timeout,
        "producer_id": own[0],
        "producer_epoch": own[1],
    }
    found = s.settled(
        lambda: s.ask(INIT, 6, **fields, **flags),
        lambda found: "" if found is None else error_name(found),
    )
    if found is None:
        s.step(name, "closed")
        return -1, -1
    kept = found.ongoing_txn_producer_id, found.ongoing_txn_producer_epoch
    s.step(name, (error_name(found), s.producer(found.producer_id), found.producer_epoch, kept))
    return found.producer_id, found.producer_epoch


def two_phases(s: Script) -> None:
    topic, tid = s.topic("two-phases"), "two-phases"
    s.coordinator(tid)

    answer = s.ask(VERSIONS, 3, client_software_name="s", client_software_version="1")
    offered = {int(k.api_key): k.max_version for k in answer.api_keys}
    s.step("offered", offered[INIT])
    init(s, "version 6 without any of it", tid)
    s.state("of its own time-out", tid)
    own = init(s, "two phases", tid, enable2_pc=True)
    init(s, "keep what is open", tid, keep_prepared_txn=True)
    init(s, "both", tid, enable2_pc=True, keep_prepared_txn=True)
    for timeout in (0, -1, 2**31 - 1, 900_001):
        init(
            s,
            f"two phases and a time-out of {timeout}",
            f"{tid} {timeout}",
            timeout,
            enable2_pc=True,
        )
        init(s, f"one phase and a time-out of {timeout}", f"{tid} {timeout}", timeout)
    if own[0] < 0:
        return
    s.state("idle", tid)
    beside = s.init("one of a time-out", "aged", timeout=300)
    own = init(s, "one of two phases, which goes on", tid, 300, own=own, enable2_pc=True)
    for name, who in ((tid, own), ("aged", beside)):
        s.add(f"add, {name}", name, who, {topic: [0]})
    s.state("the other is aged", "aged", until="CompleteAbort")
    s.state("it is not", tid)
    init(s, "it is aborted by the next", tid, enable2_pc=True)
    s.end("and fenced", tid, own, commit=True, version=4)
    s.state("in the end", tid)


def test_two_phase_commit_is_answered_as_by_a_broker(broker: tuple[bool | None, RealWorld]) -> None:
    enabled, world = broker
    fake = FakeWorld(FakeCluster(1, abort_scan_ms=200, two_phase_commit=enabled))
    compare(two_phases, world, fake, 14)
