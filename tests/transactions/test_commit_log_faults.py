"""The commit log when brokers and networks do their worst, in the simulated world."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from crc32c import crc32c

from spark_kafka_sink.base.errors import (
    AuthorizationError,
    CommitLogError,
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    SupersededError,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog, LogSession
from spark_kafka_sink.transactions.commit_state import CommitState, Decision
from tests.fakes.fake_cluster import FOREVER, FakeCluster
from tests.fakes.fake_cluster.batch_checks import read_batch, record_header
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.scene import Scene, scene_of
from tests.simulation.seeded_cluster import ClusterFaults
from tests.simulation.spark_world import LOG_TOPIC

KEY = "orders"
TP = TopicPartition(LOG_TOPIC, 0)
ID = "orders~~log"
_GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NO_RIGHT = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def version(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def scene(scene: Scene) -> Iterator[Scene]:
    yield scene
    scene.control.check()


def state(number: int, transactions: int = 2) -> CommitState:
    prepared = (PreparedTransaction(f"orders~run~g2.w~{i}", 7, i, 2) for i in range(transactions))
    return CommitState(1, "run", "query", number - 1).decided(Decision(number, tuple(prepared)))


def log(scene: Scene, **changes: int) -> CommitLog:
    return CommitLog(scene.client(**changes), LOG_TOPIC)


def session(scene: Scene, **changes: int) -> LogSession:
    """Of a driver that has written batch 1."""
    found = log(scene, **changes).open(KEY, scene.soon())
    found.write(state(1), scene.soon())
    return found


def read(scene: Scene) -> CommitState:
    """By a driver that comes after all others."""
    return log(scene).open(KEY, scene.soon()).state


def records(cluster: FakeCluster) -> int:
    return sum(batch.count for batch in cluster.logs[TP].batches if not batch.control)


def asked(cluster: FakeCluster, api: ApiKey) -> Callable[[], int]:
    """How many of these requests came so far."""
    fault = cluster.control.delay(api, 0, FOREVER)
    return lambda: fault.fired


@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_a_record_whose_acknowledgement_is_lost_is_written_once(scene: Scene, kind: str) -> None:
    found = session(scene, request_timeout_ms=1_000)
    getattr(scene.control, kind)(ApiKey.PRODUCE, 2)
    found.write(state(2), scene.soon())
    assert read(scene) == state(2)
    assert records(scene.cluster) == 2


def test_a_refused_write_is_aborted_after_an_earlier_lost_answer(scene: Scene) -> None:
    """Otherwise the log's transaction stays open for the lease, and the next start waits for it."""
    found = log(scene).open(KEY, scene.soon())
    scene.control.cut(ApiKey.PRODUCE)
    found.write(state(1), scene.soon())
    scene.control.answer(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, processed=True)
    with pytest.raises(AuthorizationError):
        found.write(state(2), scene.soon())
    scene.scheduler.sleep(100)
    assert scene.open_ids() == []
    assert read(scene) == state(1)


@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_an_end_whose_answer_is_lost_is_asked_for_again(
    scene: Scene, kind: str, processed: bool
) -> None:
    found = session(scene, request_timeout_ms=1_000)
    getattr(scene.control, kind)(ApiKey.END_TXN, 2, processed=processed)
    found.write(state(2), scene.soon())
    found.write(state(3), scene.soon())
    assert read(scene) == state(3)


@pytest.mark.parametrize("processed", [True, False])
def test_an_unclear_end_is_an_unknown_outcome(scene: Scene, processed: bool) -> None:
    found = session(scene, request_timeout_ms=1_000)
    scene.control.cut(ApiKey.END_TXN, FOREVER, processed=processed)
    with pytest.raises(CommitOutcomeUnknownError, match="is not known") as unknown:
        found.write(state(2), scene.soon(5_000))
    assert unknown.value.transactional_ids == (ID,)
    scene.control.clear()
    assert read(scene) == state(2 if processed else 1)


@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_a_record_that_is_never_acknowledged_is_not_written(scene: Scene, kind: str) -> None:
    found = session(scene, request_timeout_ms=1_000)
    fault = getattr(scene.control, kind)(ApiKey.PRODUCE, FOREVER)
    with pytest.raises(KafkaTimeoutError, match="the commit log of 'orders~~log'"):
        found.write(state(2), scene.soon(5_000))
    assert fault.fired > 1
    scene.control.clear()
    assert read(scene) == state(1)  # it was appended, and aborted by this open


def test_an_end_that_never_left_leaves_nothing_unknown(scene: Scene) -> None:
    ends = asked(scene.cluster, ApiKey.END_TXN)
    client = scene.client()
    found = CommitLog(client, LOG_TOPIC).open(KEY, scene.soon())
    found.write(state(1), scene.soon())
    before = ends()
    scene.control.answer(ApiKey.FIND_COORDINATOR, _GONE, FOREVER)
    client.loop.forget_coordinators([ID])
    with pytest.raises(KafkaTimeoutError, match="COORDINATOR_NOT_AVAILABLE"):
        found.write(state(2), scene.soon(2_000))
    assert ends() == before == 1
    scene.control.clear()
    assert read(scene) == state(1)


def test_a_refusal_after_an_unclear_end_leaves_it_unknown(scene: Scene) -> None:
    """The right to find the coordinator is taken away in the middle: that answers nothing."""
    found = session(scene)
    scene.control.cut(ApiKey.END_TXN, 1)
    scene.control.answer(ApiKey.FIND_COORDINATOR, _NO_RIGHT, FOREVER)
    with pytest.raises(CommitOutcomeUnknownError) as unknown:
        found.write(state(2), scene.soon())
    assert isinstance(unknown.value.__cause__, AuthorizationError)
    scene.control.clear()
    assert read(scene) == state(2)


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (_NO_RIGHT, AuthorizationError, "WRITE on the transactional id"),
        (ErrorCode.PRODUCER_FENCED, SupersededError, "PRODUCER_FENCED"),
        (ErrorCode.INVALID_PRODUCER_EPOCH, SupersededError, "INVALID_PRODUCER_EPOCH"),
        # It timed out: it is void, and the key is opened again.
        (ErrorCode.INVALID_TXN_STATE, SupersededError, "INVALID_TXN_STATE"),
    ],
)
def test_an_end_that_is_refused_at_once_is_clear(
    scene: Scene, code: ErrorCode, kind: type[KafkaError], told: str
) -> None:
    found = session(scene)
    scene.control.answer(ApiKey.END_TXN, code)
    with pytest.raises(kind, match=told):
        found.write(state(2), scene.soon())
    assert read(scene) == state(1)


def test_a_fence_after_an_unclear_end_is_not(scene: Scene) -> None:
    """Written or aborted by the next one: from here it is unknown."""
    found = session(scene, request_timeout_ms=1_000)
    scene.control.cut(ApiKey.END_TXN, 1)
    scene.control.answer(ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED, nth=2)
    with pytest.raises(CommitOutcomeUnknownError) as unknown:
        found.write(state(2), scene.soon())
    assert "PRODUCER_FENCED" in str(unknown.value.__cause__)
    assert read(scene) == state(2)


def test_concurrent_transactions_for_ever_end_with_the_deadline(scene: Scene) -> None:
    scene.control.answer(ApiKey.INIT_PRODUCER_ID, ErrorCode.CONCURRENT_TRANSACTIONS, FOREVER)
    start = scene.scheduler.now
    last = r"the last response, from broker 127\.0\.0\.1:\d+ \(id \d\), was CONCURRENT"
    with pytest.raises(KafkaTimeoutError, match=last):
        log(scene).open(KEY, scene.soon(3_000))
    assert 3_000 <= scene.scheduler.now - start < 3_200


@pytest.mark.parametrize("how", ["read", "states", "open"])
def test_a_log_that_is_silent_is_read_until_the_callers_deadline(scene: Scene, how: str) -> None:
    """Not for max.block.ms, which is a minute here."""
    session(scene)
    reads = scene.control.drop(ApiKey.LIST_OFFSETS, FOREVER)
    start = scene.scheduler.now
    with pytest.raises(KafkaTimeoutError, match="ListOffsets of the commit log"):
        getattr(log(scene), how)(KEY, scene.soon(3_000))
    assert 3_000 <= scene.scheduler.now - start < 3_200
    assert reads.fired


def test_the_first_write_checks_newer_records_until_its_deadline(scene: Scene) -> None:
    """What is ended before it may take longer than the log had to be opened."""
    found = log(scene).open(KEY, scene.soon(1_000))
    theirs = CommitState(1, "run", "query", 7)
    log(scene).open("others", scene.soon()).write(theirs, scene.soon())
    scene.scheduler.sleep(1_500)
    reads = asked(scene.cluster, ApiKey.FETCH)
    found.write(state(1), scene.soon())
    assert reads()
    assert read(scene) == state(1)


def test_a_second_write_waits_for_the_first_ones_markers(scene: Scene) -> None:
    """Milliseconds, not retry.backoff.ms: a micro-batch writes twice."""
    scene.cluster.marker_ms = 10
    found = session(scene)
    start = scene.scheduler.now
    for number in (2, 3, 4):
        found.write(state(number), scene.soon())
    assert scene.scheduler.now - start < 3 * 45
    assert read(scene) == state(4)


def test_no_identity_is_used_for_two_transactions(scene: Scene) -> None:
    for _ in range(2):
        found = session(scene)
        for number in (2, 3):
            found.write(state(number), scene.soon())
    used = [
        (batch.producer_id, batch.producer_epoch)
        for batch in scene.cluster.logs[TP].batches
        if not batch.control
    ]
    assert len(used) == len(set(used)) == 6


def test_leader_and_coordinator_may_move_at_any_time(scene: Scene) -> None:
    found = session(scene)
    for number in range(2, 8):
        scene.cluster.move_coordinator(ID, number % 3 + 1)
        scene.cluster.move_leader(TP, (number + 1) % 3 + 1)
        found.write(state(number), scene.soon())
        assert log(scene).read(KEY, scene.soon()).state == state(number)


def test_a_log_that_was_cut_off_is_read_from_its_beginning(scene: Scene) -> None:
    """By an answer OFFSET_OUT_OF_RANGE, as a cleaned or truncated log gives it."""
    kept = log(scene)
    found = session(scene)
    assert kept.read(KEY, scene.soon()).state == state(1)
    found.write(state(2), scene.soon())
    scene.control.answer(ApiKey.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert kept.read(KEY, scene.soon()).state == state(2)


def test_a_tombstone_that_compaction_removed_is_not_missed(scene: Scene) -> None:
    """By a process that has read the key before it was removed, and reads it again after days."""
    kept = log(scene)
    session(scene)
    assert kept.read(KEY, scene.soon()).state == state(1)
    log(scene).remove(KEY, scene.soon())
    scene.scheduler.sleep(2 * 24 * 60 * 60 * 1000)
    compacted = scene.cluster.logs[TP]
    compacted.batches = [batch for batch in compacted.batches if batch.control]
    assert kept.read(KEY, scene.soon()).state is None


def test_malformed_bytes_affect_only_the_key_they_name(scene: Scene) -> None:
    """In another client's transaction, behind what the log says of the key."""
    session(scene)
    theirs = CommitState(1, "run", "query", 7)
    other = log(scene).open("others", scene.soon())
    other.write(theirs, scene.soon())
    covered = record_header(attributes=0x10, last=0, timestamp=0, producer=(4711, 0, 0), count=1)
    body = covered + b"\x7f" + KEY.encode() * 3
    junk = struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc32c(body)) + body
    scene.cluster.logs[TP].append(read_batch(junk))
    scene.cluster.logs[TP].end_transaction(4711, 0, commit=True, coordinator_epoch=0, timestamp=0)
    with pytest.raises(CommitLogError, match="the commit log, can't be read"):
        log(scene).read(KEY, scene.soon())
    assert log(scene).read("others", scene.soon()) == (theirs, True)
    other.write(None, scene.soon())


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_missing_rights_name_the_topic_and_what_is_needed(scene: Scene, api: ApiKey) -> None:
    if api is ApiKey.FETCH:
        session(scene)
    scene.control.answer(api, ErrorCode.TOPIC_AUTHORIZATION_FAILED, FOREVER)
    with pytest.raises(AuthorizationError) as refused:
        session(scene)
    assert "commit log" in refused.value.message
    assert "READ and WRITE on the topic '__kprod_commits' (commitLogTopic)" in str(refused.value)


def test_a_missing_topic_without_the_right_to_create_it(scene: Scene) -> None:
    scene.cluster.delete_topic(LOG_TOPIC)
    scene.control.answer(ApiKey.CREATE_TOPICS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match="and CREATE while it is missing"):
        log(scene).read(KEY, scene.soon())


def test_whatever_happens_a_write_is_what_it_is_said_to_be() -> None:
    """Seeded faults; each write is reported as done, as not done or as unknown, and the next open
    shows whether that was right.
    """
    told: Counter[str] = Counter()
    for seed in range(12):
        scene = scene_of(1 + seed % 2, seed=seed)

        def main(scene: Scene = scene) -> None:
            current = CommitState()
            for number in range(1, 7):
                found, current = _opened(scene, current)
                rough(scene)
                try:
                    for wanted in (state(number), state(number).finished()):
                        before = current
                        found.write(wanted, scene.soon(8_000))
                        current = wanted
                    told["written"] += 1
                except CommitOutcomeUnknownError:
                    told["unknown"] += 1
                    current = _now(scene)
                    assert current in (before, wanted)
                except KafkaError as error:
                    told[type(error).__name__] += 1
                    assert _now(scene) == before

        scene.perform(main)
    assert told["written"] > 5, told
    assert sum(told.values()) - told["written"] > 5, told


def rough(scene: Scene) -> None:
    scene.cluster.faults = ClusterFaults(
        work_ms=50, stall=0.15, leader_moves=0.05, throttle=0.02, coordinator_error=0.4,
        coordinator_moves=0.05, broker_stops=0.02, not_leader=0.05, not_enough_replicas=0.05,
        not_enough_after_append=0.05,
    )  # fmt: skip
    scene.machine.disturb(NetworkFaults(latency_ms=3, spike=0.1, split=0.1, cut=0.1, silent=0.2))


def _opened(scene: Scene, wanted: CommitState) -> tuple[LogSession, CommitState]:
    scene.heal()
    found = log(scene, request_timeout_ms=2_000).open(KEY, scene.soon(120_000))
    assert found.state == wanted
    return found, found.state


def _now(scene: Scene) -> CommitState:
    scene.heal()
    return log(scene).open(KEY, scene.soon(120_000)).state
