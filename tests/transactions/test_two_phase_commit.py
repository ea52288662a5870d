"""What a real broker makes of InitProducerId version 6 (KIP-939), as far as it is there.

Kafka 4.3 calls that version unstable: a broker offers it under unstable.api.versions.enable=true,
which is not for production, and hangs up on it otherwise. There Enable2Pc takes
transaction.two.phase.commit.enable=true and the right TWO_PHASE_COMMIT beside WRITE, and
KeepPreparedTxn is refused always. These tests say so when a newer Kafka is pinned that does more.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator

import pytest

from spark_kafka_sink.admin.call import Call, CoordinatorKey, RetryDecision, retry_decision
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import ErrorCode, KafkaError, UnsupportedVersionError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResponse,
)
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction, ProducerIdAndEpoch
from spark_kafka_sink.protocol.transaction_requests import add_partitions_to_txn, init_producer_id
from tests.conformance.worlds import RealWorld
from tests.fakes.fake_cluster.codec import Answer, write
from tests.fakes.kafka_messages import init_request
from tests.real_kafka import RealKafka

# What Kafka makes of a version that is not stable: two brokers of their own.
pytestmark = [pytest.mark.broker, pytest.mark.long]

TIMEOUT_MS = 30_000
REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
UNSTABLE = {"unstable.api.versions.enable": "true"}
#: What no client in Python has a name for yet.
_TWO_PHASE_COMMIT, _WRITE = 15, 4


@pytest.fixture(scope="module")
def ready() -> Iterator[KafkaCluster]:
    """A broker that does all that Kafka 4.3 can, with ACLs."""
    overrides = UNSTABLE | {"transaction.two.phase.commit.enable": "true"}
    with KafkaCluster(overrides=overrides, secure=True) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def client(ready: KafkaCluster) -> Iterator[TransactionClient]:
    with TransactionClient(ProducerConfig.parse({"bootstrap.servers": ready.bootstrap})) as found:
        yield found


def new_id() -> str:
    return f"two-phases-{uuid.uuid4().hex[:8]}"


def soon(client: TransactionClient) -> int:
    return client.clock.now_ms() + TIMEOUT_MS


def initialise(client: TransactionClient, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """The first answer that does not pass by itself."""
    found: list[InitProducerIdResponse] = []

    def handle_response(response: InitProducerIdResponse) -> ErrorCode | None:
        found.append(response)
        return (
            None
            if retry_decision(response.error_code) is RetryDecision.FINAL
            else response.error_code
        )

    assert request.transactional_id is not None
    call = Call(request, CoordinatorKey(request.transactional_id), handle_response)
    assert client.loop.run([call], soon(client)), call.last_status
    return found[-1]


def open_transaction(
    client: TransactionClient, name: str, owner: InitProducerIdResponse, tp: TopicPartition
) -> PreparedTransaction:
    """Of version 1, under an identity that is there. Nothing is written."""
    identity = ProducerIdAndEpoch(owner.producer_id, owner.producer_epoch)

    def handle_response(response: AddPartitionsToTxnResponse) -> ErrorCode | None:
        code = response.results_by_topic[0].results_by_partition[0].partition_error_code
        assert code is ErrorCode.NONE or retry_decision(code) is not RetryDecision.FINAL, code.name
        return None if code is ErrorCode.NONE else code

    call = Call(add_partitions_to_txn(name, identity, [tp]), CoordinatorKey(name), handle_response)
    assert client.loop.run([call], soon(client)), call.last_status
    return PreparedTransaction(name, *identity, 1)


def test_a_broker_of_default_settings_does_not_offer_it(kafka: RealKafka) -> None:
    config = ProducerConfig.parse({"bootstrap.servers": kafka.bootstrap})
    with TransactionClient(config) as client:
        for flags in ({"enable_2pc": True}, {"keep_prepared_txn": True}):
            with pytest.raises(UnsupportedVersionError, match=r"INIT_PRODUCER_ID: .* 0 to 5"):
                initialise(client, init_producer_id(new_id(), 60_000, **flags))


def test_a_broker_that_has_it_switched_off_refuses_the_id() -> None:
    """It takes its default, transaction.two.phase.commit.enable=false, for a missing right."""
    with KafkaCluster(overrides=UNSTABLE) as cluster:
        config = ProducerConfig.parse({"bootstrap.servers": cluster.bootstrap})
        with TransactionClient(config) as client:
            request = init_producer_id(new_id(), 60_000, enable_2pc=True)
            assert initialise(client, request).error_code is REFUSED


def test_its_transaction_is_not_aborted_for_its_age(
    ready: KafkaCluster, client: TransactionClient
) -> None:
    """Beside one of the same time-out, which is; and both are looked at every 200 ms."""
    topic = RealKafka(ready.bootstrap, ready).unique_topic("data", 1)
    tp = TopicPartition(topic, 0)
    old, aged = new_id(), new_id()
    found = initialise(client, init_producer_id(old, 1, enable_2pc=True))
    assert (found.error_code, found.producer_epoch) == (ErrorCode.NONE, 0)
    opened = open_transaction(client, old, found, tp)
    beside = initialise(client, init_request(aged, 500))
    open_transaction(client, aged, beside, tp)
    described = client.describe([old], soon(client))[old]
    assert (described.state, described.timeout_ms) == (TransactionState.ONGOING, 2**31 - 1)
    while client.describe([aged], soon(client))[aged].state is TransactionState.ONGOING:
        client.loop.pause(3, soon(client))
    assert client.describe([old], soon(client))[old].state is TransactionState.ONGOING
    ended = client.end([opened], committed=True, deadline_ms=soon(client))
    assert ended == {old: ErrorCode.NONE}, "EndTxn is as ever"


def test_what_is_open_is_aborted_by_the_next_init_all_the_same(
    ready: KafkaCluster, client: TransactionClient
) -> None:
    """Two-phase commit alone keeps nothing from a restart: who comes back must not initialise an id
    whose transaction is still to be ended.
    """
    topic = RealKafka(ready.bootstrap, ready).unique_topic("data", 1)
    name = new_id()
    request = init_producer_id(name, 1000, enable_2pc=True)
    found = initialise(client, request)
    opened = open_transaction(client, name, found, TopicPartition(topic, 0))
    assert initialise(client, request).producer_epoch > opened.producer_epoch
    ended = client.end([opened], committed=True, deadline_ms=soon(client))
    assert ended == {name: ErrorCode.PRODUCER_FENCED}
    # And an id that was of two phases is so no longer when it is initialised without.
    assert initialise(client, init_request(name, 1000)).error_code is ErrorCode.NONE
    assert client.describe([name], soon(client))[name].timeout_ms == 1000


@pytest.mark.parametrize("enable_2pc", [True, False])
def test_to_keep_what_is_open_is_refused(client: TransactionClient, enable_2pc: bool) -> None:
    """On every branch up to 4.3 (TransactionCoordinator.handleInitProducerId)."""
    request = init_producer_id(new_id(), 60_000, enable_2pc=enable_2pc, keep_prepared_txn=True)
    assert initialise(client, request).error_code is ErrorCode.UNSUPPORTED_VERSION


def test_it_takes_a_right_of_its_own(ready: KafkaCluster) -> None:
    name = new_id()
    bob = ProducerConfig.parse(ready.client_options("SSL", user="bob"))
    two_phases = init_producer_id(name, 60_000, enable_2pc=True)
    with TransactionClient(bob) as client:
        allow(ready, name, _WRITE)
        plain = init_request(name, 60_000)
        eventually(client, plain, ErrorCode.NONE)
        assert initialise(client, two_phases).error_code is REFUSED
        allow(ready, name, _TWO_PHASE_COMMIT)
        eventually(client, two_phases, ErrorCode.NONE)


def eventually(
    client: TransactionClient, request: InitProducerIdRequest, expected: ErrorCode
) -> None:
    """An ACL reaches the authorizer a moment after it was made."""
    deadline = soon(client)
    while True:
        try:
            found = initialise(client, request).error_code
        except KafkaError as refused:
            found = refused
        if found is expected:
            return
        assert client.clock.now_ms() < deadline, found
        client.loop.pause(5, deadline)


def allow(cluster: KafkaCluster, transactional_id: str, operation: int) -> None:
    """By the bytes of CreateAcls 3: other clients have no name for every operation."""
    kio = Answer("create_acls", 3, "request")
    literal, allowed, of_transactional_ids = 3, 3, 5
    acl = kio.AclCreation(
        resource_type=of_transactional_ids,
        resource_name=transactional_id,
        resource_pattern_type=literal,
        principal="User:bob",
        host="*",
        operation=operation,
        permission_type=allowed,
    )
    head = struct.pack(">hhih", 30, 3, 1, 1) + b"s\0"
    world = RealWorld(cluster.bootstrap)
    try:
        frame = head + write(kio.CreateAclsRequest(creations=[acl]))
        answer = world.exchange(1, frame, answered=True)
    finally:
        world.close()
    # Correlation id, tags, throttle time, one result, its code.
    assert answer is not None
    assert answer[9:12] == b"\2\0\0", answer
