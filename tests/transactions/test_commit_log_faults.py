"""The commit log when brokers and networks do their worst, in the simulated world."""

from __future__ import annotations

import random
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
from tests.simulation.seeded_cluster import ClusterFaults, SeededCluster
from tests.transactions.simulated_driver import DriverWorld

KEY, TOPIC = "orders", "commits"
TP = TopicPartition(TOPIC, 0)
ID = "orders~~log"
_GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NO_RIGHT = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
pytestmark = pytest.mark.simulated


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def cluster(request: pytest.FixtureRequest) -> FakeCluster:
    found = FakeCluster(3, transaction_version=request.param)
    found.create_topic(TOPIC, configs={"cleanup.policy": "compact"})
    return found


@pytest.fixture
def world(cluster: FakeCluster) -> Iterator[DriverWorld]:
    yield DriverWorld(cluster)
    cluster.control.check()


def state(number: int, transactions: int = 2) -> CommitState:
    prepared = (PreparedTransaction(f"orders~run~w~{i}", 7, i, 2) for i in range(transactions))
    return CommitState(1, "run", "query", number - 1).decided(Decision(number, tuple(prepared)))


def log(world: DriverWorld, **options: str) -> CommitLog:
    return CommitLog(world.client({k.replace("_", "."): v for k, v in options.items()}), TOPIC)


def session(world: DriverWorld, **options: str) -> LogSession:
    """Of a driver that has written batch 1."""
    found = log(world, **options).open(KEY, world.soon())
    found.write(state(1), world.soon())
    return found


def read(world: DriverWorld) -> CommitState:
    """By a driver that comes after all others."""
    return log(world).open(KEY, world.soon()).state


def records(cluster: FakeCluster) -> int:
    return sum(batch.count for batch in cluster.logs[TP].batches if not batch.control)


def asked(cluster: FakeCluster, api: ApiKey) -> Callable[[], int]:
    """How many of these requests came so far."""
    fault = cluster.control.delay(api, 0, FOREVER)
    return lambda: fault.fired


@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_a_record_whose_acknowledgement_is_lost_is_written_once(
    world: DriverWorld, kind: str
) -> None:
    found = session(world, request_timeout_ms="1000")
    getattr(world.cluster.control, kind)(ApiKey.PRODUCE, 2)
    found.write(state(2), world.soon())
    assert read(world) == state(2)
    assert records(world.cluster) == 2


@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_an_end_whose_answer_is_lost_is_asked_for_again(
    world: DriverWorld, kind: str, processed: bool
) -> None:
    found = session(world, request_timeout_ms="1000")
    getattr(world.cluster.control, kind)(ApiKey.END_TXN, 2, processed=processed)
    found.write(state(2), world.soon())
    found.write(state(3), world.soon())
    assert read(world) == state(3)


@pytest.mark.parametrize("processed", [True, False])
def test_an_unclear_end_is_an_unknown_outcome(world: DriverWorld, processed: bool) -> None:
    found = session(world, request_timeout_ms="1000")
    world.cluster.control.cut(ApiKey.END_TXN, FOREVER, processed=processed)
    with pytest.raises(CommitOutcomeUnknownError, match="is not known") as unknown:
        found.write(state(2), world.soon(5_000))
    assert unknown.value.transactional_ids == (ID,)
    world.cluster.control.clear()
    assert read(world) == state(2 if processed else 1)


@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_a_record_that_is_never_acknowledged_is_not_written(world: DriverWorld, kind: str) -> None:
    found = session(world, request_timeout_ms="1000")
    fault = getattr(world.cluster.control, kind)(ApiKey.PRODUCE, FOREVER)
    with pytest.raises(KafkaTimeoutError, match="the commit log of 'orders~~log'"):
        found.write(state(2), world.soon(5_000))
    assert fault.fired > 1
    world.cluster.control.clear()
    assert read(world) == state(1)  # it was appended, and aborted by this open


def test_an_end_that_never_left_leaves_nothing_unknown(world: DriverWorld) -> None:
    ends = asked(world.cluster, ApiKey.END_TXN)
    client = world.client()
    found = CommitLog(client, TOPIC).open(KEY, world.soon())
    found.write(state(1), world.soon())
    before = ends()
    world.cluster.control.answer(ApiKey.FIND_COORDINATOR, _GONE, FOREVER)
    client.loop.forget_coordinators([ID])
    with pytest.raises(KafkaTimeoutError, match="COORDINATOR_NOT_AVAILABLE"):
        found.write(state(2), world.soon(2_000))
    assert ends() == before == 1
    world.cluster.control.clear()
    assert read(world) == state(1)


def test_a_refusal_after_an_unclear_end_leaves_it_unknown(world: DriverWorld) -> None:
    """The right to find the coordinator is taken away in the middle: that answers nothing."""
    found = session(world)
    world.cluster.control.cut(ApiKey.END_TXN, 1)
    world.cluster.control.answer(ApiKey.FIND_COORDINATOR, _NO_RIGHT, FOREVER)
    with pytest.raises(CommitOutcomeUnknownError) as unknown:
        found.write(state(2), world.soon())
    assert isinstance(unknown.value.__cause__, AuthorizationError)
    world.cluster.control.clear()
    assert read(world) == state(2)


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
    world: DriverWorld, code: ErrorCode, kind: type[KafkaError], told: str
) -> None:
    found = session(world)
    world.cluster.control.answer(ApiKey.END_TXN, code)
    with pytest.raises(kind, match=told):
        found.write(state(2), world.soon())
    assert read(world) == state(1)


def test_a_fence_after_an_unclear_end_is_not(world: DriverWorld) -> None:
    """Written or aborted by the next one: from here it is unknown."""
    found = session(world, request_timeout_ms="1000")
    world.cluster.control.cut(ApiKey.END_TXN, 1)
    world.cluster.control.answer(ApiKey.END_TXN, ErrorCode.PRODUCER_FENCED, nth=2)
    with pytest.raises(CommitOutcomeUnknownError) as unknown:
        found.write(state(2), world.soon())
    assert "PRODUCER_FENCED" in str(unknown.value.__cause__)
    assert read(world) == state(2)


def test_concurrent_transactions_for_ever_end_with_the_deadline(world: DriverWorld) -> None:
    world.cluster.control.answer(
        ApiKey.INIT_PRODUCER_ID, ErrorCode.CONCURRENT_TRANSACTIONS, FOREVER
    )
    start = world.scheduler.now
    last = r"the last response, from broker 127\.0\.0\.1:\d+ \(id \d\), was CONCURRENT"
    with pytest.raises(KafkaTimeoutError, match=last):
        log(world).open(KEY, world.soon(3_000))
    assert 3_000 <= world.scheduler.now - start < 3_200


@pytest.mark.parametrize("how", ["read", "states", "open"])
def test_a_log_that_is_silent_is_read_until_the_callers_deadline(
    world: DriverWorld, how: str
) -> None:
    """Not for max.block.ms, which is a minute here."""
    session(world)
    reads = world.cluster.control.drop(ApiKey.LIST_OFFSETS, FOREVER)
    start = world.scheduler.now
    with pytest.raises(KafkaTimeoutError, match="ListOffsets of the commit log"):
        getattr(log(world), how)(KEY, world.soon(3_000))
    assert 3_000 <= world.scheduler.now - start < 3_200
    assert reads.fired


def test_the_first_write_checks_newer_records_until_its_deadline(world: DriverWorld) -> None:
    """What is ended before it may take longer than the log had to be opened."""
    found = log(world).open(KEY, world.soon(1_000))
    theirs = CommitState(1, "run", "query", 7)
    log(world).open("others", world.soon()).write(theirs, world.soon())
    world.scheduler.sleep(1_500)
    reads = asked(world.cluster, ApiKey.FETCH)
    found.write(state(1), world.soon())
    assert reads()
    assert read(world) == state(1)


def test_a_second_write_waits_for_the_first_ones_markers(world: DriverWorld) -> None:
    """Milliseconds, not retry.backoff.ms: a micro-batch writes twice."""
    world.cluster.marker_ms = 10
    found = session(world)
    start = world.scheduler.now
    for number in (2, 3, 4):
        found.write(state(number), world.soon())
    assert world.scheduler.now - start < 3 * 45
    assert read(world) == state(4)


def test_no_identity_is_used_for_two_transactions(world: DriverWorld) -> None:
    for _ in range(2):
        found = session(world)
        for number in (2, 3):
            found.write(state(number), world.soon())
    used = [
        (batch.producer_id, batch.producer_epoch)
        for batch in world.cluster.logs[TP].batches
        if not batch.control
    ]
    assert len(used) == len(set(used)) == 6


def test_leader_and_coordinator_may_move_at_any_time(world: DriverWorld) -> None:
    found = session(world)
    for number in range(2, 8):
        world.cluster.move_coordinator(ID, number % 3 + 1)
        world.cluster.move_leader(TP, (number + 1) % 3 + 1)
        found.write(state(number), world.soon())
        assert log(world).read(KEY, world.soon()).state == state(number)


def test_a_log_that_was_cut_off_is_read_from_its_beginning(world: DriverWorld) -> None:
    """By an answer OFFSET_OUT_OF_RANGE, as a cleaned or truncated log gives it."""
    kept = log(world)
    found = session(world)
    assert kept.read(KEY, world.soon()).state == state(1)
    found.write(state(2), world.soon())
    world.cluster.control.answer(ApiKey.FETCH, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert kept.read(KEY, world.soon()).state == state(2)


def test_malformed_bytes_affect_only_the_key_they_name(world: DriverWorld) -> None:
    """In another client's transaction, behind what the log says of the key."""
    session(world)
    theirs = CommitState(1, "run", "query", 7)
    other = log(world).open("others", world.soon())
    other.write(theirs, world.soon())
    covered = record_header(attributes=0x10, last=0, timestamp=0, producer=(4711, 0, 0), count=1)
    body = covered + b"\x7f" + KEY.encode() * 3
    junk = struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc32c(body)) + body
    world.cluster.logs[TP].append(read_batch(junk))
    world.cluster.logs[TP].end_transaction(4711, 0, commit=True, coordinator_epoch=0, timestamp=0)
    with pytest.raises(CommitLogError, match="the commit log, can't be read"):
        log(world).read(KEY, world.soon())
    assert log(world).read("others", world.soon()) == (theirs, True)
    other.write(None, world.soon())


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS])
def test_missing_rights_name_the_topic_and_what_is_needed(world: DriverWorld, api: ApiKey) -> None:
    if api is ApiKey.FETCH:
        session(world)
    world.cluster.control.answer(api, ErrorCode.TOPIC_AUTHORIZATION_FAILED, FOREVER)
    with pytest.raises(AuthorizationError) as refused:
        session(world)
    assert "commit log" in refused.value.message
    assert "READ and WRITE on the topic 'commits' (commitLogTopic)" in str(refused.value)


def test_a_missing_topic_without_the_right_to_create_it(world: DriverWorld) -> None:
    world.cluster.delete_topic(TOPIC)
    world.cluster.control.answer(ApiKey.CREATE_TOPICS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError, match="and CREATE while it is missing"):
        log(world).read(KEY, world.soon())


def test_whatever_happens_a_write_is_what_it_is_said_to_be() -> None:
    """Seeded faults; each write is reported as done, as not done or as unknown, and the next open
    shows whether that was right.
    """
    told: Counter[str] = Counter()
    for seed in range(12):
        fate = random.Random(f"cluster {seed}")
        cluster = SeededCluster(
            {TOPIC: 1}, fate, ClusterFaults(), too_large={}, transaction_version=1 + seed % 2
        )
        world = DriverWorld(cluster, seed=seed)

        def main(world: DriverWorld = world, cluster: SeededCluster = cluster) -> None:
            current = CommitState()
            for number in range(1, 7):
                found, current = _opened(world, cluster, current)
                rough(world, cluster)
                try:
                    for wanted in (state(number), state(number).finished()):
                        before = current
                        found.write(wanted, world.soon(8_000))
                        current = wanted
                    told["written"] += 1
                except CommitOutcomeUnknownError:
                    told["unknown"] += 1
                    current = _now(world, cluster)
                    assert current in (before, wanted)
                except KafkaError as error:
                    told[type(error).__name__] += 1
                    assert _now(world, cluster) == before

        world.run(main)
    assert told["written"] > 5, told
    assert sum(told.values()) - told["written"] > 5, told


def rough(world: DriverWorld, cluster: SeededCluster) -> None:
    cluster.faults = ClusterFaults(
        work_ms=50, stall=0.15, leader_moves=0.05, throttle=0.02, coordinator_error=0.4,
        coordinator_moves=0.05, broker_stops=0.02, not_leader=0.05, not_enough_replicas=0.05,
        not_enough_after_append=0.05,
    )  # fmt: skip
    world.faults = NetworkFaults(latency_ms=3, spike=0.1, split=0.1, cut=0.1, silent=0.2)
    for network in world.networks:
        network.faults = world.faults


def calm(world: DriverWorld, cluster: SeededCluster) -> None:
    cluster.heal()
    world.faults = NetworkFaults(latency_ms=1)
    for network in world.networks:
        network.faults = world.faults


def _opened(
    world: DriverWorld, cluster: SeededCluster, wanted: CommitState
) -> tuple[LogSession, CommitState]:
    calm(world, cluster)
    found = log(world, request_timeout_ms="2000").open(KEY, world.soon(120_000))
    assert found.state == wanted
    return found, found.state


def _now(world: DriverWorld, cluster: SeededCluster) -> CommitState:
    calm(world, cluster)
    return log(world).open(KEY, world.soon(120_000)).state
