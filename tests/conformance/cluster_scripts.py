"""Scripts of what a cluster is made of: topics, coordinators, nodes that are wrong or down."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.conformance.raw_batch import TRANSACTIONAL, batch
from tests.conformance.script import (
    CONFIGS,
    CREATE,
    END,
    FIND,
    INIT,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    VERSIONS,
    Script,
    error_name,
)
from tests.fakes.fake_cluster.codec import read, response_entity


def who_is_where(s: Script) -> None:
    """Metadata, ApiVersions, FindCoordinator, CreateTopics."""
    topic = s.topic("who", 3)
    for version in (4, 9, 12):
        found = s.metadata([topic, "absent", "not legal", "..", "x" * 250], version)
        told = [
            (
                error_name(t),
                t.name,
                t.is_internal,
                sorted((p.partition_index, int(p.leader_id)) for p in t.partitions),
            )
            for t in found.topics
        ]
        s.step(f"metadata v{version}", sorted(told, key=str))
        s.step(f"brokers v{version}", sorted(int(b.node_id) for b in found.brokers))
    s.step("no topics at all", [t.name for t in s.metadata([], 12).topics])
    empty = s.metadata([""], 12).topics
    s.step("an empty name", [(error_name(t), t.name) for t in empty])
    twice = s.metadata([topic, topic], 12).topics
    s.step("a topic twice", [t.name for t in twice])

    def versions(version: int, software: str) -> Any:
        return s.ask(VERSIONS, version, client_software_name=software, client_software_version="1")

    for version in (0, 3, 4):
        found = versions(version, "s")
        ours = {PRODUCE, METADATA, FIND, VERSIONS, CREATE, INIT, END, LIST_OFFSETS}
        ranges = {int(k.api_key): (k.min_version, k.max_version) for k in found.api_keys}
        # (Minima are compared; a maximum is what kio and this cluster have.)
        s.step(f"versions v{version}", sorted((k, ranges[k][0]) for k in ours))
        s.step(f"exact versions v{version}", [ranges[k] for k in (CREATE, END, PRODUCE, METADATA)])
        finalized = {f.name: f.max_version_level for f in getattr(found, "finalized_features", ())}
        s.step(f"transaction.version v{version}", finalized.get("transaction.version"))
    refused = versions(3, "not legal!")
    s.step("an illegal software name", (error_name(refused), len(refused.api_keys)))
    head = struct.pack(">hhih", VERSIONS, 99, 77, 1) + b"s"
    answer = s.world.exchange(1, head + b"\0\0", answered=True)
    assert answer is not None
    future = read(response_entity(VERSIONS, 0), answer[4:])
    s.step("ApiVersions from the future", (answer[:4], error_name(future)))
    s.step("and the only range told", [int(k.api_key) for k in future.api_keys])
    for name, frame in {
        "another API from the future": struct.pack(">hhih", METADATA, 99, 78, 1) + b"s\0\0",
        "no API": struct.pack(">hhih", 999, 0, 79, 1) + b"s",
        "rubbish": struct.pack(">hhih", METADATA, 12, 80, 1) + b"s\0\xff\xff\xff",
        "too short": b"\0\x03",
    }.items():
        s.step(name, s.world.exchange(1, frame, answered=True))

    def find(version: int, key: str) -> Any:
        return s.settled(lambda: s.found(key, version=version), error_name)

    for version in (1, 3, 4, 6):
        found = find(version, "some id")
        s.step(f"find coordinator v{version}", (error_name(found), int(found.node_id)))
    found = find(4, "")
    s.step("find coordinator of an empty id", (error_name(found), int(found.node_id)))

    def create(name: str, partitions: int, replication: int, *, validate: bool = False) -> None:
        t = s.create(name, partitions, replication, {}, validate=validate)
        told = (error_name(t), t.num_partitions, t.replication_factor)
        s.step(f"create {name[:9]!r}, {partitions} x {replication}", told)

    create(topic, 1, 1)
    create("not legal", 1, 1)
    create("new", 1, 9)
    create("new", 0, 1)
    create("new", -1, -1)
    create("new", 1, 1)
    create("newer", 2, 1, validate=True)


def configs(s: Script) -> None:
    """DescribeConfigs of topics, whose broker has what they don't set, and of brokers."""
    own = s.topic("configured", 1, 1, cleanup_policy="compact")
    plain = s.topic("unconfigured")
    names = ("cleanup.policy", "auto.create.topics.enable", "no.such")

    def describe(kind: int, resource: str, asked: tuple[str, ...] | None, version: int) -> None:
        resources = [
            {"resource_type": kind, "resource_name": resource, "configuration_keys": asked}
        ]
        (found,) = s.ask(CONFIGS, version, resources=resources).results
        told = sorted((one.name, one.value) for one in found.configs if one.name in names)
        s.step(
            f"{asked} of {kind} {resource!r} v{version}",
            (error_name(found), found.resource_type, found.resource_name, told),
        )

    for version in (1, 3, 4):
        for topic in (own, plain, "absent"):
            describe(2, topic, ("cleanup.policy", "no.such"), version)
        for broker in ("1", "99"):
            describe(4, broker, ("auto.create.topics.enable", "no.such"), version)


def three_nodes(s: Script) -> None:
    """Requests to the wrong node."""
    topic = s.topic("spread", 1, 3, min_insync_replicas="2")
    leader = int(s.metadata([topic], 9).topics[0].partitions[0].leader_id)
    for version in (9, 12):
        # (The hint's node id differs from world to world; it is the leader in both.)
        found = s.produce_at(leader % 3 + 1, topic, version, batch())
        hint = getattr(found, "current_leader", None)
        told = None if hint is None else int(hint.leader_id) == leader
        s.step(f"a follower, version {version}", (error_name(found), found.base_offset, told))
    s.step("the leader", error_name(s.produce_at(leader, topic, 12, batch())))

    node = s.coordinator("some")

    some: dict[str, Any] = {"transactional_id": "some"}
    init = some | {"transaction_timeout": 1000}
    end = some | {"producer_id": 1, "producer_epoch": 0, "committed": True}
    wrong = node % 3 + 1
    s.step("init at the wrong node", error_name(s.ask(INIT, 5, node=wrong, **init)))
    s.step("end at the wrong node", error_name(s.ask(END, 5, node=wrong, **end)))
    s.step("describe at the wrong node", error_name(s.described("some", wrong)))
    right = s.settled(lambda: s.ask(INIT, 5, node=node, **init), error_name)
    s.step("init at the right node", (error_name(right), right.producer_epoch))

    # Whatever is wrong with the transaction, who doesn't lead says just that, and opens nothing.
    own = (right.producer_id, right.producer_epoch)
    wrongs = {
        "its own": own,
        "an epoch too high": (own[0], own[1] + 1),
        "a strange producer": (own[0] + 1_000_000, 0),
    }
    for version in (11, 12):
        for name, who in wrongs.items():
            data = batch(1, who, 0, attributes=TRANSACTIONAL)
            found = s.produce_at(leader % 3 + 1, topic, version, data, tid="some")
            knows = int(found.current_leader.leader_id) == leader
            step = f"a transaction at a follower, {name}, version {version}"
            s.step(step, (error_name(found), knows))
    found = s.described("some", node)
    s.step("nothing was opened", (found.transaction_state, list(found.topics)))
    # (A step for each: the leader asks the coordinator, and says what that says.)
    for name, who in reversed(wrongs.items()):
        data = batch(1, who, 0, attributes=TRANSACTIONAL)
        once = partial(s.produce_at, leader, topic, 12, data, tid="some")
        s.step(f"the same at the leader, {name}", error_name(s.settled(once, error_name)))


def too_few_replicas(s: Script, stop: Callable[[int], None]) -> None:
    """A follower of three is down, and all three are needed. ``stop`` stops a node cleanly."""
    topic = s.topic("all-three", 1, 3, min_insync_replicas="3")

    def partition(node: int) -> Any:
        return s.metadata([topic], 9, node=node).topics[0].partitions[0]

    leader = int(partition(1).leader_id)
    s.step("all are there", error_name(s.produce_at(leader, topic, 12, batch())))
    stop(leader % 3 + 1)
    # The metadata tells one before the other.
    while len((now := partition(leader)).isr_nodes) > 2 or not now.offline_replicas:
        s.world.pause()
    s.step("who is in sync", len(partition(leader).isr_nodes))
    s.step("who is offline", len(partition(leader).offline_replicas))
    s.step("too few for acks=all", error_name(s.produce_at(leader, topic, 12, batch())))
    found = s.produce_at(leader, topic, 12, batch(), acks=1)
    s.step("enough for acks=1", (error_name(found), found.base_offset))


def markers_wait(s: Script, stop: Callable[[int], None], version: int) -> None:
    """A follower of the data's partition is down, so that markers can't be written: every call
    while a transaction is decided and not complete. ``stop`` stops a node cleanly.
    """
    topic = s.topic(f"markers-{version}", 1, 3, min_insync_replicas="3")
    tid = f"markers-{version}"
    s.home = s.coordinator(tid)

    def partition() -> Any:
        return s.metadata([topic], 9, node=s.home).topics[0].partitions[0]

    leader = int(partition().leader_id)
    own = s.init("init", tid)

    def write(name: str, sequence: int) -> None:
        data = batch(1, own, sequence, attributes=TRANSACTIONAL)
        found = s.produce_at(leader, topic, 10 + version, data, tid=tid)
        s.step(name, error_name(found))

    if version == 1:
        s.add("add", tid, own, {topic: [0]})
    write("write", 0)
    stop(next(n for n in (1, 2, 3) if n not in (leader, s.home)))
    while len(partition().isr_nodes) > 2:
        s.world.pause()
    write("with too few replicas", 1)

    def end(name: str, *, commit: bool, epoch: int = 0) -> None:
        who = (own[0], own[1] + epoch)
        s.end(name, tid, who, commit=commit, version=3 + version, settle=False)

    end("commit", commit=True)
    for round_ in ("at once", "later"):
        s.state(f"{round_}: the state", tid)
        end(f"{round_}: commit again", commit=True)
        end(f"{round_}: abort what is decided", commit=False)
        end(f"{round_}: commit with the next epoch", commit=True, epoch=1)
        s.init(f"{round_}: init", tid, settle=False)
        s.init(f"{round_}: go on with an epoch that is over", tid, own=own, settle=False)
        strange = (own[0] + 1_000_000, 0)
        s.init(f"{round_}: go on as somebody else", tid, own=strange, settle=False)
        s.add(f"{round_}: add", tid, own, {topic: [0]}, settle=False)
        write(f"{round_}: write", 1)
        for _ in range(10):
            s.world.pause()
    listed = sorted({"PrepareCommit", "CompleteCommit"})
    s.listed("it is listed as", tid, 1, state_filters=tuple(listed))


def a_coordinator_goes(s: Script, stop: Callable[[int], None]) -> None:
    """The coordinator's node is stopped: another one takes over what it knew."""
    topic, tid = s.topic("goes", 1, 3, min_insync_replicas="1"), "goes"
    s.home = s.coordinator(tid)
    own = s.init("init", tid)
    s.add("add", tid, own, {topic: [0]})
    s.state("before", tid)
    gone = s.home
    asked = gone % 3 + 1
    stop(gone)
    passing: set[str] = set()

    def describe() -> Any:
        found = s.found(tid, node=asked)
        passing.add(error_name(found))
        if error_name(found) != "NONE" or int(found.node_id) == gone:
            return found
        s.home = int(found.node_id)
        answer = s.described(tid, s.home)
        passing.add(error_name(answer))
        return answer

    def told(answer: Any) -> str:
        return error_name(answer) if hasattr(answer, "transaction_state") else "no coordinator"

    moving = {"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE"}
    s.settled(describe, told, moving | {"no coordinator"})
    s.step("what is told meanwhile", passing - moving - {"NONE"})
    s.step("another one", s.home != gone)
    s.state("after", tid)
    s.end("and it ends there", tid, own, commit=True, version=4)
    s.state("it is committed", tid, until="CompleteCommit")
