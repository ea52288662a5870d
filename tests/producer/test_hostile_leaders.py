"""A broker that never stops refusing, and metadata that never stops changing: the batch is sent
again with backoff, and its time ends it. No hang, no loop without a pause.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest

from spark_kafka_sink.base.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from tests.fakes.sender_world import SenderWorld, metadata_answer

DELIVERY_TIMEOUT_MS = 120_000
BACKOFF_MS = 100

LEADERS: dict[str, Iterator[list[int]]] = {
    "the same leader": cycle([[1, 1, 2]]),
    "another leader each time": cycle([[2, 1, 2], [1, 1, 2]]),
    "a leader that is no broker": cycle([[99, 1, 2]]),
    "no leader": cycle([[-1, 1, 2]]),
}


def live(world: SenderWorld, batch: ProducerBatch, leaders: Iterator[list[int]]) -> int:
    """Refuse everything until ``batch`` is over; how many rounds the sender needed."""
    epoch = 1

    def hostile() -> None:
        nonlocal epoch
        if world.client.in_flight_request_count():
            world.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if world.metadata.time_to_next_update(world.clock.now_ms()) == 0:
            epoch += 1
            world.client.prepare_metadata(metadata_answer(next(leaders), epoch=epoch))

    world.client.on_poll = hostile
    rounds = 0
    while not batch.is_done:
        rounds += 1
        before = world.clock.now_ms()
        world.round()
        if world.clock.now_ms() == before and not batch.is_done:
            world.clock.advance(min(world.client.poll_timeouts[-1], DELIVERY_TIMEOUT_MS))
    return rounds


@pytest.mark.parametrize("leaders", LEADERS)
def test_an_endless_refusal_ends_with_the_batchs_timeout(leaders: str) -> None:
    with SenderWorld(idempotent=False) as world:
        start = world.clock.now_ms()
        batch = world.append()
        rounds = live(world, batch, LEADERS[leaders])
        assert isinstance(batch.error, KafkaTimeoutError)
        assert world.clock.now_ms() - start == DELIVERY_TIMEOUT_MS
        most = DELIVERY_TIMEOUT_MS // BACKOFF_MS + 2
        assert len(world.client.produced) <= most
        assert len(world.client.metadata_requests) <= 2 * most
        assert rounds <= 8 * most
        assert world.memory_in_use == 0
