"""Scripts of a group's offsets in transactions, for a FakeCluster and for real brokers alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from spark_kafka_sink.base.errors import ErrorCode
from tests.conformance.script import PASSING, SHORT_MS, Script, error_name

OFFSET_FETCH, LIST_GROUPS, ADD_OFFSETS, OFFSET_COMMIT = 9, 16, 25, 28
_UNSTABLE_OFFSET_COMMIT = 88
Offsets = Mapping[tuple[str, int], int]


def group_coordinator(s: Script, group: str) -> None:
    """Asking has a young cluster make the place for offsets."""
    found = s.settled(lambda: s.found(group, kind=0), error_name)
    s.step(f"find coordinator of {group}", (error_name(found), int(found.node_id)))
    s.settled(lambda: _fetched(s, group, {}, stable=False), error_name, _YOUNG)


#: It is told to be the coordinator a moment before it knows.
_YOUNG = PASSING | {"NOT_COORDINATOR"}


def add_offsets(
    s: Script, name: str, tid: str, own: tuple[int, int], group: str, *, version: int = 4
) -> None:
    fields: dict[str, Any] = {
        "transactional_id": tid,
        "producer_id": own[0],
        "producer_epoch": own[1],
        "group_id": group,
    }
    s.step(name, error_name(s.settled(lambda: s.ask(ADD_OFFSETS, version, **fields), error_name)))


def _by_topic(partitions: Iterable[tuple[tuple[str, int], Any]]) -> dict[str, list[Any]]:
    """What is given of each partition."""
    topics: dict[str, list[Any]] = {}
    for (topic, _), one in partitions:
        topics.setdefault(topic, []).append(one)
    return topics


def commit_offsets(
    s: Script,
    name: str,
    tid: str,
    own: tuple[int, int],
    group: str,
    offsets: Offsets,
    *,
    version: int,
) -> None:
    topics = _by_topic(
        (
            tp,
            {
                "partition_index": tp[1],
                "committed_offset": offset,
                "committed_leader_epoch": 3,
                "committed_metadata": f"at {offset}",
            },
        )
        for tp, offset in offsets.items()
    )

    def once() -> dict[tuple[str, int], str]:
        answer = s.ask(
            OFFSET_COMMIT,
            version,
            transactional_id=tid,
            group_id=group,
            producer_id=own[0],
            producer_epoch=own[1],
            generation_id=-1,
            member_id="",
            topics=[{"name": topic, "partitions": found} for topic, found in topics.items()],
        )
        return {
            (topic.name, p.partition_index): error_name(p)
            for topic in answer.topics
            for p in topic.partitions
        }

    def passing(errors: dict[tuple[str, int], str]) -> str:
        return next((e for e in errors.values() if e in PASSING), "")

    s.step(name, sorted(s.settled(once, passing).items()))


def _fetched(s: Script, group: str, wanted: Offsets, *, stable: bool) -> Any:
    topics = _by_topic((tp, tp[1]) for tp in wanted)
    asked = [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]
    groups = [{"group_id": group, "topics": asked}]
    return s.ask(OFFSET_FETCH, 8, groups=groups, require_stable=stable).groups[0]


def stored(s: Script, name: str, group: str, wanted: Offsets, *, stable: bool = False) -> None:
    found = s.settled(lambda: _fetched(s, group, wanted, stable=stable), error_name)
    told = [
        (
            topic.name,
            p.partition_index,
            p.committed_offset,
            p.committed_leader_epoch,
            p.metadata,
            "UNSTABLE"
            if int(p.error_code) == _UNSTABLE_OFFSET_COMMIT
            else ErrorCode(int(p.error_code)).name,
        )
        for topic in found.topics
        for p in topic.partitions
    ]
    s.step(name, (error_name(found), sorted(told)))


def listed(s: Script, name: str, group: str, *states: str) -> None:
    """The answer about one group, of those that are in ``states``."""
    found = s.settled(lambda: s.ask(LIST_GROUPS, 4, states_filter=states), error_name)
    told = [(g.protocol_type, g.group_state) for g in found.groups if g.group_id == group]
    s.step(name, (error_name(found), told))


def offsets_of_protocol_1(s: Script) -> None:
    """AddOffsetsToTxn, TxnOffsetCommit up to version 4, EndTxn 4."""
    topic, tid, group = s.topic("offsets-1", 2), "offsets-1", "group-1"
    both = {(topic, 0): 5, (topic, 1): 7}
    s.coordinator(tid)
    group_coordinator(s, group)

    def commit(name: str, own: tuple[int, int], offsets: Offsets, version: int = 4) -> None:
        commit_offsets(s, name, tid, own, group, offsets, version=version)

    def end(name: str, own: tuple[int, int], state: str) -> None:
        s.end(name, tid, own, commit=state == "CompleteCommit", version=4)
        s.state(f"{name}, done", tid, until=state)

    nobody = (4_000_000, 0)
    # (Brokers before 4.0 have the group after a commit that they refuse, too.)
    listed(s, "listed without offsets", group)
    add_offsets(s, "add to an unknown id", tid, nobody, group)
    commit("commit for an unknown id", nobody, both)
    add_offsets(s, "add to an empty id", "", nobody, group)
    own = s.init("init", tid)
    stored(s, "a group that nobody knows", group, both)
    for version in (2, 3, 4):
        commit(f"commit what was not added, version {version}", own, both, version)
    add_offsets(s, "add with a wrong epoch", tid, (own[0], own[1] + 1), group)
    add_offsets(s, "the same, version 1", tid, (own[0], own[1] + 1), group, version=1)
    add_offsets(s, "add with a wrong producer", tid, (own[0] + 1_000_000, own[1]), group)
    add_offsets(s, "add", tid, own, group)
    s.state("Ongoing", tid)
    commit("commit with a wrong epoch", (own[0], own[1] + 1), both)
    commit("commit with a wrong producer", (own[0] + 1_000_000, own[1]), both)
    commit_offsets(s, "no group", tid, own, "", both, version=4)
    commit("no partitions", own, {})
    commit("an unknown topic beside a known one", own, {(topic, 0): 4, ("absent", 0): 1})
    commit("an unknown partition beside a known one", own, {(topic, 1): 4, (topic, 9): 1})
    commit("both", own, both)
    commit("both again", own, both)
    stored(s, "open", group, both)
    stored(s, "open, asked for what is stable", group, both, stable=True)
    listed(s, "listed while its offsets are open", group)
    end("commit", own, "CompleteCommit")
    listed(s, "listed without members", group)
    listed(s, "listed among those with members", group, "Stable", "PreparingRebalance")
    listed(s, "listed among the empty", group, "empty")
    listed(s, "listed among those in no state", group, "Surprised")
    stored(s, "committed", group, both)
    stored(s, "committed and stable", group, both, stable=True)
    stored(s, "not of another partition", group, {(topic, 3): 0, ("absent", 0): 0})
    commit("after the commit", own, both)
    add_offsets(s, "the next transaction", tid, own, group)
    commit("lower ones", own, {(topic, 0): 2}, version=3)
    end("abort", own, "CompleteAbort")
    stored(s, "aborted", group, both, stable=True)
    add_offsets(s, "and one more", tid, own, group, version=0)
    commit("lower ones, to be kept", own, {(topic, 0): 2}, version=1)
    end("commit the lower ones", own, "CompleteCommit")
    stored(s, "lower", group, both)
    add_offsets(s, "one to be fenced", tid, own, group)
    commit("its offsets", own, {(topic, 0): 9})
    newer = s.init("init fences it", tid)
    commit("it commits offsets", own, {(topic, 0): 9})
    add_offsets(s, "it adds", tid, own, group)
    stored(s, "fenced", group, both, stable=True)
    own = s.init("a short time-out", tid, timeout=SHORT_MS, own=newer)
    add_offsets(s, "add, and wait", tid, own, group)
    commit("and commit", own, {(topic, 0): 9})
    s.state("timed out", tid, until="CompleteAbort")
    stored(s, "after the time-out", group, both, stable=True)


def offsets_of_protocol_2(s: Script) -> None:
    """TxnOffsetCommit 5 and EndTxn 5 alone."""
    topic, tid, group = s.topic("offsets-2", 2), "offsets-2", "group-2"
    both = {(topic, 0): 5, (topic, 1): 7}
    s.coordinator(tid)
    group_coordinator(s, group)

    def commit(name: str, own: tuple[int, int], offsets: Offsets, version: int = 5) -> None:
        commit_offsets(s, name, tid, own, group, offsets, version=version)

    commit("commit for an unknown id", (4_000_000, 0), both)
    own = s.init("init", tid)
    commit("with a wrong epoch", (own[0], own[1] + 1), both)
    commit("with a wrong producer", (own[0] + 1_000_000, own[1]), both)
    commit_offsets(s, "no group", tid, own, "", both, version=5)
    commit("no partitions", own, {})
    commit("an unknown topic alone", own, {("absent", 0): 1})
    s.state("nothing is open", tid)
    commit("version 4 adds nothing", own, both, version=4)
    commit("version 5 does", own, both)
    s.state("Ongoing", tid)
    commit("again", own, both)
    commit("then version 4 may, too", own, both, version=4)
    stored(s, "open", group, both)
    stored(s, "open, asked for what is stable", group, both, stable=True)
    old = own
    own = s.end("commit", tid, old, commit=True, version=5)
    s.state("committed", tid, until="CompleteCommit")
    stored(s, "kept", group, both, stable=True)
    commit("the old epoch", old, {(topic, 0): 9})
    commit("the next transaction", own, {(topic, 0): 1})
    stored(s, "the next one is open", group, both, stable=True)
    old = own
    own = s.end("abort", tid, old, commit=False, version=5)
    s.state("aborted", tid, until="CompleteAbort")
    stored(s, "as before", group, both, stable=True)
    commit("one to be fenced", own, {(topic, 1): 1})
    newer = s.init("init fences it", tid)
    commit("it goes on", own, {(topic, 1): 1})
    commit_offsets(s, "a second group", tid, newer, "group-3", {(topic, 0): 3}, version=5)
    commit("beside the first", newer, {(topic, 0): 3})
    s.end("commit both", tid, newer, commit=True, version=5)
    s.state("both committed", tid, until="CompleteCommit")
    stored(s, "the first", group, both, stable=True)
    stored(s, "the second", "group-3", both, stable=True)
