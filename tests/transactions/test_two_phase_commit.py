"""InitProducerId version 6 (KIP-939) takes a right of its own on a real broker.

What else a broker makes of that version, and a newer one may make of it, is found by
``conformance/test_fake_two_phases_like_a_broker.py``.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from contextlib import suppress

import pytest

from spark_kafka_sink.admin.call import Call, CoordinatorKey, RetryDecision, retry_decision
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ErrorCode, KafkaError
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.local_kafka import KafkaCluster
from spark_kafka_sink.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spark_kafka_sink.protocol.transaction_requests import init_producer_id
from tests.conformance.worlds import RealWorld
from tests.fakes.fake_cluster.codec import Answer, write
from tests.fakes.kafka_messages import init_request
from tests.waiting import wait_for

# What Kafka makes of a version that is not stable: a broker of its own.
pytestmark = [pytest.mark.broker, pytest.mark.long]

TIMEOUT_MS = 30_000
REFUSED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
#: What no client in Python has a name for yet.
_TWO_PHASE_COMMIT, _WRITE = 15, 4


@pytest.fixture(scope="module")
def ready() -> Iterator[KafkaCluster]:
    """A broker that does all that Kafka 4.3 can, with ACLs."""
    overrides = {
        "unstable.api.versions.enable": "true",
        "transaction.two.phase.commit.enable": "true",
    }
    with KafkaCluster(overrides=overrides, secure=True) as cluster:
        yield cluster


def soon(client: TransactionClient) -> int:
    return client.clock.now_ms() + TIMEOUT_MS


def initialise(client: TransactionClient, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """The first answer that does not pass by itself."""
    assert request.transactional_id is not None
    call = Call(
        request,
        CoordinatorKey(request.transactional_id),
        "it",
        lambda response: (
            ErrorCode.NONE
            if retry_decision(response.error_code) is RetryDecision.FINAL
            else response.error_code
        ),
    )
    assert client.loop.run([call], soon(client)), call.last_status
    assert call.response is not None
    return call.response


def test_it_takes_a_right_of_its_own(ready: KafkaCluster) -> None:
    name = f"two-phases-{uuid.uuid4().hex[:8]}"
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

    def is_answered() -> bool:
        with suppress(KafkaError):
            return initialise(client, request).error_code is expected
        return False

    wait_for(is_answered, 30, expected.name)


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
