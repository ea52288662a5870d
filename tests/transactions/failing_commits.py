"""Every way in which a commit or an abort ends in an error, by name, with the error and a piece of
its text.

A *way* gets :class:`Failing` and raises. Its rows begin with ``mine``; others' rows don't.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from crc32c import crc32c

from spark_kafka_sink.base.errors import (
    CommitError,
    CommitLogError,
    CommitOutcomeUnknownError,
    ErrorCode,
    KafkaError,
    KafkaTimeoutError,
    PartialCommitError,
    SupersededError,
)
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch, Block
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import KEPT_RUNS, CommitState, Payload
from spark_kafka_sink.transactions.driver_transactions import TopicRecord
from spark_kafka_sink.transactions.ownership import Numbering
from tests.fakes.fake_cluster.batch_checks import read_batch, record_header
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene_requests import is_a_logs, of_data
from tests.simulation.spark_world import LOG_TOPIC
from tests.transactions.failing import KEY, MINE, Failing

#: Younger than any lease, older than any margin lets a decision be.
_TOO_LONG_MS = 40_000
_LOG = TopicPartition(LOG_TOPIC, 0)


@dataclass(frozen=True, slots=True)
class Way:
    """``text`` is of the message, with "..." for what differs."""

    name: str
    error: type[KafkaError]
    text: str
    go: Callable[[Failing], None]


WAYS: list[Way] = []
ABORTS: list[Way] = []


def _ends_in(
    error: type[KafkaError], text: str, to: list[Way] = WAYS
) -> Callable[[Callable[[Failing], None]], Callable[[Failing], None]]:
    def added(go: Callable[[Failing], None]) -> Callable[[Failing], None]:
        to.append(Way(go.__name__, error, text, go))
        return go

    return added


# --- another driver, another state -------------------------------------------------------------


@_ends_in(SupersededError, "another driver has taken over '...': run ... (generation ...")
def another_driver_has_taken_over(f: Failing) -> None:
    f.commit_other("other")
    owner, batch = f.owner(), f.batch(*MINE, number=1)
    f.commit_other("later", number=1, run="run-2")
    f.driver.commit(owner, batch)


@_ends_in(SupersededError, "run ... of '...' can't commit this batch any more: it planned")
def many_aborts_have_shut_it_out(f: Failing) -> None:
    """More than ``superseded`` keeps."""
    owner, batch = f.owner(), f.batch(*MINE)
    with f.scene.client() as client:
        session = CommitLog(client, LOG_TOPIC).open(KEY, client.deadline())
        state = session.state.taken_over("another", "query", client.clock.wall_ms())
        for run in ("another", *(f"dead-{n}" for n in range(KEPT_RUNS + 1))):
            state = state.with_aborted_run(run, 1)
        session.write(state, client.deadline())
    f.driver.commit(owner, batch)


@_ends_in(CommitError, "the commit log has lost the state of '...'")
def the_log_was_lost(f: Failing) -> None:
    f.commit_other("other")
    owner, batch = f.owner(), f.batch(*MINE, number=1)
    with f.scene.client() as client:
        CommitLog(client, LOG_TOPIC).open(KEY, client.deadline()).write(None, client.deadline())
    f.driver.commit(owner, batch)


@_ends_in(CommitError, "run ... of '...' was aborted, and commits nothing any more")
def the_run_was_aborted(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    with f.scene.driver() as other:
        other.abort(owner, 0, batch.transactions, tasks_may_run=False)
    f.driver.commit(owner, batch)


@_ends_in(CommitLogError, "the commit log's record of '...' was not written by spark-kafka-sink")
def the_record_is_damaged(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.write_log(b"no state")
    f.driver.commit(owner, batch)


@_ends_in(CommitLogError, "the commit log was written by a newer spark-kafka-sink (format ...")
def the_record_is_of_a_newer_version(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.write_log(CommitState(1).encode().replace(b'"format":1', b'"format":9'))
    f.driver.commit(owner, batch)


@_ends_in(CommitLogError, "names the transaction '...' of another key; it is left alone")
def the_record_names_another_key(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    state = CommitState(1).encode()[:-1]
    f.write_log(state + b',"batch":0,"transactions":{"other~run~g1.w~":[[0,1,1,2]]}}')
    f.driver.commit(owner, batch)


@_ends_in(CommitLogError, "the commit log's state of '...' is not whole: part ...")
def the_record_has_lost_a_piece(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.write_log(b'{"part":0,"of":2,"revision":1}\n{')
    f.driver.commit(owner, batch)


@_ends_in(CommitLogError, "the commit log, can't be read: ...")
def a_batch_of_the_log_is_damaged(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    covered = record_header(attributes=0x10, last=0, timestamp=0, producer=(4711, 0, 0), count=1)
    body = covered + b"\x7f" + KEY.encode() * 3
    junk = struct.pack(">qiibI", 0, 9 + len(body), -1, 2, crc32c(body)) + body
    log = f.scene.cluster.logs[_LOG]
    log.append(read_batch(junk))
    log.end_transaction(4711, 0, commit=True, coordinator_epoch=0, timestamp=0)
    f.driver.commit(owner, batch)


# --- the batch is not the one that may come ----------------------------------------------------


@_ends_in(CommitError, "'...' is at batch ... of query ..., and query ... is about to ...")
def a_batch_that_is_not_the_next_one(f: Failing) -> None:
    f.numbering = Numbering.STREAM
    f.commit_other("other")
    f.driver.commit(f.owner(), f.batch(*MINE, number=5))


@_ends_in(CommitError, "version ... of '...' was never written, and version ... is done already")
def a_version_that_was_left_out(f: Failing) -> None:
    f.numbering = Numbering.VERSIONS
    f.commit_other("other")
    f.commit_other("later", number=9)
    f.driver.commit(f.owner(), f.batch(*MINE, number=5))


@_ends_in(CommitError, "batch ... of '...' was being written while batch ... was committed")
def a_version_while_a_later_one_was_committed(f: Failing) -> None:
    f.numbering = Numbering.VERSIONS
    owner, batch = f.owner(), f.batch(*MINE, number=3)
    f.commit_other("later", number=9)
    f.driver.commit(owner, batch)


@_ends_in(CommitError, "batch ... of '...' is done with ..., and is to be written again with ...")
def other_rows_under_a_done_number(f: Failing) -> None:
    f.commit_other("other")
    f.driver.commit(f.owner(), f.batch(*MINE))


@_ends_in(CommitError, "batch ... of '...' is done with ..., and is to be written again with ...")
def another_input_under_a_done_number(f: Failing) -> None:
    done = replace(f.batch("other"), digest="0" * 32)
    f.driver.commit(f.owner(), done)
    f.driver.commit(f.owner(), replace(f.batch(*MINE), digest="1" * 32))


# --- not decided -------------------------------------------------------------------------------


@_ends_in(CommitError, "batch ... of '...' ...; nothing of it is visible")
def a_transaction_was_aborted(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.end_one(batch)
    f.driver.commit(owner, batch)


@_ends_in(CommitError, "batch ... of '...' ...; nothing of it is visible")
def the_tasks_took_too_long(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.scene.scheduler.sleep(_TOO_LONG_MS)
    f.driver.commit(owner, batch)


@_ends_in(CommitError, "can't be committed: ... of its partitions have no leader")
def a_partition_has_no_leader(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    written = f.scene.cluster.transactions.transactions[batch.transactions[0].transactional_id]
    f.scene.cluster.move_leader(next(iter(written.partitions)), -1)
    f.driver.commit(owner, batch)


@_ends_in(KafkaTimeoutError, "batch ... of '...' was not decided in time")
def the_log_takes_no_record(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.control.answer(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, FOREVER, topic=LOG_TOPIC)
    f.driver.commit(owner, batch)


@_ends_in(SupersededError, "another driver now writes the commit log as '...'")
def others_keep_opening_the_log(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.shut_out()
    f.driver.commit(owner, batch)


@_ends_in(
    SupersededError,
    "another client has ended the transaction of '...' with the ...",
)
def the_report_is_always_fenced(f: Failing) -> None:
    f.scene.cluster.create_topic("reports", 1)
    owner, batch = f.owner(), replace(f.batch(*MINE), report=TopicRecord("reports", b"report"))
    f.control.answer(ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, FOREVER, topic="reports")
    f.driver.commit(owner, batch)


@_ends_in(CommitError, "has ... writes, and the commit log has ... successful writes")
def a_write_of_the_block_is_missing(f: Failing) -> None:
    f.driver.commit(f.owner(), f.batch(*MINE, token="block"))
    f.driver.commit(f.owner(), Batch(0, (), Payload(), block=Block("block", 2)))


@_ends_in(CommitError, "whether a write of batch ... of '...' was recorded is not known")
def a_write_of_a_block_has_no_answer(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE, token="block")
    f.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=is_a_logs)
    f.driver.commit(owner, batch)


@_ends_in(CommitError, "batch ... of '...' was not decided, and nothing of it is visible, because")
def another_thread_commits_the_version_before_in_part(f: Failing) -> None:
    f.numbering = Numbering.VERSIONS
    f.commit_other("first")
    owner, batch = f.owner(), f.batch(*MINE, number=2)
    before = f.batch("other0", "other1", number=1)
    f.when_decided(lambda: f.end_one(before))
    with f.scene.driver() as driver, suppress(PartialCommitError):
        driver.commit(f.owner("run", driver), before)
    f.driver.commit(owner, batch)


@_ends_in(CommitOutcomeUnknownError, "it is not known whether the commit log ... has the records")
def a_write_of_a_done_block_has_no_answer(f: Failing) -> None:
    f.driver.commit(f.owner(), f.batch("other", token="block"))
    f.driver.commit(f.owner(), Batch(0, (), Payload(), block=Block("block", 1)))
    owner = f.owner()
    f.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=is_a_logs)
    f.driver.commit(owner, Batch(0, (), Payload(1, 5, "t"), block=Block("again")))


# --- it may be decided -------------------------------------------------------------------------


@_ends_in(CommitOutcomeUnknownError, "whether batch ... of '...' was decided is not known")
def the_decision_does_not_arrive(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=is_a_logs)
    f.driver.commit(owner, batch)


@_ends_in(CommitOutcomeUnknownError, "whether batch ... of '...' was decided is not known")
def a_deposed_leader_does_not_have_the_decision(f: Failing) -> None:
    """The response to it is lost, a leader without it is read, and takes no record."""
    owner, batch = f.owner(), f.batch(*MINE)

    def behind() -> None:
        f.scene.cluster.logs[_LOG].truncate(0)
        behind = ErrorCode.NOT_ENOUGH_REPLICAS
        f.control.answer(ApiKey.PRODUCE, behind, FOREVER, topic=LOG_TOPIC)

    f.loses_the_response(behind)
    f.driver.commit(owner, batch)


@_ends_in(CommitOutcomeUnknownError, "whether batch ... of '...' was decided is not known")
def the_decision_arrives_and_the_log_is_away_then(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.control.drop(ApiKey.END_TXN, FOREVER, where=is_a_logs)

    def away() -> None:
        f.control.drop(ApiKey.INIT_PRODUCER_ID, FOREVER, processed=False, where=is_a_logs)

    f.when_decided(away)
    f.driver.commit(owner, batch)


@_ends_in(CommitOutcomeUnknownError, "whether batch ... of '...' was decided is not known")
def the_decision_arrives_and_the_log_is_damaged_then(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.loses_the_response(lambda: f.write_log(b"no state"))
    f.driver.commit(owner, batch)


def _decides_and_others_take_over(f: Failing, batch: Batch, then: Callable[[], None]) -> None:
    """The response to the decision is lost; before the log is opened again, ``then`` happens, and
    the log has another driver's state.
    """
    owner = f.owner()

    def others() -> None:
        f.write_log(CommitState(owner.generation + 1, "other").encode())
        then()

    f.loses_the_response(others)
    f.driver.commit(owner, batch)


@_ends_in(PartialCommitError, "batch ... of '...' is committed in part")
def others_have_ended_it_in_part(f: Failing) -> None:
    batch = f.batch(*MINE)

    def in_part() -> None:
        f.end_one(batch, 0, commit=True)
        f.end_one(batch, 1)

    _decides_and_others_take_over(f, batch, in_part)


@_ends_in(
    CommitOutcomeUnknownError,
    "batch ... of '...' may be decided: the commit log ...",
)
def others_have_ended_it_and_nobody_describes_it(f: Failing) -> None:
    batch = f.batch(*MINE)

    def unseen() -> None:
        f.end_one(batch, 0, commit=True)
        f.end_one(batch, 1, commit=True)
        f.control.drop(ApiKey.DESCRIBE_TRANSACTIONS, FOREVER, processed=False)

    _decides_and_others_take_over(f, batch, unseen)


@_ends_in(
    CommitOutcomeUnknownError,
    "batch ... of '...' may be decided: the commit log ...",
)
def others_have_ended_it_and_its_ids_have_expired(f: Failing) -> None:
    batch = f.batch(*MINE)

    def expired() -> None:
        f.end_one(batch, 0, commit=True)
        f.end_one(batch, 1, commit=True)
        _expire(f, batch)

    _decides_and_others_take_over(f, batch, expired)


# --- it is decided -----------------------------------------------------------------------------


def _expire(f: Failing, batch: Batch) -> None:
    for one in batch.transactions:
        del f.scene.cluster.transactions.transactions[one.transactional_id]


@_ends_in(CommitOutcomeUnknownError, "batch ... of '...' is decided, but the outcome of ...")
def the_coordinators_of_the_data_load(f: Failing) -> None:
    f.scene.changes |= {"delivery_timeout_ms": 10_000}
    f.driver = f.scene.driver(f.run)
    owner, batch = f.owner(), f.batch(*MINE)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    f.control.answer(ApiKey.END_TXN, loading, FOREVER, where=of_data)
    f.driver.commit(owner, batch)


@_ends_in(CommitOutcomeUnknownError, "batch ... of '...' is decided, but the outcome of ...")
def one_is_aborted_and_the_other_one_cannot_be_ended(f: Failing) -> None:
    """None is committed: the next start aborts the rest, and nothing is visible in part."""
    f.scene.changes |= {"delivery_timeout_ms": 5_000, "max_block_ms": 5_000}
    f.driver = f.scene.driver(f.run)
    owner, batch = f.owner(), f.batch(*MINE)
    other, refused = batch.transactions[1].transactional_id, ErrorCode.INVALID_TXN_STATE
    f.control.answer(
        ApiKey.END_TXN, refused, FOREVER, where=lambda r: r.body.transactional_id == other
    )
    f.when_decided(lambda: f.end_one(batch))
    f.driver.commit(owner, batch)


@_ends_in(CommitOutcomeUnknownError, "batch ... of '...' is decided, but the outcome of ...")
def the_ids_have_expired(f: Failing) -> None:
    """Another driver has ended it, long ago."""
    owner, batch = f.owner(), f.batch(*MINE)

    def ended() -> None:
        f.end_one(batch, 0, commit=True)
        f.end_one(batch, 1, commit=True)
        f.scene.cluster.at(f.scene.cluster.now + 5, lambda: _expire(f, batch))

    f.control.hold(ApiKey.END_TXN, 1_000, 2, where=of_data)
    f.when_decided(ended)
    f.driver.commit(owner, batch)


@_ends_in(CommitOutcomeUnknownError, "batch ... of '...' is decided, but its ... transactions ...")
def it_is_decided_and_others_keep_opening_the_log(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)

    def ended() -> None:
        f.end_one(batch, 0, commit=True)
        f.end_one(batch, 1)
        f.shut_out()

    f.when_decided(ended)
    f.driver.commit(owner, batch)


@_ends_in(PartialCommitError, "batch ... of '...' is committed in part")
def brokers_abort_one_of_a_decision(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.when_decided(lambda: f.end_one(batch))
    f.driver.commit(owner, batch)


@_ends_in(PartialCommitError, "batch ... of '...' is committed in part")
def the_batch_before_is_committed_in_part(f: Failing) -> None:
    with suppress(PartialCommitError):
        brokers_abort_one_of_a_decision(f)
    with f.scene.driver() as driver:
        driver.plan(KEY)


@_ends_in(CommitError, "batch ... of '...' was decided, and is undone: before any of its")
def brokers_abort_all_of_a_decision(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)

    def aborted() -> None:
        f.end_one(batch, 0)
        f.end_one(batch, 1)

    f.when_decided(aborted)
    f.driver.commit(owner, batch)


# --- aborts ------------------------------------------------------------------------------------


@_ends_in(KafkaTimeoutError, "", ABORTS)
def an_abort_without_the_log(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.control.drop(ApiKey.PRODUCE, FOREVER, processed=False, topic=LOG_TOPIC)
    f.driver.abort(owner, 0, batch.transactions, tasks_may_run=False)


@_ends_in(
    CommitOutcomeUnknownError, "it is not known whether the commit log ... has the records", ABORTS
)
def an_abort_without_an_answer(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=is_a_logs)
    f.driver.abort(owner, 0, batch.transactions, tasks_may_run=False)


@_ends_in(SupersededError, "another driver now writes the commit log as '...'", ABORTS)
def an_abort_while_others_keep_opening_the_log(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.shut_out()
    f.driver.abort(owner, 0, batch.transactions, tasks_may_run=False)


@_ends_in(CommitLogError, "the commit log's record of '...' was not written by", ABORTS)
def an_abort_with_a_damaged_record(f: Failing) -> None:
    owner, batch = f.owner(), f.batch(*MINE)
    f.write_log(b"no state")
    f.driver.abort(owner, 0, batch.transactions, tasks_may_run=False)


@_ends_in(KafkaTimeoutError, "", ABORTS)
def an_abort_of_an_unknown_batch_without_brokers(f: Failing) -> None:
    f.owner()
    f.batch(*MINE)
    f.control.drop(ApiKey.INIT_PRODUCER_ID, FOREVER, processed=False)
    f.driver.abort_unknown(KEY, lambda one: one.run == "run")
