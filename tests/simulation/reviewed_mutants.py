"""Broken protocols: defects of exactly-once that reviews found, put back within their context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import KafkaTimeoutError, ProducerFencedError
from spark_kafka_sink.datasource.exactly_once import transaction_commit, transaction_plan
from spark_kafka_sink.datasource.exactly_once.transactional_producers import TransactionalProducers
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.transactions import committer, ending, ownership
from spark_kafka_sink.transactions.aborter import Aborter
from spark_kafka_sink.transactions.commit_log import commit_log, log_writer
from spark_kafka_sink.transactions.commit_log.log_reader import LogReader
from spark_kafka_sink.transactions.commit_state import (
    CommitState,
    Done,
    LogOutcomeUnknownError,
    Payload,
)
from spark_kafka_sink.transactions.committer import Commit, Committer
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from tests.simulation.mutant import all_of


def s1_unknown_queries_are_not_checked() -> AbstractContextManager[Any]:
    """A foreachBatch that Spark does not name skips what others wrote."""
    true = committer.check_number

    def check(key: str, numbering: Numbering, query_id: str, number: int, state: Any) -> None:
        if query_id or numbering is not Numbering.MICRO_BATCHES:
            true(key, numbering, query_id, number, state)

    return all_of(
        patch.object(committer, "check_number", check),
        patch.object(transaction_plan, "check_number", check),
        patch.object(committer, "check_payload", lambda *_: None),
    )


def s2_the_gap_before_a_write_is_not_looked_at() -> AbstractContextManager[Any]:
    return patch.object(LogReader, "has_records", lambda *_: False)


def s3_an_abort_of_a_superseded_run_does_not_sweep() -> AbstractContextManager[Any]:
    true = Aborter.abort

    def abort(self: Any, owner: Owner, number: int, transactions: Any, **named: Any) -> Any:
        state = self._decisions.read(owner.key, self._client.deadline()).state
        if state is None or state.run_id in ("", owner.run_id):
            return true(self, owner, number, transactions, **named)
        with patch.object(Aborter, "_sweep", lambda *_, **__: ()):
            return true(self, owner, number, transactions, **named)

    return patch.object(Aborter, "abort", abort)


def s4_named_jobs_sweep_no_dead_runs() -> AbstractContextManager[Any]:
    true = Committer._sweep

    def sweep(self: Any, owner: Owner, state: CommitState, **named: Any) -> None:
        known = state if "~" not in owner.key else replace(state, superseded=(), generation=0)
        true(self, owner, known, **named)

    return patch.object(Committer, "_sweep", sweep)


def s5_a_decision_is_no_lease() -> AbstractContextManager[Any]:
    """Checked first, and written whenever it gets there."""

    def decide(self: Any, owner: Any, session: Any, state: Any, _: Any) -> Any:
        self._check_prepared(owner, state.decision, self._client.deadline())
        session.write(state, self._client.deadline())
        return state

    return all_of(
        patch.object(Committer, "_decide", decide),
        patch.object(commit_log, "lease_ms", lambda timeout_ms: timeout_ms),
    )


def s6_the_roll_forward_undoes_nothing() -> AbstractContextManager[Any]:
    return patch.object(ending, "_next", lambda *_, **__: ending._Next.FINISH)


def s7_brokers_are_as_they_were_minutes_ago() -> AbstractContextManager[Any]:
    true = AdminClient.brokers

    def brokers(self: Any, deadline_ms: int, *, max_age_ms: int = 0) -> Any:
        return true(self, deadline_ms, max_age_ms=300_000)

    return patch.object(AdminClient, "brokers", brokers)


def s8_a_sweep_fences_whoever_has_the_id() -> AbstractContextManager[Any]:
    """InitProducerId, which hits the next transaction when it is late, and leaves ids Empty."""

    def abort_exactly(self: Any, found: Any, deadline_ms: int, **_: Any) -> Any:
        return self.fence(found, deadline_ms)

    return patch.object(TransactionClient, "abort_exactly", abort_exactly)


def s9_what_was_swept_is_swept_again() -> AbstractContextManager[Any]:
    """A sweep leaves ids Empty, so that each commit finds them, and fences them once more."""
    true = TransactionClient.abort_exactly

    def abort_exactly(self: Any, found: Any, deadline_ms: int, **named: Any) -> Any:
        answers = true(self, found, deadline_ms, **named)
        for i in found:
            self.init_producer_id(i, 60_000, deadline_ms)
        return answers

    return patch.object(TransactionClient, "abort_exactly", abort_exactly)


def s11_invalid_txn_state_stops_the_healthy() -> AbstractContextManager[Any]:
    return patch.object(log_writer, "_FENCED", (ProducerFencedError,))


def s11_an_unclear_write_is_not_looked_up() -> AbstractContextManager[Any]:
    true = ownership.retry_when_fenced

    def retry_when_fenced(client: Any, open_: Any, attempt: Any) -> Any:
        def once(opened: Any) -> Any:
            try:
                return attempt(opened)
            except LogOutcomeUnknownError as error:
                raise KafkaTimeoutError(error.message, hint="") from error

        return true(client, open_, once)

    return patch.object(ownership, "retry_when_fenced", retry_when_fenced)


def s12_readers_wait_for_strangers() -> AbstractContextManager[Any]:
    """Nothing is read before the last stable offset is the end."""
    true, of = LogReader.read_keys, FetchedPartition.of
    #: Of the last response (ours keeps no offsets).
    ends: list[tuple[int, int]] = []

    def keeps_ends(request: Any, response: Any) -> Any:
        one = response.responses[0].partitions[0]
        ends[:] = [(one.last_stable_offset, one.high_watermark)]
        return of(request, response)

    def read_keys(self: Any, tp: Any, wanted: Any, place: Any, deadline_ms: int) -> Any:
        attempts = 0
        while True:
            self._reader.fetch(tp, place.next_offset, deadline_ms)
            stable, end = ends[0]
            if stable >= end:
                return true(self, tp, wanted, place, deadline_ms)
            self._client.loop.pause(attempts, deadline_ms)
            attempts += 1

    return all_of(
        patch.object(FetchedPartition, "of", keeps_ends),
        patch.object(LogReader, "read_keys", read_keys),
    )


def s13_every_broker_must_answer() -> AbstractContextManager[Any]:
    true = Committer._check_prepared

    def check(self: Any, owner: Owner, decision: Any, deadline: int) -> None:
        found = self._client.open_transactions(owner.key, deadline, patient=True)
        if found.silent:
            raise KafkaTimeoutError("a broker gave no answer", hint="")
        true(self, owner, decision, deadline)

    return patch.object(Committer, "_check_prepared", check)


def s14_errors_behind_the_decision_are_bare() -> AbstractContextManager[Any]:
    @contextmanager
    def decided(*_: Any) -> Iterator[None]:
        yield

    return patch.object(committer, "_decided", decided)


def s15_an_abort_without_a_run_takes_all() -> AbstractContextManager[Any]:
    return patch.object(transaction_commit, "is_of_driver", lambda *_: True)


def s16_a_late_request_may_open_what_was_committed() -> AbstractContextManager[Any]:
    """AddPartitionsToTxn that got lost, and was answered when it was asked again."""

    def prepare(self: Any, producer: Any) -> Any:
        return producer.prepare()

    return patch.object(TransactionalProducers, "prepare", prepare)


def s17_an_empty_version_counts() -> AbstractContextManager[Any]:
    true = Committer.commit

    def commit(self: Any, owner: Owner, batch: Any) -> Commit:
        how = true(self, owner, batch)
        if how is Commit.EMPTY and owner.numbering is Numbering.VERSIONS:
            session = self._decisions.open(owner.key, self._client.deadline())
            state = session.state.taken_over(owner.run_id, "", self._client.clock.wall_ms())
            done = Done(batch.number, (Payload(),))
            session.write(state.skipped_to(done), self._client.deadline())
        return how

    return all_of(
        patch.object(Committer, "commit", commit),
        patch.object(committer, "check_payload", lambda *_: None),
    )


def s18_other_rows_are_dropped() -> AbstractContextManager[Any]:
    return patch.object(committer, "check_payload", lambda *_: None)


def s19_a_dropped_version_sweeps_its_run() -> AbstractContextManager[Any]:
    true = Committer._sweep

    def sweep(self: Any, *of: Any, own_run: bool) -> None:
        true(self, *of, own_run=True)

    return patch.object(Committer, "_sweep", sweep)
