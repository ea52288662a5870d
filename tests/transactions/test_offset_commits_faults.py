"""A consumer group's offsets in a transaction when brokers and networks do their worst, in the
simulated world.
"""

from __future__ import annotations

import pytest

from spark_kafka_sink.admin.call import Call, CoordinatorKey
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import (
    AuthorizationError,
    ConfigError,
    ErrorCode,
    InvalidMetadataError,
    KafkaError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
)
from spark_kafka_sink.datasource.exactly_once.offsets_group import check_group_id
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType
from spark_kafka_sink.transactions import driver_transactions
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from tests.fakes.fake_cluster import FOREVER
from tests.fakes.fake_cluster.codec import Request
from tests.simulation.scene import Scene

TP = TopicPartition("t", 0)
ID, GROUP = "p~run~g2.offsets~0", "readers"
VERSIONS = pytest.mark.parametrize("version", [1, 2])


def prepare(
    scene: Scene,
    client: TransactionClient,
    version: int,
    *,
    tp: TopicPartition = TP,
    offset: int = 7,
    milliseconds: int = 60_000,
) -> PreparedTransaction:
    offsets = GroupOffsets(GROUP, {tp: OffsetAndMetadata(offset)})
    return driver_transactions.prepare(client, ID, offsets, scene.soon(milliseconds))


def end(scene: Scene, client: TransactionClient, prepared: PreparedTransaction) -> None:
    for _ in range(2):  # the second one is answered when the markers are written
        ended = client.end([prepared], committed=True, deadline_ms=scene.soon())
        assert ended == {ID: ErrorCode.NONE}


def commit(scene: Scene, version: int) -> int | None:
    """Prepare, and commit by another driver: the group's offset afterwards."""
    prepared = prepare(scene, scene.client(), version)
    assert TP not in scene.cluster.groups.committed.get(GROUP, {})
    end(scene, scene.client(), prepared)
    assert scene.cluster.groups.open == {}, "nothing is left open"
    found = scene.cluster.groups.committed.get(GROUP, {}).get(TP)
    return None if found is None else found.offset


@VERSIONS
@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.parametrize("kind", ["drop", "cut"])
def test_offsets_that_were_lost_are_given_again(
    scene: Scene, kind: str, processed: bool, version: int
) -> None:
    fault = getattr(scene.control, kind)(ApiKey.TXN_OFFSET_COMMIT, 1, processed=processed)
    assert commit(scene, version) == 7
    assert fault.fired == 1


@pytest.mark.parametrize("processed", [True, False])
@pytest.mark.parametrize("kind", ["drop", "cut"])
@pytest.mark.parametrize(
    ("api", "told", "version"),
    [
        # Arriving behind the commit, it would open a transaction that is never ended.
        (ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn of group", 1),
        # It would abort what a second one has prepared.
        (ApiKey.INIT_PRODUCER_ID, f"InitProducerId of transactional id '{ID}'", 1),
        (ApiKey.INIT_PRODUCER_ID, f"InitProducerId of transactional id '{ID}'", 2),
    ],
)
def test_what_may_arrive_late_is_not_asked_again(
    scene: Scene, api: ApiKey, told: str, version: int, kind: str, processed: bool
) -> None:
    fault = getattr(scene.control, kind)(api, 1, processed=processed)
    with pytest.raises(KafkaTimeoutError, match=told):
        commit(scene, version)
    assert fault.fired == 1
    assert scene.cluster.groups.open == {}
    assert TP not in scene.cluster.groups.committed.get(GROUP, {})


@VERSIONS
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_what_passes_is_asked_again(scene: Scene, code: ErrorCode, version: int) -> None:
    fault = scene.control.answer(ApiKey.TXN_OFFSET_COMMIT, code, 4)
    assert commit(scene, version) == 7
    assert fault.fired == 4


@VERSIONS
def test_the_groups_coordinator_is_found_again_when_it_moves(scene: Scene, version: int) -> None:
    client = scene.client()
    prepare(scene, client, version, offset=5)  # both coordinators are remembered
    scene.cluster.move_coordinator(GROUP, scene.cluster.coordinator_of(GROUP) % 3 + 1)
    moved = scene.control.delay(
        ApiKey.TXN_OFFSET_COMMIT, 1, FOREVER, node=scene.cluster.coordinator_of(GROUP)
    )
    prepared = prepare(scene, client, version)
    assert moved.fired == 1
    end(scene, client, prepared)
    assert scene.cluster.groups.committed[GROUP][TP].offset == 7


@VERSIONS
def test_the_groups_coordinator_dies_under_the_request(scene: Scene, version: int) -> None:
    dead = scene.cluster.coordinator_of(GROUP)
    lost = scene.control.delay(ApiKey.TXN_OFFSET_COMMIT, 100, FOREVER, node=dead)
    client = scene.client()
    client.loop.coordinators([ID], scene.soon())
    scene.after(60, lambda: scene.cluster.stop_broker(dead))
    prepared = prepare(scene, client, version)
    end(scene, client, prepared)
    assert lost.fired == 1, "it was on its way"
    assert scene.cluster.down == {dead}
    assert scene.cluster.groups.committed[GROUP][TP].offset == 7


@VERSIONS
def test_an_unclear_end_is_raised_at_the_deadline(scene: Scene, version: int) -> None:
    fault = scene.control.answer(
        ApiKey.TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, FOREVER
    )
    start = scene.scheduler.now
    told = r"TxnOffsetCommit of group 'readers'.*COORDINATOR_LOAD_IN_PROGRESS"
    with pytest.raises(KafkaTimeoutError, match=told):
        prepare(scene, scene.client(), version, milliseconds=9_000)
    assert 9_000 <= scene.scheduler.now - start < 9_200
    assert fault.fired > 5


@VERSIONS
def test_a_partition_that_stays_unknown_fails_early(scene: Scene, version: int) -> None:
    start = scene.scheduler.now
    told = "TxnOffsetCommit of group 'readers', of elsewhere-3.*does not have this partition"
    with pytest.raises(InvalidMetadataError, match=told):
        prepare(scene, scene.client(), version, tp=TopicPartition("elsewhere", 3))
    assert 5_000 <= scene.scheduler.now - start < 7_000


OFFSETS, GROUPS = ApiKey.TXN_OFFSET_COMMIT, ApiKey.ADD_OFFSETS_TO_TXN
Code, Refused = ErrorCode, AuthorizationError
#: API, answer, the error raised and what it names.
FINAL: list[tuple[ApiKey, ErrorCode, type[KafkaError], str]] = [
    (OFFSETS, Code.GROUP_AUTHORIZATION_FAILED, Refused, "READ on the group"),
    (OFFSETS, Code.TOPIC_AUTHORIZATION_FAILED, Refused, "READ on the topic"),
    (OFFSETS, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Refused, "WRITE on the transactional id"),
    (OFFSETS, Code.INVALID_PRODUCER_EPOCH, ProducerFencedError, "t-0"),
    (OFFSETS, Code.TRANSACTION_ABORTABLE, TransactionAbortableError, "group 'readers', of t-0"),
    (OFFSETS, Code.INVALID_COMMIT_OFFSET_SIZE, KafkaError, "t-0"),
    (OFFSETS, Code.INVALID_GROUP_ID, KafkaError, "'readers'"),
    (GROUPS, Code.GROUP_AUTHORIZATION_FAILED, Refused, "READ on the group"),
    (GROUPS, Code.PRODUCER_FENCED, ProducerFencedError, ID),
]


@pytest.mark.parametrize(
    ("api", "code", "kind", "words", "version"),
    [
        (*case, version)
        for case in FINAL
        for version in (1, 2)
        if version == 1 or case[0] is not GROUPS  # version 2 never sends it
    ],
)
def test_what_no_asking_mends_is_raised_at_once(
    scene: Scene,
    api: ApiKey,
    code: ErrorCode,
    kind: type[KafkaError],
    words: str,
    version: int,
) -> None:
    fault = scene.control.answer(api, code, FOREVER)
    with pytest.raises(kind) as refused:
        prepare(scene, scene.client(), version)
    assert words in str(refused.value)
    assert "\n" not in refused.value.message
    assert fault.fired == 1


def test_groups_and_ids_of_one_name_have_separate_coordinators(scene: Scene) -> None:
    """And are asked for in requests of their own, many keys in each."""
    asked: list[tuple[int, tuple[str, ...]]] = []

    def told(request: Request) -> bool:
        asked.append((request.body.key_type, tuple(request.body.coordinator_keys)))
        return True

    scene.control.delay(ApiKey.FIND_COORDINATOR, 1, FOREVER, where=told)
    kinds = (CoordinatorType.TRANSACTION, CoordinatorType.GROUP)
    calls: list[Call[object]] = [
        Call(None, CoordinatorKey(key, kind), "it") for key in ("a", "b") for kind in kinds
    ]
    client = scene.client()
    assert client.loop.run(calls, scene.soon())
    assert sorted(asked) == [(0, ("a", "b")), (1, ("a", "b"))]
    client.loop.forget_coordinators(["a"])
    assert client.loop.run([Call(None, call.to, "it") for call in calls], scene.soon())
    assert asked[2:] == [(1, ("a",))], "the group of that name is still known"


@pytest.mark.parametrize("name", ["readers", "a group of Zoë's, 100 %", "x" * 1024])
def test_a_group_is_named_as_kafka_allows(name: str) -> None:
    assert check_group_id("offsetsGroup", name) == name


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 1025, "ü" * 513, "\udcff"])
def test_an_illegal_group_is_refused_before_any_request(name: str) -> None:
    with pytest.raises(ConfigError, match=r"offsetsGroup is '") as refused:
        check_group_id("offsetsGroup", name)
    assert "\n" not in refused.value.message
