"""Broken protocols: what a careless change of exactly-once would do, each within its context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.datasource.exactly_once import transactional_producers
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.exactly_once.transactional_producers import WorkerIds
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.transactions import committer, ending, table
from spark_kafka_sink.transactions.commit_log.log_reader import LogReader
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.committer import Committer, _Performance
from spark_kafka_sink.transactions.ending import CommitOutcomes
from spark_kafka_sink.transactions.results import AbortResult
from spark_kafka_sink.transactions.steps import (
    AbortBatch,
    Write,
    Writing,
    with_decision,
    with_write,
)
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.simulation.mutant import all_of, without_rows


def never_sweeps() -> AbstractContextManager[Any]:
    return patch.object(committer, "sweep", lambda *_, **__: ((), False))


def abort_does_nothing() -> AbstractContextManager[Any]:
    return all_of(
        patch.object(Committer, "abort", lambda *_, **__: AbortResult()),
        patch.object(Committer, "abort_unknown", lambda *_, **__: ()),
    )


def no_prepare_check() -> AbstractContextManager[Any]:
    return patch.object(committer, "unready", lambda *_: None)


def no_age_check() -> AbstractContextManager[Any]:
    return patch.object(TransactionClient, "older_than", lambda *_, **__: frozenset())


def one_duel() -> AbstractContextManager[Any]:
    """A run that opens the log behind a healthy driver's back stops it."""
    return patch.object(table, "_again", lambda *_: None)


def strangers_are_not_superseded() -> AbstractContextManager[Any]:
    """A driver that died before its first commit is in no record."""
    true = CommitState.standing
    return patch.object(CommitState, "standing", lambda self, run, _=None: true(self, run))


def doubt_is_ignored() -> AbstractContextManager[Any]:
    return patch.object(KafkaProducer, "identity_in_doubt", property(lambda _: False))


def done_is_never_noted() -> AbstractContextManager[Any]:
    return _written_without(Writing.DONE)


def _written_without(why: Writing) -> AbstractContextManager[Any]:
    """As if such a write had succeeded."""
    true = _Performance._written

    def written(self: Any, step: Write, view: Any) -> Any:
        return with_write(view, step) if step.why is why else true(self, step, view)

    return patch.object(_Performance, "_written", written)


def abort_ignores_the_decision() -> AbstractContextManager[Any]:
    return all_of(
        patch.object(committer, "decided_ids", lambda _: frozenset()),
        without_rows("its_run_may_still_decide", "it_was_decided", goal=AbortBatch),
    )


def _ends(change: Callable[[ErrorCode | None, bool], ErrorCode | None]) -> Any:
    true = TransactionClient.end

    def end(self: Any, transactions: Any, *, committed: bool, **how: Any) -> Any:
        found = true(self, transactions, committed=committed, **how)
        return {i: change(code, committed) for i, code in found.items()}

    return patch.object(TransactionClient, "end", end)


def silence_counts_as_committed() -> AbstractContextManager[Any]:
    return all_of(_ends(lambda code, _: ErrorCode.NONE if code is None else code))


def doubtful_counts_as_committed() -> AbstractContextManager[Any]:
    """Another sink's."""
    doubtful = {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
    }
    return all_of(
        _ends(lambda code, commit: ErrorCode.NONE if commit and code in doubtful else code)
    )


def decides_before_it_checks() -> AbstractContextManager[Any]:
    def decided(self: Any, state: Any, view: Any) -> Any:
        deadline = self._client.deadline()
        self._write(state, deadline)
        self._check(state.decision, deadline)
        return with_decision(view, state, 0)

    return patch.object(_Performance, "_decided", decided)


def forgets_the_last_end() -> AbstractContextManager[Any]:
    true = ending.commit_all

    def commit_all(client: Any, transactions: Sequence[Any], *more: Any, **named: Any) -> Any:
        return true(client, list(transactions)[:-1] or list(transactions), *more, **named)

    return patch.object(ending, "commit_all", commit_all)


def generation_never_moves() -> AbstractContextManager[Any]:
    def taken_over(self: CommitState, run_id: str, query_id: str, _now_ms: int) -> CommitState:
        query_id = query_id or self.query_id
        if self.generation and self.run_id == run_id:
            return self
        return replace(self, generation=1, run_id=run_id, query_id=query_id)

    return patch.object(CommitState, "taken_over", taken_over)


def planning_does_not_roll_forward() -> AbstractContextManager[Any]:
    def roll_forward(self: Any, key: str, *_: Any, **__: Any) -> CommitState:
        return self._decisions.read(key, self._client.deadline()).state or CommitState()

    return patch.object(Committer, "roll_forward", roll_forward)


def a_write_that_is_not_over_is_not_waited_for() -> AbstractContextManager[Any]:
    """What the log says while its markers are on their way counts."""
    true = LogReader.read_keys

    def read_keys(*given: Any) -> Any:
        snapshot = true(*given)
        return replace(snapshot, end=snapshot.next_offset)

    return patch.object(LogReader, "read_keys", read_keys)


def nobody_is_superseded() -> AbstractContextManager[Any]:
    return patch.object(CommitState, "_superseding", lambda self, _: self)


def empties_are_left() -> AbstractContextManager[Any]:
    true = TransactionClient.open_transactions

    def open_transactions(self: Any, *given: Any, **named: Any) -> Any:
        return true(self, *given, **(named | {"idle": False}))

    return patch.object(TransactionClient, "open_transactions", open_transactions)


def forgets_what_is_done() -> AbstractContextManager[Any]:
    """Neither the driver nor its tasks look whether a batch is done."""
    return all_of(
        without_rows("it_can_not_be_the_next_one", "it_is_done"),
        patch.object(TransactionPlan, "is_done", lambda *_: False),
    )


def ends_without_a_decision() -> AbstractContextManager[Any]:
    """EndTxn before the commit point."""

    return patch.object(
        _Performance, "_decided", lambda _, state, view: with_decision(view, state, 0)
    )


def finishes_nothing() -> AbstractContextManager[Any]:
    """A decided batch counts as done without being ended."""
    return patch.object(committer, "end_decided", lambda *_, **__: CommitOutcomes())


def one_id_for_two_tasks() -> AbstractContextManager[Any]:
    def acquire(self: WorkerIds, plan: TransactionPlan, run: str, *_: Any) -> Any:
        return TransactionalId(plan.key, run, self.token, 0, plan.state.generation), True

    def was_committed(producer: KafkaProducer) -> bool:
        producer.describe_last_transaction()
        return True

    return all_of(
        patch.object(WorkerIds, "acquire", acquire),
        patch.object(WorkerIds, "acquire_used", lambda *_: None),
        patch.object(WorkerIds, "retire", lambda *_: None),
        patch.object(transactional_producers, "_was_committed", was_committed),
    )


def a_prepared_producer_aborts_as_it_closes() -> AbstractContextManager[Any]:
    true = KafkaProducer.prepare

    def prepare(self: KafkaProducer) -> Any:
        prepared = true(self)
        self.forget_prepared()
        self.init_transactions()
        return prepared

    return patch.object(KafkaProducer, "prepare", prepare)
