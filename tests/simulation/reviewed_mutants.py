"""Broken protocols: defects of exactly-once that reviews found, put back within their context."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import KafkaTimeoutError, ProducerFencedError
from spark_kafka_sink.datasource.exactly_once import transaction_commit, transaction_plan
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.exactly_once.transactional_producers import TransactionalProducers
from spark_kafka_sink.protocol.log_requests import FetchedPartition
from spark_kafka_sink.transactions import batches, committer, deciding, ending, table
from spark_kafka_sink.transactions.commit_log import commit_log, log_writer
from spark_kafka_sink.transactions.commit_log.log_reader import LogReader
from spark_kafka_sink.transactions.commit_state import (
    Done,
    Payload,
)
from spark_kafka_sink.transactions.committer import Committer, _Performance
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit, raised
from spark_kafka_sink.transactions.steps import (
    AbortBatch,
    CommitBatch,
    Failure,
    Sweep,
    View,
    failure_of,
    with_decision,
)
from tests.simulation.mutant import all_of, with_row_text, with_text


def s1_unknown_queries_are_not_checked() -> AbstractContextManager[Any]:
    """A foreachBatch that Spark does not name skips what others wrote, and what may be theirs."""
    true = batches.number_refusal

    def refusal(numbering: Numbering, query_id: str, number: int, state: Any) -> Any:
        if query_id or numbering is not Numbering.MICRO_BATCHES:
            return true(numbering, query_id, number, state)
        return None

    return all_of(
        patch.object(table, "number_refusal", refusal),
        patch.object(transaction_plan, "number_refusal", refusal),
        patch.object(TransactionPlan, "_refuse_unknown_replay", lambda *_: None),
        s18_other_rows_are_dropped(),
    )


def s2_the_gap_before_a_write_is_not_looked_at() -> AbstractContextManager[Any]:
    return patch.object(LogReader, "has_records", lambda *_: False)


def s3_an_abort_of_a_superseded_run_does_not_sweep() -> AbstractContextManager[Any]:
    is_its_own = "view.state.run_id not in ('', goal.owner.run_id) or view.sweeps"
    return all_of(
        with_row_text("its_run_may_have_more_open", "view.sweeps", is_its_own, goal=AbortBatch),
    )


def s4_named_jobs_sweep_no_dead_runs() -> AbstractContextManager[Any]:
    true = _Performance._swept

    def swept(self: Any, step: Sweep, view: View) -> View:
        of_job = isinstance(self._goal, CommitBatch) and "~" in self._goal.key
        return true(self, replace(step, superseded=step.superseded and not of_job), view)

    return patch.object(_Performance, "_swept", swept)


def s5_a_decision_is_no_lease() -> AbstractContextManager[Any]:
    """Checked first, and written whenever it gets there."""

    def decided(self: Any, state: Any, view: Any) -> Any:
        deadline = self._client.deadline()
        self._check(state.decision, deadline)
        self._write(state, self._client.deadline())
        return with_decision(view, state, 0)

    return all_of(
        patch.object(_Performance, "_decided", decided),
        patch.object(commit_log, "lease_ms", lambda timeout_ms: timeout_ms),
    )


def s6_the_roll_forward_undoes_nothing() -> AbstractContextManager[Any]:
    return patch.object(ending, "_next", lambda *_, **__: (ending.Ending.FINISH, None))


def s7_brokers_are_as_they_were_minutes_ago() -> AbstractContextManager[Any]:
    """Neither the write that a batch is done nor the sweep behind it asks who there is."""
    true = AdminClient.brokers

    def brokers(self: Any, deadline_ms: int, *, max_age_ms: int = 0) -> Any:
        return true(self, deadline_ms, max_age_ms=300_000)

    return all_of(
        patch.object(AdminClient, "brokers", brokers),
        patch.object(AdminClient, "refresh_brokers", lambda _: None),
    )


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
    true = failure_of

    def never_unclear(error: Any) -> Failure:
        found = true(error)
        return Failure.FINAL if found is Failure.UNCLEAR else found

    return patch.object(committer, "failure_of", never_unclear)


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
    true = deciding.unready

    def unready(client: Any, decision: Any, log: str, deadline: int) -> Any:
        found = client.open_transactions(log.removesuffix("~~log"), deadline, patient=True)
        if found.silent:
            raise KafkaTimeoutError("a broker gave no answer", hint="")
        return true(client, decision, log, deadline)

    return patch.object(committer, "unready", unready)


def s14_errors_behind_the_decision_are_bare() -> AbstractContextManager[Any]:
    return patch.object(table, "_failure", lambda _goal, _view, failed: raised(failed.error))


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
        s18_other_rows_are_dropped(),
    )


def s18_other_rows_are_dropped() -> AbstractContextManager[Any]:
    return patch.object(batches, "payload_refusal", lambda *_: None)


def s19_a_dropped_version_sweeps_its_run() -> AbstractContextManager[Any]:
    return with_text(table, "_sweep", "is_own = ", "is_own = True or ")


def s20_versions_share_the_id_of_a_report() -> AbstractContextManager[Any]:
    """Threads of one run choose it at once, and the later one aborts what the other has decided."""
    return with_row_text("it_is_to_be_decided", 'view.name if is_shared else ""', '""')
