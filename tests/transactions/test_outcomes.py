"""What a doubtful transaction became, going by what its coordinator holds."""

from __future__ import annotations

import pytest

from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import ErrorCode
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.outcomes import Outcome, is_committed, is_prepared, outcome_of

S, Is = TransactionState, Outcome
E = 5


def stored(epoch: int, state: TransactionState, producer_id: int = 70) -> TransactionDescription:
    return TransactionDescription(
        ErrorCode.NONE, "p~r~g2.w~0", state, producer_id=producer_id, producer_epoch=epoch
    )


def written(version: int, epoch: int = E) -> PreparedTransaction:
    return PreparedTransaction("p~r~g2.w~0", 70, epoch, version)


@pytest.mark.parametrize(
    ("version", "epoch", "state", "wanted"),
    [
        (1, E, S.ONGOING, Is.RETRY),
        (1, E, S.PREPARE_COMMIT, Is.RETRY),
        (1, E, S.COMPLETE_COMMIT, Is.COMMITTED),
        (1, E, S.COMPLETE_ABORT, Is.LOST),
        (1, E, S.PREPARE_ABORT, Is.LOST),
        (1, E, S.EMPTY, Is.UNKNOWN),
        (1, E + 1, S.PREPARE_ABORT, Is.LOST),
        (1, E + 1, S.PREPARE_EPOCH_FENCE, Is.LOST),
        (1, E + 1, S.COMPLETE_ABORT, Is.LOST),
        # Another transaction's: version 1 does not raise the epoch by a commit.
        (1, E + 1, S.COMPLETE_COMMIT, Is.UNKNOWN),
        (1, E + 1, S.PREPARE_COMMIT, Is.UNKNOWN),
        (1, E + 1, S.EMPTY, Is.UNKNOWN),
        (1, E + 1, S.ONGOING, Is.UNKNOWN),
        (2, E, S.ONGOING, Is.RETRY),
        (2, E, S.PREPARE_COMMIT, Is.RETRY),
        (2, E + 1, S.PREPARE_COMMIT, Is.RETRY),
        (2, E + 1, S.COMPLETE_COMMIT, Is.COMMITTED),
        (2, E + 1, S.PREPARE_ABORT, Is.LOST),
        (2, E + 1, S.COMPLETE_ABORT, Is.LOST),
        # 4.0.0 raised the epoch twice when a transaction timed out.
        (2, E + 2, S.COMPLETE_ABORT, Is.LOST),
        (2, E + 2, S.COMPLETE_COMMIT, Is.UNKNOWN),
        (2, E + 2, S.EMPTY, Is.UNKNOWN),
        (2, E + 1, S.EMPTY, Is.UNKNOWN),
        (2, E + 3, S.COMPLETE_ABORT, Is.UNKNOWN),
        (2, E - 1, S.COMPLETE_ABORT, Is.UNKNOWN),
        (2, E + 1, S.DEAD, Is.UNKNOWN),
        (2, E + 1, S.UNKNOWN, Is.UNKNOWN),
    ],
)
def test_every_state_that_a_coordinator_can_hold(version, epoch, state, wanted):
    transaction, found = written(version), stored(epoch, state)
    assert outcome_of(transaction, found) is wanted
    on_its_way = wanted is Is.RETRY and state is S.PREPARE_COMMIT
    assert is_committed(transaction, found) == (wanted is Is.COMMITTED or on_its_way)


@pytest.mark.parametrize(
    ("version", "epoch", "now", "state", "wanted"),
    [
        (2, 32_766, 0, S.COMPLETE_COMMIT, Is.COMMITTED),
        (2, 32_766, 0, S.COMPLETE_ABORT, Is.LOST),
        (2, 32_766, 0, S.ONGOING, Is.UNKNOWN),
        (2, 32_766, 1, S.COMPLETE_COMMIT, Is.UNKNOWN),
        (1, 32_766, 0, S.COMPLETE_COMMIT, Is.UNKNOWN),
        (2, E, 0, S.COMPLETE_COMMIT, Is.UNKNOWN),
    ],
)
def test_the_last_epoch_goes_on_under_a_new_producer_id(version, epoch, now, state, wanted):
    assert outcome_of(written(version, epoch), stored(now, state, producer_id=71)) is wanted


def test_an_id_that_expired_is_unknown_and_never_guessed():
    gone = TransactionDescription(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "p~r~g2.w~0")
    assert outcome_of(written(2), gone) is Is.UNKNOWN


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("epoch", [E - 1, E, E + 1])
def test_only_an_open_transaction_of_that_epoch_is_prepared(state, epoch):
    prepared = is_prepared(written(2), stored(epoch, state))
    assert prepared == (state is S.ONGOING and epoch == E)
    assert not is_prepared(written(2), stored(epoch, state, producer_id=71))
