"""The sender's loop: a batch on its way, what wakes it and lets it sleep, and how it closes.

What Kafka's SenderTest checks, as far as it applies, is in test_sender_*.py. Rule R2 (a task
attempt is replayable: once a sent batch fails for good the attempt fails) takes the place of these:

* Sequences restart at 0 after UNKNOWN_PRODUCER_ID: the attempt fails.
* Unresolved sequences, epoch bump: an expired batch fails the attempt.
* Later sequences shift down, or are rewritten after an epoch bump: bytes are never changed.
"""

from __future__ import annotations

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.produce import PartitionProduceResponse
from tests.fakes.sender_world import (
    NODE2,
    PRODUCER_ID,
    TP0,
    TP1,
    TP2,
    SenderWorld,
    acknowledged,
    cluster_of,
    metadata_answer,
)


def test_a_batch_is_sent_and_acknowledged_with_its_offset() -> None:
    """SenderTest#testSimple."""
    with SenderWorld() as world:
        batch = world.append(records=3)
        size = batch.size_in_bytes
        world.acknowledge(offset=42, after_ms=30)
        world.round(2)
        world.round(1, ms=30)
        assert acknowledged(batch)
        assert batch.base_offset == 42
        assert world.memory_in_use == 0
        sent = world.produced[0]
        assert (sent.producer_id, sent.epoch, sent.sequence) == (PRODUCER_ID, 0, 0)
        report = world.recorder.report()
        assert report.offsets == {TP0: (42, 44)}
        assert (report.rows, report.bytes, report.batches, report.requests) == (3, size, 1, 1)
        assert report.nodes[1].max_latency_ms == 30


def test_one_request_carries_all_partitions_of_a_node() -> None:
    with SenderWorld() as world:
        batches = [world.append(tp) for tp in (TP0, TP1, TP2)]
        world.prepare(
            PartitionProduceResponse(TP0, ErrorCode.NONE, 1),
            PartitionProduceResponse(TP1, ErrorCode.NONE, 2),
            throttle_time_ms=7,
        )
        world.acknowledge(TP2, 3)
        world.round(2)
        assert all(acknowledged(batch) for batch in batches)
        assert [r.destination for r in world.client.requests[1:]] == [1, 2]
        assert world.client.poll_timeouts[1] > 0, "each node's next request waits for this one"
        report = world.recorder.report()
        assert report.requests == 2
        assert report.throttle_ms == 7
        assert set(report.nodes) == {1, 2}


def test_acks_0_completes_on_write_with_an_unknown_offset() -> None:
    """Sender#handleProduceResponse."""
    with SenderWorld(idempotent=False, acks=0) as world:
        batch = world.append()
        world.round()
        assert acknowledged(batch)
        assert batch.base_offset == -1
        assert not world.client.requests[0].expect_response
        assert world.produced[0].sequence == -1


def test_zstd_needs_produce_version_7() -> None:
    with SenderWorld(compression_type="zstd") as world:
        world.append()
        world.acknowledge()
        world.round(2)
        assert world.client.produced[0].versions == (7, 12)


def test_a_throttled_node_does_not_make_the_loop_spin() -> None:
    """SenderTest#testDoNotPollWhenNoRequestSent."""
    with SenderWorld() as world:
        batch = world.append()
        world.client.unready = {1: world.clock.now_ms() + 250}
        world.round(1)
        assert world.client.poll_timeouts[-1] == 250
        polls = len(world.client.poll_timeouts)
        world.round(1, ms=100)
        assert world.client.poll_timeouts[polls:] == [150]
        world.acknowledge()
        world.round(2, ms=150)
        assert acknowledged(batch)


def test_unknown_leaders_ask_for_metadata_and_the_batch_follows() -> None:
    with SenderWorld(cluster=cluster_of([-1, 1, 2])) as world:
        batch = world.append()
        world.client.prepare_metadata(metadata_answer([2, 1, 2]))
        world.round(2)
        world.acknowledge()
        world.round(2)
        assert acknowledged(batch)
        assert world.client.requests[-1].destination == NODE2.id


def test_an_idle_producer_polls_without_timer_and_metadata() -> None:
    """Rule R4."""
    with SenderWorld(established=True) as world:
        world.round(2)
        assert world.client.poll_timeouts[-1] == NEVER
        world.clock.advance(10 * world.config.metadata_max_age_ms)
        world.metadata.request_update()
        assert world.metadata.time_to_next_update(world.clock.now_ms()) == NEVER
        batch = world.append()
        world.client.prepare_metadata(metadata_answer([1, 1, 2]))
        world.acknowledge(offset=1)
        world.round(2)
        assert acknowledged(batch)


def test_close_sends_the_rest_and_closes_the_client() -> None:
    """Behind the end the client is not woken any more."""
    with SenderWorld() as world:
        batches = [world.append(tp) for tp in (TP0, TP2)]
        world.acknowledge(TP0)
        world.acknowledge(TP2)
        world.sender.initiate_close()
        world.sender.run()
        assert all(acknowledged(batch) for batch in batches)
        assert world.client.closed
        assert world.lifecycle.fatal is None
        wakeups = world.client.wakeups
        world.link.wakeup()
        assert world.client.wakeups == wakeups


def test_a_forced_close_fails_everything_and_ends_at_once() -> None:
    """RecordAccumulatorTest#testAbortIncompleteBatches."""
    with SenderWorld() as world:
        in_flight, queued = world.append(), world.append()
        world.round(1)
        world.sender.force_close()
        world.sender.run()
        for batch in (in_flight, queued):
            assert batch.is_done
            assert "closed before" in str(batch.error)
        assert world.client.closed
        assert world.memory_in_use == 0


def test_a_close_that_drains_ends_when_a_batch_fails() -> None:
    """SenderTest#testSenderShouldCloseWhenTransactionManagerInErrorState: it cannot hang in the
    error state.
    """
    with SenderWorld() as world:
        refused, queued = world.append(), world.append()
        world.refuse(ErrorCode.INVALID_RECORD)
        world.sender.initiate_close()
        world.sender.run()
        assert refused.error is not None
        assert queued.error is refused.error
