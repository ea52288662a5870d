"""Scripts of raw requests that are told to a FakeCluster and to real brokers alike."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.fakes.fake_cluster.codec import Answer, read, response_entity
from tests.fakes.script_worlds import (
    BASE_MS,
    CONTROL,
    CREATE,
    END,
    FIND,
    INIT,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    TRANSACTIONAL,
    TRANSACTIONS,
    VERSIONS,
    Script,
    batch,
    error_name,
)


def sequences(s: Script) -> None:
    """Every situation that a sequence number can be in."""
    topic = s.topic("sequences", 6)
    own = s.init("a producer id without a transactional id", None)

    def produce(name: str, sequence: int, count: int = 1, partition: int = 0, **more: Any) -> None:
        who = more.pop("who", own)
        s.produce(name, topic, batch(count, who, sequence), partition=partition, **more)

    produce("the first batch", 0, 2)
    produce("the next", 2)
    produce("the last again", 2)
    produce("the first again", 0, 2)
    produce("a part of the first", 0, 1)
    produce("a gap", 5)
    produce("what filled the gap is not there", 4)
    for i in range(3, 7):
        produce(f"sequence {i}", i)
    produce("five batches ago", 2)
    produce("six batches ago", 0, 2)
    produce("four batches ago", 3)
    produce("a producer nobody knows begins at 100", 100, partition=1)
    produce("and goes on", 101, partition=1)
    produce("and not back at 0", 0, partition=1)
    produce("near the end of the sequences", 2**31 - 2, 3, partition=2)
    produce("behind the wrap", 1, partition=2)
    produce("the wrapped batch again", 2**31 - 2, 3, partition=2)
    produce("exactly at the end", 2**31 - 1, partition=3)
    produce("0 is next", 0, partition=3)
    newer = (own[0], own[1] + 1)
    produce("a new epoch not at 0", 3, who=newer)
    produce("a new epoch at 0", 0, who=newer)
    produce("the old epoch", 7)
    produce("the old epoch's duplicate", 6)
    produce("a new epoch for another partition that nobody knows", 9, who=newer, partition=4)
    produce("a producer id without an epoch's sequence", -1, partition=5)
    s.produce("without a producer id", topic, batch(3), partition=0)
    s.producers("what is remembered", topic)
    s.offsets("the end", topic, -1)
    s.fetch("all batches", topic)


def batches(s: Script) -> None:
    """Batches that a broker refuses, and how it says so."""
    topic = s.topic("batches")
    s.produce("a good one", topic, batch(2))
    s.produce("a wrong checksum", topic, batch(crc=1))
    s.produce("magic 1", topic, batch(magic=1))
    s.produce("magic 3", topic, batch(magic=3))
    s.produce("more records said than there are", topic, batch(2, count=3))
    s.produce("last offset delta too high", topic, batch(2, last=2))
    s.produce("both too high", topic, batch(2, count=3, last=2))
    s.produce("both too low", topic, batch(3, count=2, last=1))
    s.produce("no records", topic, batch([]))
    s.produce("a count of 0", topic, batch(1, count=0, last=-1))
    s.produce("a base offset", topic, batch(base_offset=5))
    s.produce("nothing", topic, b"")
    s.produce("cut off", topic, batch(2)[:-1])
    s.produce("shorter than a header", topic, batch()[:60])
    s.produce("two batches", topic, batch() + batch())
    s.produce("a control batch", topic, batch(attributes=CONTROL))
    s.produce("a record's length runs out", topic, batch(records=b"\x7e" + b"\0" * 6))
    s.produce("from the year 5138", topic, batch(timestamp=100_000_000_000_000))
    s.produce("zstd in version 6", topic, batch(attributes=4), version=6)
    s.produce("transactional without a transactional id", topic, batch(1, (5, 0), 0, attributes=16))
    s.produce("transactional without a producer", topic, batch(attributes=16), tid="nobody")
    small = s.topic("small", max_message_bytes="100")
    s.produce("as large as allowed", small, batch([_of_size(100)]))
    s.produce("one byte too large", small, batch([_of_size(101)]))
    compacted = s.topic("compacted", cleanup_policy="compact")
    s.produce("keys", compacted, batch(2))
    s.produce("no keys", compacted, batch(2, key=None))
    poor = s.topic("poor", min_insync_replicas="2")
    s.produce("acks=all with too few replicas", poor, batch())
    s.produce("acks=1 with too few replicas", poor, batch(), acks=1)
    s.produce("acks=2", topic, batch(), acks=2)
    s.produce("acks=0", topic, batch(), acks=0)
    s.offsets("acks=0 was taken", topic, -1)
    s.produce("a partition that is not there", topic, batch(), partition=7)
    s.produce("a topic that is not there", "absent", batch())
    for version in (3, 4, 5, 7, 8, 9, 10, 11, 12):
        s.produce(f"version {version}", topic, batch(), version=version)
    stamped = s.topic("stamped", message_timestamp_type="LogAppendTime")
    s.produce("log append time", stamped, batch(timestamp=100_000_000_000_000))
    s.offsets("the begin", topic, -2)
    s.offsets("from a time", topic, BASE_MS)
    s.offsets("from a later time", topic, BASE_MS + 1)
    s.offsets("the highest time", topic, -3)
    s.offsets("of a topic that is not there", "absent", -1)
    s.fetch("beyond the end", topic, 10_000)
    s.fetch("of a topic that is not there", "absent")


def _of_size(size: int) -> str:
    return "x" * (size - len(batch([""])))


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

    def software(r: Answer, name: str) -> Any:
        return r.ApiVersionsRequest(client_software_name=name, client_software_version="1")

    for version in (0, 3, 4):
        found = s.ask(VERSIONS, version, lambda r: software(r, "s"))
        ours = {PRODUCE, METADATA, FIND, VERSIONS, CREATE, INIT, END, LIST_OFFSETS}
        ranges = {int(k.api_key): (k.min_version, k.max_version) for k in found.api_keys}
        # (Minima are compared; a maximum is what kio and this cluster have.)
        s.step(f"versions v{version}", sorted((k, ranges[k][0]) for k in ours))
        s.step(f"exact versions v{version}", [ranges[k] for k in (CREATE, END, PRODUCE, METADATA)])
        finalized = {f.name: f.max_version_level for f in getattr(found, "finalized_features", ())}
        s.step(f"transaction.version v{version}", finalized.get("transaction.version"))
    refused = s.ask(VERSIONS, 3, lambda r: software(r, "not legal!"))
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

    def find(version: int, kind: int, key: str) -> Any:
        def make(r: Answer) -> Any:
            return r.FindCoordinatorRequest(key=key, key_type=kind, coordinator_keys=(key,))

        def once() -> Any:
            found = s.ask(FIND, version, make)
            return found.coordinators[0] if version >= 4 else found

        return s.settled(once, error_name)

    for version in (1, 3, 4, 6):
        found = find(version, 1, "some id")
        s.step(f"find coordinator v{version}", (error_name(found), int(found.node_id)))
    found = find(4, 1, "")
    s.step("find coordinator of an empty id", (error_name(found), int(found.node_id)))

    def create(name: str, partitions: int, replication: int, *, validate: bool = False) -> None:
        def make(r: Answer) -> Any:
            asked = r.CreatableTopic(
                name=name,
                num_partitions=partitions,
                replication_factor=replication,
                assignments=(),
                configs=(),
            )
            return r.CreateTopicsRequest(topics=[asked], timeout=9000, validate_only=validate)

        t = s.ask(CREATE, 7, make).topics[0]
        told = (error_name(t), t.num_partitions, t.replication_factor)
        s.step(f"create {name[:9]!r}, {partitions} x {replication}", told)

    create(topic, 1, 1)
    create("not legal", 1, 1)
    create("new", 1, 9)
    create("new", 0, 1)
    create("new", -1, -1)
    create("new", 1, 1)
    create("newer", 2, 1, validate=True)


def protocol_1(s: Script) -> None:
    """Every transactional call of protocol 1 in every state that holds still."""
    topic, tid = s.topic("one", 3), "one"
    s.coordinator(tid)

    def end(name: str, own: tuple[int, int], *, commit: bool, version: int = 4) -> None:
        s.end(name, tid, own, commit=commit, version=version)

    def produce(name: str, own: tuple[int, int], sequence: int, **more: Any) -> None:
        data = batch(1, own, sequence, attributes=TRANSACTIONAL)
        s.produce(name, topic, data, tid=tid, **({"version": 11} | more))

    nobody = (4_000_000, 0)
    s.state("nobody knows the id", tid)
    end("end an unknown id", nobody, commit=True)
    s.add("add to an unknown id", tid, nobody, {topic: [0]})
    produce("produce for an unknown id", nobody, 0)
    s.init("a timeout too long", tid, timeout=900_001)
    s.init("a timeout of 0", tid, timeout=0)
    s.init("an empty id", "")
    own = s.init("init", tid)
    stale, strange = (own[0], own[1] - 1), (own[0] + 1_000_000, own[1])
    s.state("Empty", tid)
    end("commit, Empty", own, commit=True)
    end("abort, Empty", own, commit=False)
    produce("produce before the partition is added", own, 0)
    produce("the same in version 10", own, 0, version=10)
    s.add("an unknown partition beside a known one", tid, own, {topic: [0], "absent": [0]})
    s.add("add", tid, own, {topic: [0, 1]})
    s.add("add again", tid, own, {topic: [0]})
    s.state("Ongoing", tid)
    produce("produce", own, 0)
    produce("its duplicate", own, 0)
    produce("a gap", own, 5)
    produce("a partition that was not added", own, 0, partition=2)
    s.produce("not transactional in between", topic, batch(1, own, 1), tid=tid, version=11)
    s.offsets("the last stable offset", topic, -1, 1)
    s.producers("an open transaction", topic)
    s.fetch("read committed sees nothing", topic, isolation=1)
    s.add("add with a wrong epoch", tid, (own[0], own[1] + 1), {topic: [0]})
    s.add("add with a wrong epoch, version 1", tid, (own[0], own[1] + 1), {topic: [0]}, version=1)
    s.add("add with a wrong producer", tid, strange, {topic: [0]})
    end("end with a wrong producer", strange, commit=True)
    end("end with a wrong epoch", (own[0], own[1] + 1), commit=True)
    end("the same, version 1", (own[0], own[1] + 1), commit=True, version=1)
    end("end with an epoch of -1", stale, commit=True)
    end("commit", own, commit=True)
    s.state("CompleteCommit", tid, until="CompleteCommit")
    end("commit again", own, commit=True)
    end("abort what was committed", own, commit=False)
    produce("produce after the commit", own, 1)
    produce("the old batch after the commit", own, 0)
    s.fetch("the marker", topic, isolation=1)
    s.producers("after the marker", topic)
    s.add("the next transaction has the same epoch", tid, own, {topic: [0]})
    produce("and goes on with the sequences", own, 1)
    end("abort", own, commit=False)
    s.state("CompleteAbort", tid, until="CompleteAbort")
    end("abort again", own, commit=False)
    end("commit what was aborted", own, commit=True)
    s.fetch("what was aborted", topic, isolation=1)
    s.fetch("and all of it", topic)
    s.add("a transaction to fence", tid, own, {topic: [0]})
    produce("its record", own, 2)
    newer = s.init("init aborts it", tid)
    end("the fenced one ends", own, commit=True)
    end("the fenced one ends, version 1", own, commit=True, version=1)
    s.add("the fenced one adds", tid, own, {topic: [0]})
    produce("the fenced one produces", own, 3)
    s.init("the fenced one goes on", tid, own=own)
    s.init("the same, version 3", tid, own=own, version=3)
    s.init("a producer id without an epoch", tid, own=(own[0], -1))
    bumped = s.init("its owner goes on", tid, own=newer)
    s.init("its owner again: the answer was lost", tid, own=newer)
    s.init("with somebody else's producer id", tid, own=strange)
    own = s.init("a short timeout", tid, timeout=500, own=bumped)
    s.add("add, and wait", tid, own, {topic: [0]})
    produce("and write", own, 0)
    s.state("timed out", tid, until="CompleteAbort")
    end("commit after the timeout", own, commit=True)
    end("abort after the timeout", own, commit=False)
    s.fetch("in the end", topic, isolation=1)
    s.listed("list", "one", 1, state_filters=("CompleteAbort", "Nonsense"))


def protocol_2(s: Script) -> None:
    """Every transactional call of protocol 2 in every state that holds still."""
    topic, tid = s.topic("two", 4), "two"
    s.coordinator(tid)

    def end(name: str, own: tuple[int, int], *, commit: bool, version: int = 5) -> tuple[int, int]:
        return s.end(name, tid, own, commit=commit, version=version)

    def produce(name: str, own: tuple[int, int], sequence: int, **more: Any) -> None:
        data = batch(1, own, sequence, attributes=TRANSACTIONAL)
        s.produce(name, topic, data, tid=tid, **more)

    produce("produce for an unknown id", (4_000_000, 0), 0)
    first = s.init("init", tid)
    end("commit, Empty", first, commit=True)
    own = end("abort, Empty", first, commit=False)
    s.state("aborted without a partition", tid, until="CompleteAbort")
    end("that abort again", first, commit=False)
    end("the opposite of that abort", first, commit=True)
    end("commit, never opened", own, commit=True)
    opened = own
    own = end("abort, never opened, after an abort", own, commit=False)
    s.state("that one", tid, until="CompleteAbort")
    end("a stale epoch", first, commit=False)
    produce("produce with a stale epoch", opened, 0)
    produce("produce with a strange producer", (own[0] + 1_000_000, 0), 0)
    produce("a first sequence that is not 0", own, 3)
    produce("produce adds the partition", own, 0)
    s.state("Ongoing", tid)
    produce("its duplicate", own, 0)
    produce("the next", own, 1)
    produce("a gap", own, 9)
    produce("another partition", own, 0, partition=1)
    s.producers("an open transaction", topic)
    end("a strange producer ends", (own[0] + 1_000_000, 0), commit=True)
    end("an epoch too high", (own[0], own[1] + 1), commit=True)
    old = own
    own = end("commit", old, commit=True)
    s.state("CompleteCommit", tid, until="CompleteCommit")
    end("commit again", old, commit=True)
    end("abort what was committed", old, commit=False)
    end("commit again by protocol 1", old, commit=True, version=4)
    produce("the old epoch after the marker", old, 2)
    s.producers("the marker raised the epoch", topic)
    produce("a new transaction that goes on with sequences", own, 2)
    produce("a new transaction from 0", own, 0)
    old = own
    own = end("abort", old, commit=False)
    s.state("CompleteAbort", tid, until="CompleteAbort")
    end("abort again", old, commit=False)
    end("commit what was aborted", old, commit=True)
    end("the transaction before", (old[0], old[1] - 1), commit=True)
    s.fetch("read committed", topic, isolation=1)
    s.fetch("all", topic)
    produce("a transaction to fence", own, 0)
    newer = s.init("init aborts it", tid)
    end("the fenced one commits", own, commit=True)
    end("the fenced one aborts", own, commit=False)
    produce("the fenced one produces", own, 1)
    own = s.init("its owner goes on", tid, own=newer, timeout=500)
    produce("write, and wait", own, 0)
    s.state("timed out", tid, until="CompleteAbort")
    end("commit after the timeout", own, commit=True)
    end("abort after the timeout", own, commit=False)
    produce("produce after the timeout", own, 1)
    own = s.init("init after the timeout", tid)
    s.add("protocol 1 within", tid, own, {topic: [2]})
    produce("with version 11", own, 0, version=11, partition=2)
    end("ended by protocol 1", own, commit=True, version=4)
    s.state("by protocol 1", tid, until="CompleteCommit")
    end("once more", own, commit=True, version=4)
    end("once more by protocol 2", own, commit=True)
    s.state("in the end", tid)


def exact_ends(s: Script, version: int) -> None:
    """An abort under the exact identity that DescribeTransactions tells, of ids that are Empty,
    Ongoing, ended or used again, in protocol ``version``. What a sweep is made of.
    """
    topic, end_version = s.topic(f"exact-{version}"), 3 + version
    produce_version = 10 + version

    def end(name: str, tid: str, own: tuple[int, int], *, commit: bool = False) -> tuple[int, int]:
        return s.end(name, tid, own, commit=commit, version=end_version)

    def write(name: str, tid: str, own: tuple[int, int], sequence: int) -> None:
        if version == 1:
            s.add(f"add, {name}", tid, own, {topic: [0]})
        data = batch(1, own, sequence, attributes=TRANSACTIONAL)
        s.produce(name, topic, data, tid=tid, version=produce_version)

    empty, ended, again = (f"exact-{version}-{name}" for name in ("empty", "ended", "again"))
    s.coordinator(empty)
    own = s.init("an id that is Empty", empty)
    end("abort it", empty, own)
    s.state("then it is", empty, until="CompleteAbort" if version == 2 else "Empty")
    end("abort it again", empty, own)
    write("its owner writes all the same", empty, own, 0)
    s.state("and is", empty)

    own = s.init("an id to be Ongoing", ended)
    write("write", ended, own, 0)
    end("abort it, Ongoing", ended, own)
    s.state("aborted", ended, until="CompleteAbort")
    end("abort it once more", ended, own)
    end("its owner commits", ended, own, commit=True)
    write("its owner goes on writing", ended, own, 1)
    s.state("and now it is", ended)
    newer = s.init("its owner begins anew", ended)

    write("a transaction of that", ended, newer, 0)
    end("the late abort of the one before", ended, own)
    s.state("hits nothing", ended)
    end("which is committed", ended, newer, commit=True)
    s.state("committed", ended, until="CompleteCommit")
    end("a late abort of what is committed", ended, newer)
    s.state("changes nothing", ended)

    own = s.init("an id that is aborted and used again at once", again)
    write("its first record", again, own, 0)
    following = end("abort and go on", again, own)
    s.state("it is done", again, until="CompleteAbort")
    if version == 2:
        write("under the epoch that the abort gave", again, following, 0)
        end("the same abort, late", again, own)
        s.state("leaves it open", again)
        end("which is aborted exactly", again, following)
        s.state("at last", again, until="CompleteAbort")
    s.fetch("what readers see", topic, isolation=1)
    s.producers("who is remembered", topic)


def late_add_partitions(s: Script) -> None:
    """Protocol 1: an AddPartitionsToTxn that arrives behind the commit opens a transaction again,
    under the same identity; the broker aborts it when its time is over.
    """
    topic, tid = s.topic("late-add"), "late-add"
    s.coordinator(tid)
    own = s.init("init", tid, timeout=500)
    s.add("add", tid, own, {topic: [0]})
    data = batch(1, own, 0, attributes=TRANSACTIONAL)
    s.produce("write", topic, data, tid=tid, version=11)
    s.end("commit", tid, own, commit=True, version=4)
    s.state("committed", tid, until="CompleteCommit")
    s.add("the late one", tid, own, {topic: [0]})
    s.state("open again", tid)
    s.offsets("nothing hangs on it", topic, -1, 1)
    s.state("aborted when its time is over", tid, until="CompleteAbort")
    s.end("commit it again", tid, own, commit=True, version=4)
    s.fetch("what was committed stays", topic, isolation=1)


def beside_an_open_one(s: Script) -> None:
    """Two writers in one partition, as in the commit log's: what readers see past a stranger's
    open transaction, and how its end reads.
    """
    topic = s.topic("beside")
    s.coordinator("ours")
    ours, theirs = s.init("ours", "ours"), s.init("theirs", "theirs")

    def write(name: str, tid: str, own: tuple[int, int], sequence: int) -> None:
        s.add(f"add, {name}", tid, own, {topic: [0]})
        data = batch(1, own, sequence, attributes=TRANSACTIONAL)
        s.produce(name, topic, data, tid=tid, version=11)

    def read(when: str) -> None:
        s.offsets(f"the last stable offset, {when}", topic, -1, 1)
        s.offsets(f"the high watermark, {when}", topic, -1)
        s.fetch(f"read committed, {when}", topic, isolation=1)
        s.fetch(f"read uncommitted, {when}", topic)

    write("ours, committed", "ours", ours, 0)
    s.end("commit", "ours", ours, commit=True, version=4)
    s.state("is committed", "ours", until="CompleteCommit")
    write("theirs, open", "theirs", theirs, 0)
    read("behind theirs")
    write("ours, behind theirs", "ours", ours, 1)
    s.end("commit ours", "ours", ours, commit=True, version=4)
    s.state("ours is committed", "ours", until="CompleteCommit")
    read("ours is committed, theirs is open")
    write("ours, to be aborted", "ours", ours, 2)
    s.end("abort ours", "ours", ours, commit=False, version=4)
    s.state("ours is aborted", "ours", until="CompleteAbort")
    s.fetch("from the middle, read uncommitted", topic, 3)
    s.end("abort theirs", "theirs", theirs, commit=False, version=4)
    s.state("theirs is aborted", "theirs", until="CompleteAbort")
    read("all have ended")


def filtered_lists(s: Script, version: int) -> None:
    """ListTransactions by state and by duration (from version 1 on)."""
    topic, name = s.topic("listed"), "listed"
    s.coordinator(name)
    ids = {state: f"{name}~{state}" for state in ("Empty", "Ongoing", "CompleteCommit")}
    for state, tid in ids.items():
        own = s.init(f"init {state}", tid)
        if state == "Empty":
            continue
        s.add(f"add {state}", tid, own, {topic: [0]})
        if state == "CompleteCommit":
            s.end("commit", tid, own, commit=True, version=4)
            s.state("it is", tid, until="CompleteCommit")
    for states in ((), ("Ongoing",), ("Ongoing", "Empty"), ("CompleteCommit",), ("ongoing",)):
        s.listed(f"states {states}", name, version, state_filters=states)
    s.listed("open for long", name, version, duration_filter=600_000)
    for _ in range(3):
        s.world.pause()
    s.listed("open for a moment", name, version, duration_filter=10, state_filters=("Ongoing",))
    s.listed(
        "open for long, Ongoing", name, version, duration_filter=600_000, state_filters=("Ongoing",)
    )


def behind_an_init(s: Script, version: int) -> None:
    """EndTxn right behind somebody else's InitProducerId, whose abort is under way."""
    topic, tid = s.topic(f"behind-{version}"), f"behind-{version}"
    s.coordinator(tid)
    for number, commit in enumerate((True, False)):
        own = s.init(f"init {number}", tid)
        s.add(f"add {number}", tid, own, {topic: [0]})
        passing = Script(s.world)
        passing.home = s.home
        passing.init("", tid, settle=False)
        passing.end("", tid, own, commit=commit, version=3 + version, settle=False)
        (_, (init, *_)), (_, (end, *_)) = passing.steps
        s.step(f"the other's InitProducerId {number}", init)
        s.step(f"it passes, or is over {number}", end in BEHIND_AN_INIT[version, commit] or end)
        s.state(f"aborted {number}", tid, until="CompleteAbort")
        s.end(f"and then {number}", tid, own, commit=commit, version=3 + version)


#: By protocol and whether it is a commit.
BEHIND_AN_INIT = {
    (1, True): {"PRODUCER_FENCED"},
    (1, False): {"PRODUCER_FENCED"},
    (2, True): {"CONCURRENT_TRANSACTIONS", "INVALID_TXN_STATE"},
    (2, False): {"CONCURRENT_TRANSACTIONS", "NONE"},
}


def markers_wait(s: Script, version: int, stop: Callable[[int], None]) -> None:
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
        found = _produce_at(s, leader, topic, 10 + version, data=data, tid=tid)
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

    def find() -> Any:
        def make(r: Answer) -> Any:
            return r.FindCoordinatorRequest(key=tid, key_type=1, coordinator_keys=(tid,))

        return s.ask(FIND, 4, make, node=asked).coordinators[0]

    def describe() -> Any:
        found = find()
        passing.add(error_name(found))
        if error_name(found) != "NONE" or int(found.node_id) == gone:
            return found
        s.home = int(found.node_id)
        answer = s.ask(
            TRANSACTIONS,
            0,
            lambda r: r.DescribeTransactionsRequest(transactional_ids=(tid,)),
            node=s.home,
        ).transaction_states[0]
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


def exhausted_epochs(s: Script) -> None:
    """What happens when a producer id's epochs are used up: 32767 aborts of nothing."""
    tid = "exhausted"
    s.coordinator(tid)
    own = s.init("init", tid)
    # (By InitProducerId: each goes up by one; only the end of it is a step.)
    quiet = Script(s.world)
    while own[1] < 32765:
        own = quiet.init("", tid, own=own)
    last = s.init("the last epoch but one", tid, own=own)
    fresh = s.end("abort at the last epoch", tid, last, commit=False, version=5)
    s.state("a new producer id", tid, until="CompleteAbort")
    s.end("the same abort again", tid, last, commit=False, version=5)
    s.end("commit instead", tid, last, commit=True, version=5)
    s.end("the same abort by protocol 1", tid, last, commit=False, version=4)
    s.init("init with what is used up", tid, own=last)
    s.init("go on", tid, own=fresh)


def three_nodes(s: Script) -> None:
    """Requests to the wrong node."""
    topic = s.topic("spread", 1, 3, min_insync_replicas="2")
    leader = int(s.metadata([topic], 9).topics[0].partitions[0].leader_id)
    for version in (9, 12):
        # (The hint's node id differs from world to world; it is the leader in both.)
        found = _produce_at(s, leader % 3 + 1, topic, version)
        hint = getattr(found, "current_leader", None)
        told = None if hint is None else int(hint.leader_id) == leader
        s.step(f"a follower, version {version}", (error_name(found), found.base_offset, told))
    s.step("the leader", error_name(_produce_at(s, leader, topic, 12)))

    node = s.coordinator("some")

    def init(r: Answer) -> Any:
        return r.InitProducerIdRequest(transactional_id="some", transaction_timeout=1000)

    def end(r: Answer) -> Any:
        return r.EndTxnRequest(
            transactional_id="some", producer_id=1, producer_epoch=0, committed=True
        )

    def describe(r: Answer) -> Any:
        return r.DescribeTransactionsRequest(transactional_ids=("some",))

    wrong = node % 3 + 1
    s.step("init at the wrong node", error_name(s.ask(INIT, 5, init, node=wrong)))
    s.step("end at the wrong node", error_name(s.ask(END, 5, end, node=wrong)))
    told = s.ask(TRANSACTIONS, 0, describe, node=wrong).transaction_states[0]
    s.step("describe at the wrong node", error_name(told))
    right = s.settled(lambda: s.ask(INIT, 5, init, node=node), error_name)
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
            found = _produce_at(s, leader % 3 + 1, topic, version, data=data, tid="some")
            knows = int(found.current_leader.leader_id) == leader
            step = f"a transaction at a follower, {name}, version {version}"
            s.step(step, (error_name(found), knows))
    found = s.ask(TRANSACTIONS, 0, describe, node=node).transaction_states[0]
    s.step("nothing was opened", (found.transaction_state, list(found.topics)))
    # (A step for each: the leader asks the coordinator, and says what that says.)
    for name, who in reversed(wrongs.items()):
        data = batch(1, who, 0, attributes=TRANSACTIONAL)
        once = partial(_produce_at, s, leader, topic, 12, data=data, tid="some")
        s.step(f"the same at the leader, {name}", error_name(s.settled(once, error_name)))


def too_few_replicas(s: Script, stop: Callable[[int], None]) -> None:
    """A follower of three is down, and all three are needed. ``stop`` stops a node cleanly."""
    topic = s.topic("all-three", 1, 3, min_insync_replicas="3")

    def partition(node: int) -> Any:
        return s.metadata([topic], 9, node=node).topics[0].partitions[0]

    leader = int(partition(1).leader_id)
    s.step("all are there", error_name(_produce_at(s, leader, topic, 12)))
    stop(leader % 3 + 1)
    while len(partition(leader).isr_nodes) > 2:
        s.world.pause()
    s.step("who is in sync", len(partition(leader).isr_nodes))
    s.step("who is offline", len(partition(leader).offline_replicas))
    s.step("too few for acks=all", error_name(_produce_at(s, leader, topic, 12)))
    found = _produce_at(s, leader, topic, 12, acks=1)
    s.step("enough for acks=1", (error_name(found), found.base_offset))


def _produce_at(
    s: Script,
    node: int,
    topic: str,
    version: int,
    acks: int = -1,
    *,
    data: bytes | None = None,
    tid: str | None = None,
) -> Any:
    def make(r: Answer) -> Any:
        piece = r.PartitionProduceData(index=0, records=batch() if data is None else data)
        topics = [r.TopicProduceData(name=topic, partition_data=[piece])]
        return r.ProduceRequest(transactional_id=tid, acks=acks, timeout=9000, topic_data=topics)

    answer = s.ask(PRODUCE, version, make, node=node)
    return answer.responses[0].partition_responses[0]
