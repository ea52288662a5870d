"""Orphans: transactions that a dead, killed or beaten task attempt left open.

Owns: :class:`Sweeper`, which of them are ours to end. Never: who may decide about them
(``ownership.py``): a transaction may be swept when no decision names it, and when its run can't
decide any more, or asks for it itself.

An orphan stalls every read_committed consumer of its partitions until it times out. It is ended
under exactly the identity that its coordinator tells (``TransactionClient.abort_exactly``), so that
a request which arrives late hurts nobody who has the id by then.

With version 2 ids are ended, too, that are Empty: an attempt got its identity, and its first rows
may be on their way. Seen on a real broker, where a Produce opens the transaction::

    attempt 0: InitProducerId, Produce (delayed)      its process is killed
    attempt 1: writes, prepares; the driver commits and sweeps: attempt 0 is not Ongoing
    attempt 0's Produce arrives: a transaction is open that nobody ends before it times out

What was ended so is CompleteAbort, and is not found again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_sink.error_kinds import Kind
from spark_kafka_sink.errors import ErrorCode, warn
from spark_kafka_sink.protocol.transaction_admin_messages import (
    TransactionDescription,
    TransactionState,
)
from spark_kafka_sink.transactions.commit_state import CommitState, Standing
from spark_kafka_sink.transactions.transactional_ids import SEPARATOR, TransactionalId, parse

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

_log = logging.getLogger(__name__)

_S = TransactionState


class Swept(NamedTuple):
    """``ended`` are transactional ids whose transaction was aborted. ``burnt`` are those that must
    not be used again (version 1: a request, also one without an answer, may arrive late, and aborts
    what they have open then).
    """

    ended: tuple[str, ...] = ()
    burnt: tuple[str, ...] = ()


class Sweeper:
    """Sweeps what is open under one key."""

    def __init__(self, client: TransactionClient) -> None:
        self._client = client

    def open_runs(
        self, key: str, deadline_ms: int, mine: Callable[[TransactionalId], bool]
    ) -> set[str]:
        """Runs that have a transaction open under ``key`` that is ``mine``. Who asks acts upon it
        once, so a broker that is silent is waited for.
        """
        return {
            one.run
            for one, state in self._listed(key, deadline_ms, patient=True).items()
            if state is _S.ONGOING and mine(one)
        }

    def sweep(
        self,
        key: str,
        is_orphan: Callable[[TransactionalId], bool],
        deadline_ms: int,
        *,
        keep: Collection[str] = (),
        patient: bool = False,
    ) -> Swept:
        """End what is open under ``key`` and ``is_orphan``, but ``keep``. Ids of other keys are
        never touched: "a" is not "a.b". ``patient`` as in ``TransactionClient.open_transactions``.
        """
        version = self._client.transaction_version(deadline_ms)
        endable = (_S.ONGOING, _S.EMPTY) if version >= 2 else (_S.ONGOING,)
        ids = [
            str(one)
            for one, state in self._listed(key, deadline_ms, patient=patient).items()
            if state in endable and str(one) not in keep and is_orphan(one)
        ]
        if not ids:
            return Swept()
        described = self._client.describe(ids, deadline_ms)
        found = {i: d for i, d in described.items() if d.state in endable and is_known(d)}
        answers = self._client.abort_exactly(found, deadline_ms)
        unclear = [
            i for i, code in answers.items() if code is None and found[i].state is _S.ONGOING
        ]
        if unclear:
            warn(
                _log,
                Kind.ORPHANS_UNSEEN,
                "kprod '%s': no clear answer in time to the abort of %d orphaned transactions "
                "(first: %s); what is open of them is aborted by a later commit, or when it times "
                "out",
                key,
                len(unclear),
                unclear[0],
            )
        done = [i for i, code in answers.items() if code is ErrorCode.NONE]
        ended = tuple(i for i in done if found[i].state is _S.ONGOING)
        return Swept(ended, () if version >= 2 else tuple(found))

    def _listed(
        self, key: str, deadline_ms: int, *, patient: bool
    ) -> dict[TransactionalId, TransactionState]:
        """Ongoing and Empty ids of exactly this key."""
        found = self._client.open_transactions(
            key + SEPARATOR, deadline_ms, idle=True, patient=patient
        )
        if found.silent:
            warn(
                _log,
                Kind.ORPHANS_UNSEEN,
                "kprod '%s': orphaned transactions could not be looked for at %s, which gave no "
                "answer; what is open there is aborted by a later commit, or when it times out",
                key,
                ", ".join(found.silent),
            )
        parsed = ((parse(one.transactional_id), one.state) for one in found.transactions)
        return {one: state for one, state in parsed if one is not None and one.key == key}


def is_superseded(one: TransactionalId, state: CommitState) -> bool:
    """Its run never decides about it any more."""
    return state.standing(one.run, one.planned) is Standing.SUPERSEDED


def is_known(found: TransactionDescription) -> bool:
    """Its coordinator holds an identity."""
    return found.error is ErrorCode.NONE and found.producer_id >= 0
