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
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import CommitState, Decision, LogChangedError
from spark_kafka_sink.transactions.ending import CommitOutcomes
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.result_errors import error_of
from spark_kafka_sink.transactions.results import (
    Commit,
    Fate,
    Raised,
    Reason,
    Refuse,
    Visible,
    raised,
)
from spark_kafka_sink.transactions.steps import (
    CommitBatch,
    Decide,
    Failure,
    Open,
    View,
    opened,
    with_failure,
)
from spark_kafka_sink.transactions.table import next_step

TIMEOUT = KafkaTimeoutError("no answer", hint="see which brokers are down")
REASONS: tuple[type[Reason], ...] = get_args(Reason)
VALUES = {
    "int": 7, "int | None": 7, "str": "one", "bool": True, "tuple[str, ...]": ("one", "two"),
    "KafkaError": TIMEOUT, "KafkaTimeoutError": TIMEOUT, "Fate": Fate.NOT_ENDED,
    "CommitOutcomes": CommitOutcomes(unclear=("one",)),
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
