"""Broken protocols: what a review of 24 November 2026 tried (x1 to x4), its findings about blocks,
operators and restarts (f1 to f7), and those of random lives (x6 to x8), put back.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.datasource import foreach_batch
from spark_kafka_sink.datasource.exactly_once import transaction_plan
from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint
from spark_kafka_sink.datasource.exactly_once.named_writes import NamedWrites
from spark_kafka_sink.transactions import batches, committer, deciding, ending, table
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, Part, Payload
from spark_kafka_sink.transactions.committer import Committer
from spark_kafka_sink.transactions.results import OtherRows, Refuse, refused
from tests.simulation.mutant import all_of, with_row_text, with_text


def _blocks_have_no_token() -> AbstractContextManager[Any]:
    def parts_by(self: CommitState, number: int, token: str) -> tuple[Part, ...]:
        return self.parts if self.parts_of == number else ()

    return patch.object(CommitState, "parts_by", parts_by)


def x1_parts_of_a_dead_run_survive() -> AbstractContextManager[Any]:
    """The next run decides with what a dead run's block has recorded."""
    true = CommitState.taken_over

    def taken_over(self: CommitState, *given: Any) -> CommitState:
        return replace(true(self, *given), parts_of=self.parts_of, parts=self.parts)

    return all_of(_blocks_have_no_token(), patch.object(CommitState, "taken_over", taken_over))


def x2_a_block_decides_what_is_recorded() -> AbstractContextManager[Any]:
    """Neither the function's process nor the committer looks whether a write is missing."""

    def decision(batch: Batch, state: CommitState) -> Decision:
        if batch.block is None:
            payloads: tuple[Payload, ...] = (batch.payload or Payload(),)
            return Decision(batch.number, batch.transactions, payloads, batch.digest)
        parts = state.parts_by(batch.number, batch.block.token)
        transactions = tuple(t for part in parts for t in part.transactions)
        payloads = tuple(part.payload for part in parts)
        return Decision(batch.number, transactions, payloads, batch.digest)

    return all_of(
        patch.object(table, "decision_of", decision),
        patch.object(foreach_batch.Transaction, "_refuse_failed", lambda _: None),
        with_text(foreach_batch.Transaction, "commit", "failure is not None", "False"),
    )


def x3_undo_does_not_look_again() -> AbstractContextManager[Any]:
    """Another driver may have committed one meanwhile: a coordinator's refusal is an answer."""
    true = ending.undo

    def undo(*given: Any) -> bool:
        true(*given)
        return True

    return patch.object(ending, "undo", undo)


def x4_undo_ignores_what_is_committed() -> AbstractContextManager[Any]:
    return all_of(
        x3_undo_does_not_look_again(), patch.object(ending, "_lost_or_open", lambda *_: True)
    )


def x6_a_commit_does_not_look_again() -> AbstractContextManager[Any]:
    """It may commit what another driver is about to undo."""
    true, ends = ending._next, ending.end_decided

    def next_(*given: Any, **named: Any) -> Any:
        found, look = true(*given, **named)
        return (ending.Ending.FINISH if found is ending.Ending.COMMIT else found), look

    def end_decided(*given: Any, checked_until_ms: int, **how: Any) -> Any:
        return ends(*given, checked_until_ms=checked_until_ms and NEVER, **how)

    return all_of(
        patch.object(ending, "_next", next_), patch.object(committer, "end_decided", end_decided)
    )


def x7_one_that_moves_counts_as_old() -> AbstractContextManager[Any]:
    """An id without a known age is undone."""
    true = TransactionClient.older_than

    def older_than(self: TransactionClient, *given: Any, **_: Any) -> Any:
        return true(self, *given)

    return patch.object(TransactionClient, "older_than", older_than)


def x8_a_fence_of_the_drivers_own_is_bare() -> AbstractContextManager[Any]:
    return with_text(
        deciding, "_prepared_by_us", "(ProducerFencedError, InvalidTxnStateError)", "()"
    )


def f1_whoever_looks_judges_by_his_own_time_out() -> AbstractContextManager[Any]:
    true = ending.near_timeout

    def near_timeout(
        client: TransactionClient,
        found: Mapping[str, Any],
        margin_of: Any,
        deadline_ms: int,
        **named: Any,
    ) -> frozenset[str]:
        timeout_ms = client.config.transaction_timeout_ms
        own = {one: replace(d, timeout_ms=timeout_ms) for one, d in found.items()}
        return true(client, own, margin_of, deadline_ms, **named)

    return all_of(
        patch.object(ending, "near_timeout", near_timeout),
        patch.object(deciding, "near_timeout", near_timeout),
        _operators_undo(),
    )


def _operators_undo() -> AbstractContextManager[Any]:
    true = Committer.roll_forward
    return patch.object(Committer, "roll_forward", lambda self, *given, **_: true(self, *given))


def f1_an_operators_commit_aborts_what_is_not_lost() -> AbstractContextManager[Any]:
    """What is about to time out, as a start does."""
    return _operators_undo()


def f2_blocks_of_one_name_are_mixed() -> AbstractContextManager[Any]:
    return all_of(
        patch.object(NamedWrites, "open", lambda *_: nullcontext()), _blocks_have_no_token()
    )


def f2_another_block_of_a_number_counts_as_done() -> AbstractContextManager[Any]:
    return patch.object(NamedWrites, "check", lambda *_, **__: None)


def f3_the_writes_of_a_block_have_an_order() -> AbstractContextManager[Any]:
    true = batches.payload_refusal

    def refusal(batch: Batch, state: CommitState, name: str = "") -> Refuse | None:
        done = state.done_batch(batch.number)
        block, payload = batch.block, batch.payload
        if done is None or block is None or payload is None or (batch.digest and done.digest):
            return true(batch, state, name)
        nth = len(state.parts_by(batch.number, block.token))
        if block.writes is None and payload != [*done.payloads, Payload()][nth]:
            return refused(OtherRows(batch.number, "these rows", "others"))
        return None

    return patch.object(batches, "payload_refusal", refusal)


def f4_a_write_of_a_block_may_have_any_option() -> AbstractContextManager[Any]:
    return patch.object(foreach_batch, "_check_of_one_write", lambda *_: None)


def f5_any_checkpoint_is_taken_for_the_querys() -> AbstractContextManager[Any]:
    return patch.object(Checkpoint, "check", lambda *_: None)


def f5_a_group_may_have_members() -> AbstractContextManager[Any]:
    return patch.object(transaction_plan, "refuse_members", lambda *_: None)


def f7_each_batch_has_a_run_of_its_own() -> AbstractContextManager[Any]:
    return patch.object(NamedWrites, "run", lambda *_: uuid.uuid4().hex)


def a_batch_is_known_by_its_rows_alone() -> AbstractContextManager[Any]:
    """A copied checkpoint with as many rows and bytes passes, a query with uuid() does not."""
    return patch.object(Checkpoint, "known_digest", lambda *_: "")


def offsets_are_committed_without_the_rows() -> AbstractContextManager[Any]:
    """And a report, too: what the driver prepares is not part of the decision."""
    given, broken = "decision.transactions + view.own", "decision.transactions or view.own"
    return with_row_text("it_is_to_be_decided", given, broken)
