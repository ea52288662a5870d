"""What FakeCluster can do that no real broker holds still for, and that its faults must fire."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.cluster import TopicPartition
from tests.conformance.raw_batch import TRANSACTIONAL, batch
from tests.conformance.script import END, INIT, METADATA, PRODUCE, Script
from tests.conformance.worlds import FakeWorld
from tests.fakes.fake_cluster import FOREVER, FakeCluster, FakeConnection

T0 = TopicPartition("t", 0)


def a_script(cluster: FakeCluster, partitions: int = 1) -> Script:
    cluster.create_topic("t", partitions)
    return Script(FakeWorld(cluster))


def last(script: Script) -> Any:
    return script.steps[-1][1]


def test_a_decided_transaction_is_concurrent_until_its_markers():
    cluster = FakeCluster(1, marker_ms=50)
    s = a_script(cluster)
    own = s.init("init", "id")
    s.produce("write", "t", batch(1, own, 0, attributes=TRANSACTIONAL), tid="id")
    _, epoch = s.end("commit", "id", own, commit=True, version=5)
    assert epoch == own[1] + 1
    for name, commit, error in (
        ("again", True, "CONCURRENT_TRANSACTIONS"),
        ("the opposite", False, "CONCURRENT_TRANSACTIONS"),
    ):
        s.end(name, "id", own, commit=commit, version=5, settle=False)
        assert last(s)[0] == error
    s.init("init", "id", settle=False)
    assert last(s)[0] == "CONCURRENT_TRANSACTIONS"
    late = batch(1, own, 1, attributes=TRANSACTIONAL)
    s.produce("the old epoch, before the marker", "t", late, tid="id", settle=False)
    assert last(s)[:2] == ("NONE", 1)
    data = batch(1, (own[0], epoch), 0, attributes=TRANSACTIONAL)
    s.produce("the next transaction", "t", data, tid="id", version=12, settle=False)
    assert last(s)[0] == "CONCURRENT_TRANSACTIONS"
    assert cluster.logs[T0].values(committed=True) == []
    cluster.advance(1050)
    assert cluster.logs[T0].values(committed=True) == [b"v", b"v"]
    assert cluster.next_due_ms() < NEVER  # the scan for late transactions
    s.state("done", "id")
    assert last(s)[1] == "CompleteCommit"


def test_markers_wait_for_leaders_that_are_down():
    cluster = FakeCluster(1)
    s = a_script(cluster)
    own = s.init("init", "id")
    s.produce("write", "t", batch(1, own, 0, attributes=TRANSACTIONAL), tid="id")
    s.end("abort", "id", own, commit=False, version=5)
    cluster.stop_broker(1)
    assert cluster.connect(1) is None
    cluster.advance(5000)
    assert cluster.logs[T0].last_stable_offset == 0
    cluster.start_broker(1)
    cluster.advance(6000)
    assert cluster.logs[T0].last_stable_offset == cluster.logs[T0].end == 2
    assert cluster.logs[T0].values(committed=True) == []


def test_epochs_that_are_used_up_bring_a_new_producer_id():
    """TransactionCoordinatorTest#shouldReturnOkOnEndTxnWhenStatusIsCompleteCommitAndResultIsCommit.
    Seen alike once on a real broker, where it takes 32767 calls.
    """
    cluster = FakeCluster(1)
    s = a_script(cluster)
    producer_id, _ = s.init("init", "id")
    cluster.transactions.transactions["id"].epoch = 32766
    old = (producer_id, 32766)
    fresh = s.end("abort", "id", old, commit=False, version=5)
    assert fresh[0] not in (-1, producer_id)
    assert fresh[1] == 0
    s.state("done", "id", until="CompleteAbort")
    assert s.end("again", "id", old, commit=False, version=5) == fresh
    assert last(s)[0] == "NONE"
    s.end("the opposite", "id", old, commit=True, version=5)
    assert last(s)[0] == "INVALID_TXN_STATE"
    s.end("again by protocol 1", "id", old, commit=False, version=4)
    assert last(s)[0] == "INVALID_PRODUCER_ID_MAPPING"


def test_a_clean_restart_keeps_each_producers_last_batch_only():
    cluster = FakeCluster(1)
    s = a_script(cluster)
    own = s.init("init", None)
    for i in range(3):
        s.produce("write", "t", batch(1, own, i))
    cluster.restart_broker(1)
    s.produce("the last again", "t", batch(1, own, 2))
    assert last(s)[:2] == ("NONE", 2)
    s.produce("the one before", "t", batch(1, own, 1))
    assert last(s)[0] == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    cluster.expire_producer(T0, own[0])
    s.produce("nobody knows it any more", "t", batch(1, own, 1))
    assert last(s)[:2] == ("NONE", 3)


def test_leaders_move_and_replicas_fall_behind():
    cluster = FakeCluster(3, min_isr=2)
    s = a_script(cluster)
    cluster.move_leader(T0, 2)
    s.produce("at the wrong node", "t", batch())
    assert last(s) == ("NOT_LEADER_OR_FOLLOWER", -1, -1, [], 2)
    cluster.move_leader(T0, 1)
    assert cluster.logs[T0].leader_epoch == 2
    cluster.shrink_isr(T0, 2, 3)
    s.produce("alone", "t", batch())
    assert last(s)[0] == "NOT_ENOUGH_REPLICAS"
    cluster.heal()
    s.produce("together", "t", batch())
    assert last(s)[:2] == ("NONE", 0)
    cluster.stop_broker(1)
    assert cluster.logs[T0].leader in (2, 3)


def test_faults_are_met_by_the_requests_that_they_were_laid_for():
    cluster = FakeCluster(1)
    s = a_script(cluster, 2)
    control = cluster.control
    control.answer(PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, topic="t", partition=1, nth=2)
    for partition, error in ((1, "NONE"), (1, "NOT_ENOUGH_REPLICAS"), (1, "NONE")):
        s.produce("write", "t", batch(), partition=partition)
        assert last(s)[0] == error
    after = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    control.answer(PRODUCE, after, times=1, processed=True)
    s.produce("write", "t", batch())
    assert last(s)[:2] == ("NOT_ENOUGH_REPLICAS_AFTER_APPEND", -1)
    assert cluster.logs[T0].end == 1
    control.answer(INIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
    s.init("init", "id")  # (asks again by itself)
    assert last(s)[0] == "NONE"
    control.cut(METADATA, times=FOREVER, node=1)
    assert s.metadata(["t"], 9) is None
    assert s.metadata(["t"], 9) is None
    control.check()
    control.clear()
    assert s.metadata(["t"], 9) is not None
    control.drop(END)
    with pytest.raises(AssertionError, match="never met"):
        control.check()


def test_an_answer_may_be_late_or_lost_after_its_request_ran():
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    frames = writes(3)
    cluster.control.delay(PRODUCE, 100, nth=1)
    cluster.control.drop(PRODUCE, nth=2)
    connection = connected(cluster)
    for frame in frames:
        connection.send(frame, 10)
    assert connection.due(109) == []
    assert cluster.logs[T0].end == 1, "the next is worked on behind the answer"
    assert cluster.next_due_ms() == 110
    answers = connection.due(110)
    assert [a[:4] for a in answers] == [frames[0][4:8], frames[2][4:8]]
    assert cluster.logs[T0].end == 3
    assert not connection.pending
    cluster.control.check()


def test_a_dead_connections_requests_are_worked_on():
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    cluster.work_ms = lambda: 30
    connection = connected(cluster)
    connection.send(writes(1)[0], 10)
    connection.close()
    assert connection.pending
    assert connection.due(40) == []
    assert cluster.logs[T0].end == 1
    assert not connection.pending


def test_requests_during_a_pending_change_must_wait():
    cluster = FakeCluster(1)
    s = a_script(cluster)
    own = s.init("init", "id")
    s.add("add", "id", own, {"t": [0]})
    cluster.append_ms = lambda: 50
    frames = requests_of(lambda script: script.init("fence", "id", settle=False))
    fencing = connected(cluster)
    fencing.send(frames[0], 2000)
    assert fencing.due(2000) == []
    s.world.now = 2000  # type: ignore[attr-defined]
    s.state("still", "id")
    assert last(s)[:2] == ("NONE", "Ongoing")
    wait = "CONCURRENT_TRANSACTIONS"
    s.init("InitProducerId", "id", settle=False)
    assert last(s)[0] == wait
    s.end("EndTxn", "id", own, commit=True, version=5, settle=False)
    assert last(s)[0] == wait
    s.add("AddPartitionsToTxn", "id", own, {"t": [0]}, settle=False)
    assert last(s)[0][1] == wait
    assert len(fencing.due(2050)) == 1
    cluster.advance(2100)
    assert cluster.transactions.transactions["id"].state.value == "CompleteAbort"


def test_no_answer_precedes_its_write_even_when_time_jumps():
    cluster = FakeCluster(1)
    s = a_script(cluster)
    own = s.init("init", "id")
    s.add("add", "id", own, {"t": [0]})
    cluster.append_ms, cluster.work_ms = lambda: 50, lambda: 10
    connection = connected(cluster)
    connection.send(requests_of(lambda script: script.init("fence", "id", settle=False))[0], 2000)
    assert connection.due(2300) == [], "it is worked on now, not when it was due"
    assert cluster.transactions.transactions["id"].state.value == "Ongoing"
    assert len(connection.due(2350)) == 1
    assert cluster.transactions.transactions["id"].state.value != "Ongoing"


def connected(cluster: FakeCluster) -> FakeConnection:
    connection = cluster.connect(1)
    assert connection is not None
    return connection


def writes(count: int) -> list[bytes]:
    """Produce requests."""
    return requests_of(
        lambda script: [script.produce("write", "t", batch(), settle=False) for _ in range(count)]
    )


def requests_of(tell: Any) -> list[bytes]:
    """The requests of a script that gets no answers."""
    frames: list[bytes] = []
    world = FakeWorld(FakeCluster(1))
    true = world.exchange

    def exchange(node: int, frame: bytes, *, answered: bool) -> bytes | None:
        frames.append(frame)
        return true(node, frame, answered=answered)

    world.exchange = exchange
    tell(Script(world))
    return frames


def test_a_moving_coordinator_is_missing_and_then_loads():
    cluster = FakeCluster(3)
    s = a_script(cluster)
    s.home = cluster.coordinator_of("id")
    own = s.init("init", "id")
    s.add("add", "id", own, {"t": [0]})
    old, new = s.home, s.home % 3 + 1
    cluster.move_coordinator("id", new, resigned_ms=100, loading_ms=100)

    def told() -> list[Any]:
        found = []
        for node in (old, new):
            answer = s.ask(66, 1, node=node, state_filters=())
            found.append((ErrorCode(int(answer.error_code)).name, len(answer.transaction_states)))
            s.home = node
            s.state("describe", "id")
            found.append(last(s)[0])
        return found

    assert told() == [("NONE", 0), "NOT_COORDINATOR", ("NONE", 0), "NOT_COORDINATOR"]
    s.world.now += 100  # type: ignore[attr-defined]
    loading = "COORDINATOR_LOAD_IN_PROGRESS"
    assert told() == [("NONE", 0), "NOT_COORDINATOR", (loading, 0), loading]
    s.world.now += 100  # type: ignore[attr-defined]
    assert told() == [("NONE", 0), "NOT_COORDINATOR", ("NONE", 1), "NONE"]
    s.end("end", "id", own, commit=True, version=5)
    assert last(s)[0] == "NONE"


def test_an_isolated_leader_shows_old_data_and_takes_none():
    cluster = FakeCluster(3)
    s = a_script(cluster)
    cluster.move_leader(T0, 1)
    s.produce("write", "t", batch())
    cluster.cut_off(1)
    leader = cluster.logs[T0].leader
    assert leader != 1
    for node, error in ((1, "NOT_ENOUGH_REPLICAS"), (leader, "NONE")):
        s.produce("write more", "t", batch(), node=node)
        assert last(s)[0] == error
    s.offsets("the old end", "t", -1)
    assert last(s)[2] == 1
    assert int(s.metadata(["t"], 9, node=1).topics[0].partitions[0].leader_id) == 1
    assert int(s.metadata(["t"], 9, node=2).topics[0].partitions[0].leader_id) == leader
    cluster.rejoin(1)
    s.produce("it knows now", "t", batch())
    assert last(s)[0] == "NOT_LEADER_OR_FOLLOWER"


def test_an_isolated_coordinator_answers_with_old_state():
    cluster = FakeCluster(3)
    s = a_script(cluster)
    s.home = old = cluster.coordinator_of("id")
    own = s.init("init", "id")
    s.add("add", "id", own, {"t": [0]})
    cluster.cut_off(old)
    s.home = cluster.coordinator_of("id")
    s.end("at the new one", "id", own, commit=False, version=5)
    s.state("at the new one", "id", until="CompleteAbort")
    s.home = old
    s.state("at the old one", "id")
    assert last(s)[1] == "Ongoing"
    s.end("at the old one", "id", own, commit=True, version=5, settle=False)
    assert last(s)[0] == "COORDINATOR_NOT_AVAILABLE"


def test_a_held_request_runs_later_and_those_behind_it_wait():
    cluster = FakeCluster(1)
    cluster.create_topic("t")
    frames = writes(2)
    cluster.control.hold(PRODUCE, 100)
    connection = connected(cluster)
    for frame in frames:
        connection.send(frame, 10)
    assert connection.due(109) == []
    assert cluster.logs[T0].end == 0
    connection.close()
    assert connection.pending, "it is worked on though nobody waits for it"
    cluster.advance(110)
    assert cluster.logs[T0].end == 2
    cluster.control.check()


def test_an_unreachable_broker_is_registered_and_leads_nothing():
    cluster = FakeCluster(3)
    cluster.unreachable.add(3)
    s = a_script(cluster, 6)
    assert {int(b.node_id) for b in s.metadata(["t"], 9).brokers} == {1, 2, 3}
    assert cluster.connect(3) is None
    assert {log.leader for log in cluster.logs.values()} == {1, 2}
    assert {cluster.coordinator_of(f"id {i}") for i in range(20)} == {1, 2}
