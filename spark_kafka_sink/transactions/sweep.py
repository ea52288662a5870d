"""Finds and aborts orphans: transactions that a crashed, killed or superseded task attempt left
open. An orphan blocks every read_committed consumer of its partitions until it times out.

Two kinds of open transactions may be orphans. Exception: a transaction is not aborted if the
decision in the commit log names it.

* Transactions of a run that can't commit any more (``CommitState.standing``).
* Transactions of the run that performs the sweep.

With transactions of version 2, this module also sends EndTxn(abort) for ids of these runs that are
in the state Empty, without an open transaction. This fences the id's producer: a delayed Produce of
a killed attempt can't open a transaction any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ErrorCode, warn
from spark_kafka_sink.transactions.commit_state import CommitState, Standing
from spark_kafka_sink.transactions.steps import Sweep
from spark_kafka_sink.transactions.transactional_ids import SEPARATOR, TransactionalId, parse

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

_log = logging.getLogger(__name__)

_S = TransactionState


def open_ids(
    client: TransactionClient, key: str, deadline_ms: int, mine: Callable[[TransactionalId], bool]
) -> set[TransactionalId]:
    """Returns the ids of the open transactions of ``key`` for which ``mine`` returns True.

    Brokers that don't respond are tried again for some seconds. If a broker still does not respond,
    its transactions are missing in the result, and a warning is logged.
    """
    return {
        one
        for one, state in _listed(client, key, deadline_ms, patient=True).items()
        if state is _S.ONGOING and mine(one)
    }


def sweep(
    client: TransactionClient,
    key: str,
    is_orphan: Callable[[TransactionalId], bool],
    deadline_ms: int,
    *,
    keep: Collection[str] = (),
    spared: str = "",
    patient: bool = False,
) -> tuple[tuple[str, ...], bool]:
    """Aborts the open transactions of ``key`` for which ``is_orphan`` returns True, except the ids
    in ``keep``. Returns two values:

    * The ids of the aborted transactions.
    * Whether the run ``spared`` has an open transaction that is not in ``keep``. (``spared`` is
      only used for this value. To spare this run, ``is_orphan`` must return False for its
      transactions.)

    With transactions of version 2, ids in the state Empty are treated like open transactions, but
    are not in the first value.

    With ``patient``, brokers that can't be reached are tried again for some seconds. If a broker
    does not respond, its transactions stay open, and a warning is logged.
    """
    version = client.transaction_version(deadline_ms)
    # With version 2, the first Produce of an attempt opens its transaction. Until then, the id is
    # Empty. Seen on a real broker:
    #   1. Attempt 0 sends InitProducerId and Produce. Produce is delayed. Its process is killed.
    #   2. Attempt 1 writes and prepares. The driver commits and sweeps: attempt 0 is not Ongoing.
    #   3. Attempt 0's Produce arrives. It opens a transaction that stays open until it times out.
    # After the abort, the id is in the state CompleteAbort. So later sweeps don't find it again.
    endable = (_S.ONGOING, _S.EMPTY) if version >= 2 else (_S.ONGOING,)
    open_ = _listed(client, key, deadline_ms, patient=patient)
    left = [one for one, state in open_.items() if state in endable and str(one) not in keep]
    is_left_open = any(one.run == spared for one in left)
    ids = [str(one) for one in left if is_orphan(one)]
    if not ids:
        return (), is_left_open
    described = client.describe(ids, deadline_ms)
    found = {
        i: d
        for i, d in described.items()
        if d.state in endable and d.error is ErrorCode.NONE and d.producer_id >= 0
    }
    # (With version 2, this sends EndTxn with the described producer id and epoch. If the id has a
    # newer epoch by then, EndTxn has no effect. With version 1, this sends InitProducerId, which
    # aborts any open transaction of the id. This is safe: no task uses the id of an orphan again,
    # see ``transactional_producers.py``.)
    answers = client.abort_exactly(found, deadline_ms)
    unclear = [i for i, code in answers.items() if code is None and found[i].state is _S.ONGOING]
    if unclear:
        first = f"{len(unclear)} orphaned transactions (first: {unclear[0]})"
        warn_unseen(key, f"no clear answer in time to the abort of {first}")
    done = [i for i, code in answers.items() if code is ErrorCode.NONE]
    return tuple(i for i in done if found[i].state is _S.ONGOING), is_left_open


def _listed(
    client: TransactionClient, key: str, deadline_ms: int, *, patient: bool
) -> dict[TransactionalId, TransactionState]:
    """Requests the transactional ids of ``key`` that are in the state Ongoing or Empty, from all
    brokers. Returns the state by id.

    If a broker does not respond, its transactions are missing, and a warning is logged.
    """
    found = client.open_transactions(key + SEPARATOR, deadline_ms, idle=True, patient=patient)
    if found.silent:
        silent = f"{', '.join(found.silent)}, which did not respond"
        warn_unseen(key, f"orphaned transactions could not be searched on {silent}")
    parsed = (
        (parse(one.transactional_id), TransactionState(one.transaction_state))
        for one in found.transactions
    )
    return {one: state for one, state in parsed if one is not None and one.key == key}


def warn_unseen(key: str, what: str) -> None:
    """Logs a warning that some orphans of ``key`` may still be open. ``what`` is the reason, a
    sentence such as "orphaned transactions could not be searched".
    """
    warn(
        _log,
        Kind.ORPHANS_UNSEEN,
        "kprod '%s': %s; those that are still open are aborted by a later commit, or time out",
        key,
        what,
    )


def is_orphan(one: TransactionalId, step: Sweep, state: CommitState) -> bool:
    """Whether the step ``step`` may abort the open transaction with the transactional id ``one``.
    True in two cases:

    * The run of the transaction is one of ``step.runs``, and the batch was planned at generation
      ``step.planned`` or earlier.
    * ``step.superseded`` is True, and the run can't commit the transaction any more
      (``CommitState.standing``). Exception: the run ``step.spared``.

    The caller must exclude the transactions of the decision in ``state``, because this function
    does not check them.
    """
    if one.run in step.runs and one.planned <= step.planned:
        return True
    if not step.superseded or one.run == step.spared:
        return False
    # (Another process may write a later state before the abort. But a batch that is superseded
    # stays superseded.)
    return state.standing(one.run, one.planned) is Standing.SUPERSEDED
