"""Scripts of transactions, on one node."""

from __future__ import annotations

from typing import Any

from tests.conformance.raw_batch import TRANSACTIONAL, batch
from tests.conformance.script import SHORT_MS, Script


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
    own = s.init("a short timeout", tid, timeout=SHORT_MS, own=bumped)
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
    own = s.init("its owner goes on", tid, own=newer, timeout=SHORT_MS)
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
    """An abort under the exact identity that DescribeTransactions returns, of ids that are Empty,
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
    own = s.init("init", tid, timeout=SHORT_MS)
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
    """Two writers in one partition, as in the commit log's: what readers see past another client's
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
