"""A result's field and the type of its exception name the same rows, for each reason."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest

from spark_kafka_sink.base.errors import (
    CommitError,
    CommitLogError,
    CommitOutcomeUnknownError,
    KafkaError,
    KafkaTimeoutError,
    PartialCommitError,
    SupersededError,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.batches import Batch, Block
from spark_kafka_sink.transactions.commit_state import (
    CommitState,
    Decision,
    Done,
    LogChangedError,
    LogOutcomeUnknownError,
    Payload,
)
from spark_kafka_sink.transactions.ending import CommitOutcomes
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.result_errors import error_of
from spark_kafka_sink.transactions.results import (
    BatchBefore,
    Commit,
    Fate,
    InPart,
    NotFinished,
    Raised,
    Reason,
    Refuse,
    Visible,
    raised,
)
from spark_kafka_sink.transactions.steps import (
    CommitBatch,
    Decide,
    EndAll,
    Failure,
    Goal,
    Open,
    RollForward,
    Step,
    View,
    Write,
    Writing,
    opened,
    with_failure,
)
from spark_kafka_sink.transactions.table import MOST_UNCLEAR, next_step

TIMEOUT = KafkaTimeoutError("no answer", hint="see which brokers are down")
REASONS: tuple[type[Reason], ...] = get_args(Reason)
VALUES = {
    "int": 7, "int | None": 7, "str": "one", "bool": True, "tuple[str, ...]": ("one", "two"),
    "KafkaError": TIMEOUT, "KafkaTimeoutError": TIMEOUT, "Fate": Fate.NOT_ENDED,
    "CommitOutcomes": CommitOutcomes(unclear=("one",)),
    "Refuse": Refuse(Commit.PARTIAL, InPart(6, 2, ("one",))),
}  # fmt: skip
TYPES: dict[Commit, type[KafkaError]] = {
    Commit.NOT_VISIBLE: CommitError,
    Commit.SUPERSEDED: SupersededError,
    Commit.PARTIAL: PartialCommitError,
    Commit.UNKNOWN: CommitOutcomeUnknownError,
}
TRANSACTION = PreparedTransaction("p~a~g1.w~0", 7, 3, 2)
DECISION = Decision(0, (TRANSACTION,))
COMMIT = CommitBatch(Owner("p", "a", "q", 1), Batch(0, (TRANSACTION,)))


def filled(reason: type[Reason]) -> Reason:
    return reason(**{one.name: VALUES[str(one.type)] for one in fields(reason)})


@pytest.mark.parametrize("how", TYPES)
@pytest.mark.parametrize("reason", [one for one in REASONS if one is not Raised])
def test_the_end_alone_decides_the_type(reason: type[Reason], how: Commit) -> None:
    """A reason only adds a text, so that no text contradicts the field."""
    error = error_of("p", Refuse(how, filled(reason)))
    assert error.message
    assert error.hint
    assert isinstance(error, TYPES[how]) or type(error) is KafkaTimeoutError


@pytest.mark.parametrize(("how", "kind"), TYPES.items())
def test_an_error_of_a_step_keeps_what_its_type_names(how: Commit, kind: type[KafkaError]) -> None:
    error = kind("a step has failed")
    assert raised(error) == Refuse(how, Raised(error))
    assert error_of("p", raised(error)) is error


def test_each_end_names_its_rows() -> None:
    successes = (Commit.COMMITTED, Commit.ALREADY_DONE, Commit.EMPTY, Commit.PREPARED)
    assert [how.visible for how in successes] == [
        Visible.ALL, Visible.NONE, Visible.NONE, Visible.LATER
    ]  # fmt: skip
    assert {how: how.visible for how in TYPES} == {
        Commit.NOT_VISIBLE: Visible.NONE,
        Commit.SUPERSEDED: Visible.NONE,
        Commit.PARTIAL: Visible.SOME,
        Commit.UNKNOWN: Visible.UNKNOWN,
    }
    assert set(Commit) == {*successes, *TYPES, Commit.NOT_REACHED}


def test_a_damaged_log_does_not_deny_a_decision() -> None:
    """A decision had no answer, the next attempt was shut out, and then the log can't be read."""
    decide = Decide(CommitState(1, "a", "q").decided(DECISION))
    view = with_failure(View(), decide, Failure.UNCLEAR, TIMEOUT, 0)
    view = with_failure(opened(view, CommitState(), 0), decide, Failure.SHUT_OUT, SHUT_OUT, 0)
    view = with_failure(view, Open(), Failure.FINAL, CommitLogError("damaged"), 0)
    step = next_step(COMMIT, view)
    assert isinstance(step, Refuse)
    assert step.how is Commit.UNKNOWN


SHUT_OUT = LogChangedError("others have opened the key")
NO_ANSWER = LogOutcomeUnknownError("no answer")
DECIDED = CommitState(1, "a", "q").decided(DECISION)
NEXT = CommitBatch(Owner("p", "a", "q", 1), Batch(1, (TRANSACTION,)))


def end_after(goal: Goal, step: Step, how: Failure, error: KafkaError) -> Refuse:
    """The end of ``goal`` when ``step`` fails so with a decision in the log, until its time is
    over.
    """
    view = opened(View(openings=99), DECIDED, 0)
    end = next_step(goal, with_failure(view, step, how, error, 0))
    assert isinstance(end, Refuse)
    return end


@pytest.mark.parametrize(
    ("step", "how", "error"),
    [
        (EndAll(DECISION), Failure.FINAL, TIMEOUT),
        (Write(DECIDED.finished(), Writing.DONE), Failure.UNCLEAR, NO_ANSWER),
    ],
    ids=["its transactions are not ended", "that is not recorded"],
)
def test_a_batch_that_another_one_stops_is_not_visible(
    step: Step, how: Failure, error: KafkaError
) -> None:
    """The outcome of the batch before is no outcome of this one."""
    end = end_after(NEXT, step, how, error)
    assert end.how is Commit.NOT_VISIBLE
    assert isinstance(end.reason, BatchBefore)
    assert end.reason.by.how is Commit.UNKNOWN
    assert "batch 0 of 'p' is decided" in error_of("p", end).message
    assert end_after(COMMIT, step, how, error) == end.reason.by


def test_a_roll_forward_that_is_shut_out_is_not_told_as_superseded() -> None:
    """A SupersededError would say that no row of it is visible."""
    done = Write(DECIDED.finished(), Writing.DONE)
    end = end_after(RollForward("p"), done, Failure.SHUT_OUT, SHUT_OUT)
    assert end.how is Commit.UNKNOWN
    assert isinstance(end.reason, NotFinished)
    assert end.reason.fate is Fate.ENDED


@pytest.mark.parametrize(("last_done", "how"), [(-1, Commit.NOT_VISIBLE), (0, Commit.UNKNOWN)])
def test_a_write_of_a_done_block_is_not_told_as_not_visible(last_done: int, how: Commit) -> None:
    """Its rows are visible since the block was done; whether it is recorded again is not known."""
    state = CommitState(1, "a", "q", last_done, done=(Done(0, (Payload(1),)),))
    write = CommitBatch(
        Owner("p", "a", "q", 1, Numbering.MICRO_BATCHES),
        Batch(0, (), Payload(1), block=Block("block")),
    )
    view = opened(View(openings=MOST_UNCLEAR), state, 0)
    step = Write(state, Writing.OWNED, Commit.ALREADY_DONE)
    end = next_step(write, with_failure(view, step, Failure.UNCLEAR, NO_ANSWER, 0))
    assert isinstance(end, Refuse)
    assert end.how is how
