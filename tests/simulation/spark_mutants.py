"""Broken protocols, made on purpose: each must be found by the random lives.

Each is a context manager. Some are what a careless change would do, some the defects that reviews
found, put back. ``python -m tests.simulation.spark_mutants`` (``make mutants``) tells with which
seed each is found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from spark_kafka_sink.admin.admin_client import AdminClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.datasource.exactly_once import (
    transaction_commit,
    transaction_plan,
    transactional_producers,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
    TransactionalProducers,
    WorkerIds,
)
from spark_kafka_sink.errors import ErrorCode, KafkaTimeoutError, ProducerFencedError
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.transactions import (
    aborter,
    committer,
    decision_log,
    ending,
    log_writer,
    outcomes,
    ownership,
)
from spark_kafka_sink.transactions.aborter import Aborter
from spark_kafka_sink.transactions.commit_state import CommitState, LogOutcomeUnknownError, Payload
from spark_kafka_sink.transactions.committer import Commit, Committer
from spark_kafka_sink.transactions.log_reader import LogReader
from spark_kafka_sink.transactions.outcomes import Outcome
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.sweep import Sweeper, Swept
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.simulation.spark_lives import SparkLifeError, live

Mutant = Callable[[], AbstractContextManager[Any]]


def _all(*patches: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    @contextmanager
    def together() -> Iterator[None]:
        with ExitStack() as stack:
            for one in patches:
                stack.enter_context(one)
            yield

    return together()


# ---- what a careless change would do -------------------------------------------------------------


def never_sweeps() -> AbstractContextManager[Any]:
    return patch.object(Sweeper, "sweep", lambda *_, **__: Swept())


def abort_does_nothing() -> AbstractContextManager[Any]:
    return _all(
        patch.object(Aborter, "abort", lambda *_, **__: ()),
        patch.object(Aborter, "abort_unknown", lambda *_, **__: ()),
    )


def no_prepare_check() -> AbstractContextManager[Any]:
    return patch.object(Committer, "_check_prepared", lambda *_: None)


def no_age_check() -> AbstractContextManager[Any]:
    return patch.object(TransactionClient, "older_than", lambda *_, **__: frozenset())


def anybody_may_commit() -> AbstractContextManager[Any]:
    return patch.object(Owner, "check", lambda *_: None)


def one_duel() -> AbstractContextManager[Any]:
    """Whoever opens the log behind a healthy driver's back stops it."""
    return patch.object(ownership, "_MAX_ATTEMPTS", 1)


def strangers_are_not_superseded() -> AbstractContextManager[Any]:
    """A driver that died before its first commit is in no record."""
    true = CommitState.standing
    return patch.object(CommitState, "standing", lambda self, run, _=None: true(self, run))


def doubt_is_ignored() -> AbstractContextManager[Any]:
    return patch.object(KafkaProducer, "identity_in_doubt", property(lambda _: False))


def lost_counts_as_committed() -> AbstractContextManager[Any]:
    true = outcomes.outcome_of

    def outcome_of(transaction: Any, found: Any) -> Outcome:
        outcome = true(transaction, found)
        return Outcome.COMMITTED if outcome in (Outcome.LOST, Outcome.UNKNOWN) else outcome

    return patch.object(ending, "outcome_of", outcome_of)


def done_is_never_noted() -> AbstractContextManager[Any]:
    return patch.object(Committer, "_note_done", lambda *_: None)


def abort_gives_nothing_up() -> AbstractContextManager[Any]:
    return patch.object(Aborter, "_give_up", lambda _self, _owner, _number, session: session)


def abort_ignores_the_decision() -> AbstractContextManager[Any]:
    return _all(
        patch.object(aborter, "_decided", lambda _: frozenset()),
        patch.object(Aborter, "_give_up", lambda _self, _owner, _number, session: session),
    )


def _ends(change: Callable[[ErrorCode | None, bool], ErrorCode | None]) -> Any:
    true = TransactionClient.end

    def end(self: Any, transactions: Any, *, committed: bool, deadline_ms: int) -> Any:
        found = true(self, transactions, committed=committed, deadline_ms=deadline_ms)
        return {i: change(code, committed) for i, code in found.items()}

    return patch.object(TransactionClient, "end", end)


def silence_counts_as_committed() -> AbstractContextManager[Any]:
    return _all(_ends(lambda code, _: ErrorCode.NONE if code is None else code))


def doubtful_counts_as_committed() -> AbstractContextManager[Any]:
    """Another sink's."""
    return _all(
        _ends(lambda code, commit: ErrorCode.NONE if commit and code in outcomes.DOUBTFUL else code)
    )


def decides_before_it_checks() -> AbstractContextManager[Any]:
    def decide(self: Any, owner: Any, session: Any, state: Any) -> Any:
        deadline = self._client.deadline()
        session.write(state, deadline)
        self._check_prepared(owner, state.decision, deadline)
        return state

    return patch.object(Committer, "_decide", decide)


def forgets_the_last_end() -> AbstractContextManager[Any]:
    true = ending.commit_all

    def commit_all(coordinators: Any, transactions: Sequence[Any], *more: Any) -> Any:
        return true(coordinators, list(transactions)[:-1] or list(transactions), *more)

    return patch.object(committer, "commit_all", commit_all)


def generation_never_moves() -> AbstractContextManager[Any]:
    def taken_over(self: CommitState, run_id: str, query_id: str) -> CommitState:
        query_id = query_id or self.query_id
        if self.generation and self.run_id == run_id:
            return self
        return replace(self, generation=1, run_id=run_id, query_id=query_id)

    return patch.object(CommitState, "taken_over", taken_over)


def planning_does_not_roll_forward() -> AbstractContextManager[Any]:
    def roll_forward(self: Any, key: str) -> CommitState:
        return self._decisions.read(key, self._client.deadline()).state or CommitState()

    return patch.object(Committer, "roll_forward", roll_forward)


def a_write_that_is_not_over_is_not_waited_for() -> AbstractContextManager[Any]:
    """What the log says while its markers are on their way counts."""
    true = LogReader.read_keys

    def read_keys(*given: Any) -> Any:
        place = true(*given)
        place.settled = True
        return place

    return patch.object(LogReader, "read_keys", read_keys)


def nobody_is_superseded() -> AbstractContextManager[Any]:
    return patch.object(CommitState, "_with_superseded", lambda *_: ())


def empties_are_left() -> AbstractContextManager[Any]:
    true = TransactionClient.open_transactions

    def open_transactions(self: Any, *given: Any, **named: Any) -> Any:
        return true(self, *given, **(named | {"idle": False}))

    return patch.object(TransactionClient, "open_transactions", open_transactions)


def forgets_what_is_done() -> AbstractContextManager[Any]:
    """Neither the driver nor its tasks look whether a batch is done."""
    return _all(
        patch.object(Committer, "_done_before", lambda *_: False),
        patch.object(TransactionPlan, "is_done", lambda *_: False),
    )


def ends_without_a_decision() -> AbstractContextManager[Any]:
    """EndTxn before the commit point."""
    return patch.object(Committer, "_decide", lambda _self, _owner, _session, state: state)


def finishes_nothing() -> AbstractContextManager[Any]:
    """A decided batch counts as done without being ended."""
    return patch.object(
        Committer, "_finish", lambda _self, _key, _session, state, **_: state.finished()
    )


def one_id_for_two_tasks() -> AbstractContextManager[Any]:
    def take(self: WorkerIds, plan: TransactionPlan, run: str, *_: Any) -> TransactionalId:
        return TransactionalId(plan.key, run, self.token, 0)

    return _all(
        patch.object(WorkerIds, "take", take),
        patch.object(WorkerIds, "give_up", lambda *_: None),
    )


def a_prepared_producer_aborts_as_it_closes() -> AbstractContextManager[Any]:
    true = KafkaProducer.prepare

    def prepare(self: KafkaProducer) -> Any:
        prepared = true(self)
        self.forget_prepared()
        self.init_transactions()
        return prepared

    return patch.object(KafkaProducer, "prepare", prepare)


# ---- defects that reviews found, put back --------------------------------------------------------


def s1_unknown_queries_are_not_checked() -> AbstractContextManager[Any]:
    """A foreachBatch of which Spark tells nothing skips what others wrote."""
    true = committer.check_number

    def check(key: str, numbering: Numbering, query_id: str, number: int, state: Any) -> None:
        if query_id or numbering is not Numbering.MICRO_BATCHES:
            true(key, numbering, query_id, number, state)

    return _all(
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

    def sweep(self: Any, owner: Owner, session: Any, state: CommitState, **more: Any) -> None:
        known = state if "~" not in owner.key else replace(state, superseded=(), generation=0)
        true(self, owner, session, known, **more)

    return patch.object(Committer, "_sweep", sweep)


def s5_a_decision_is_no_lease() -> AbstractContextManager[Any]:
    """Checked first, and written whenever it gets there."""

    def decide(self: Any, owner: Any, session: Any, state: Any) -> Any:
        self._check_prepared(owner, state.decision, self._client.deadline())
        session.write(state, self._client.deadline())
        return state

    return _all(
        patch.object(Committer, "_decide", decide),
        patch.object(decision_log, "lease_ms", lambda _: 30_000),
    )


def s6_the_roll_forward_undoes_nothing() -> AbstractContextManager[Any]:
    return patch.object(committer, "undo", lambda *_: False)


def s7_brokers_are_as_they_were_minutes_ago() -> AbstractContextManager[Any]:
    true = AdminClient.brokers

    def brokers(self: Any, deadline_ms: int, *, max_age_ms: int = 0) -> Any:
        return true(self, deadline_ms, max_age_ms=300_000)

    return patch.object(AdminClient, "brokers", brokers)


def s8_a_sweep_fences_whoever_has_the_id() -> AbstractContextManager[Any]:
    """InitProducerId, which hits the next transaction when it is late, and leaves ids Empty."""

    def abort_exactly(self: TransactionClient, found: Mapping[str, Any], deadline_ms: int) -> Any:
        return self.fence(found, deadline_ms)

    return patch.object(TransactionClient, "abort_exactly", abort_exactly)


def s9_what_was_swept_is_swept_again() -> AbstractContextManager[Any]:
    """A sweep leaves ids Empty, so that each commit finds them, and fences them once more."""
    true = TransactionClient.abort_exactly

    def abort_exactly(self: TransactionClient, found: Mapping[str, Any], deadline_ms: int) -> Any:
        answers = true(self, found, deadline_ms)
        for i in found:
            self.init_producer_id(i, 60_000, deadline_ms)
        return answers

    return patch.object(TransactionClient, "abort_exactly", abort_exactly)


def s11_invalid_txn_state_stops_the_healthy() -> AbstractContextManager[Any]:
    return patch.object(log_writer, "_FENCED", (ProducerFencedError,))


def s11_an_unclear_write_is_not_looked_up() -> AbstractContextManager[Any]:
    true = ownership.retry_when_fenced

    def retry_when_fenced(
        open_: Any, attempt: Any, check: Any = lambda _: None, **named: Any
    ) -> Any:
        def once(opened: Any) -> Any:
            try:
                return attempt(opened)
            except LogOutcomeUnknownError as error:
                raise KafkaTimeoutError(error.message, hint="") from error

        return true(open_, once, check, **named)

    return _all(
        patch.object(committer, "retry_when_fenced", retry_when_fenced),
        patch.object(aborter, "retry_when_fenced", retry_when_fenced),
    )


def s12_readers_wait_for_strangers() -> AbstractContextManager[Any]:
    """Nothing is read before the last stable offset is the end."""
    true = LogReader.read_keys

    def read_keys(self: Any, tp: Any, wanted: Any, place: Any, deadline_ms: int) -> Any:
        attempts = 0
        while True:
            fetched = self._fetch(tp, place.next_offset, deadline_ms)
            if fetched.last_stable_offset >= fetched.high_watermark:
                return true(self, tp, wanted, place, deadline_ms)
            self._client.loop.pause(attempts, deadline_ms)
            attempts += 1

    return patch.object(LogReader, "read_keys", read_keys)


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
        return transactional_producers._own(producer).prepare()

    return patch.object(TransactionalProducers, "prepare", prepare)


def s17_an_empty_version_counts() -> AbstractContextManager[Any]:
    true = Committer.commit

    def commit(self: Any, owner: Owner, batch: Any) -> Commit:
        how = true(self, owner, batch)
        if how is Commit.EMPTY and owner.numbering is Numbering.VERSIONS:
            session = self._decisions.open(owner.key, self._client.deadline())
            state = (session.state or CommitState()).taken_over(owner.run_id, "")
            session.write(state.skipped_to(batch.number, (Payload(),)), self._client.deadline())
        return how

    return _all(
        patch.object(Committer, "commit", commit),
        patch.object(committer, "check_payload", lambda *_: None),
    )


def s18_other_rows_are_dropped() -> AbstractContextManager[Any]:
    return patch.object(committer, "check_payload", lambda *_: None)


CARELESS: tuple[Mutant, ...] = (
    never_sweeps,
    abort_does_nothing,
    no_prepare_check,
    no_age_check,
    anybody_may_commit,
    one_duel,
    strangers_are_not_superseded,
    doubt_is_ignored,
    lost_counts_as_committed,
    done_is_never_noted,
    abort_gives_nothing_up,
    abort_ignores_the_decision,
    silence_counts_as_committed,
    doubtful_counts_as_committed,
    decides_before_it_checks,
    forgets_the_last_end,
    generation_never_moves,
    planning_does_not_roll_forward,
    a_write_that_is_not_over_is_not_waited_for,
    nobody_is_superseded,
    empties_are_left,
    forgets_what_is_done,
    ends_without_a_decision,
    finishes_nothing,
    one_id_for_two_tasks,
    a_prepared_producer_aborts_as_it_closes,
)
REVIEWED: tuple[Mutant, ...] = (
    s1_unknown_queries_are_not_checked,
    s2_the_gap_before_a_write_is_not_looked_at,
    s3_an_abort_of_a_superseded_run_does_not_sweep,
    s4_named_jobs_sweep_no_dead_runs,
    s5_a_decision_is_no_lease,
    s6_the_roll_forward_undoes_nothing,
    s7_brokers_are_as_they_were_minutes_ago,
    s8_a_sweep_fences_whoever_has_the_id,
    s9_what_was_swept_is_swept_again,
    s11_invalid_txn_state_stops_the_healthy,
    s11_an_unclear_write_is_not_looked_up,
    s12_readers_wait_for_strangers,
    s13_every_broker_must_answer,
    s14_errors_behind_the_decision_are_bare,
    s15_an_abort_without_a_run_takes_all,
    s16_a_late_request_may_open_what_was_committed,
    s17_an_empty_version_counts,
    s18_other_rows_are_dropped,
)


def found_by(mutant: Mutant, seeds: Sequence[int]) -> tuple[int, str] | None:
    """The first seed that notices it, and how; None when none does. (A seed that fails without it
    notices nothing.)
    """
    for seed in seeds:
        with mutant():
            found = _failure(seed)
        if found is not None and _failure(seed) is None:
            return seed, found
    return None


def _failure(seed: int) -> str | None:
    try:
        live(seed)
    except SparkLifeError as error:
        # (A mutant that doesn't fit the code any more breaks no invariant.)
        if not isinstance(error.__cause__, AssertionError):
            raise
        return str(error).splitlines()[0]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.spark_mutants")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    mutants = [
        m
        for m in (*CARELESS, *REVIEWED)
        if not arguments.names or any(name in m.__name__ for name in arguments.names)
    ]
    survivors = 0
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for mutant in mutants:
        begun = time.monotonic()
        found = found_by(mutant, seeds)
        survivors += found is None
        told = "SURVIVES" if found is None else f"seed {found[0]:>4}  {found[1][:90]}"
        print(f"{mutant.__name__:48} {time.monotonic() - begun:>4.0f} s  {told}", flush=True)
    print(f"{len(mutants)} broken protocols, {survivors} not found by {len(seeds)} seeds")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
