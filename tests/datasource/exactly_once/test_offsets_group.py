"""A group with members is refused for ``offsetsGroup``, before any task: on a real broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
from confluent_kafka import Consumer, ShareConsumer

from spark_kafka_sink.admin.call import Call, CoordinatorKey
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.datasource.exactly_once.transaction_plan import plan_transactions
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.protocol.group_requests import LIST_GROUPS
from spark_kafka_sink.protocol.transaction_requests import CoordinatorType
from tests.real_kafka import RealKafka
from tests.waiting import wait_for

pytestmark = pytest.mark.broker


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def plan(kafka: RealKafka, group: str) -> Callable[..., object]:
    """Plans a micro-batch of foreach_batch with that group."""

    def plan(**more: str) -> object:
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap,
            "deliveryGuarantee": "exactly-once",
            "txnAppId": group,
            "txnVersion": "0",
            "txnContext": WriteContext("run").to_option(),
            "offsetsGroup": group,
        }
        return plan_transactions(parse_sink_config(options | more), streaming=False)

    return plan


@pytest.fixture(params=["classic", "consumer", "share"])
def member(request: pytest.FixtureRequest, kafka: RealKafka, group: str) -> Iterator[str]:
    """A consumer that is in the group; the group's type."""
    of_group = {"bootstrap.servers": kafka.bootstrap, "group.id": group}
    if request.param == "share":
        consumer = ShareConsumer(of_group)
    else:
        consumer = Consumer(of_group | {"group.protocol": request.param})
    with closing(consumer):
        consumer.subscribe([kafka.unique_topic("read", 1)])
        config = parse_producer_config({"bootstrap.servers": kafka.bootstrap})
        with TransactionClient(config) as client:

            def joined() -> bool:
                consumer.poll(0.2)
                call = Call(LIST_GROUPS, CoordinatorKey(group, CoordinatorType.GROUP), "it")
                groups = client.loop.send_and_receive(call, client.deadline()).groups
                return any(one.group_id == group for one in groups)

            wait_for(joined, what="the consumer's membership")
        yield str(request.param)


def test_a_group_with_members_is_refused_unless_allowed(
    plan: Callable[..., object], group: str, member: str
) -> None:
    """Its position would be overwritten: the consumer's next start would skip records."""

    with pytest.raises(ConfigError, match=f"'{group}' is a {member} group with members") as raised:
        plan()
    assert "offsetsGroupInUse=allow" in (raised.value.hint or "")
    plan(offsetsGroupInUse="allow")


def test_a_group_without_members_is_taken(
    kafka: RealKafka, plan: Callable[..., object], group: str
) -> None:
    with closing(Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": group})) as consumer:
        consumer.subscribe([kafka.unique_topic("read", 1)])
        consumer.poll(1)
    plan()
