"""Orphans: transactions that a dead, killed or beaten task attempt left open.

Owns: :class:`Sweeper`, which of them are ours to end. Never: the fence that must come before
(``ownership.py``).

An orphan stalls every read_committed consumer of its partitions until its time is over. It is ended
by InitProducerId, not by EndTxn(abort): its writer may be alive for a moment longer, and must not
open the next transaction under the same epoch (version 1 does not raise it).

For the same reason ids are fenced that are Empty: an attempt got its identity, and its first rows
may be on their way. Seen on a real broker, with version 2, where a Produce opens the transaction::

    attempt 0: InitProducerId, Produce (delayed)      its process is killed
    attempt 1: writes, prepares; the driver commits and sweeps: attempt 0 is not Ongoing
    attempt 0's Produce arrives: a transaction is open that nobody ends before its time is over
"""

from __future__ import annotations

from collections.abc import Collection

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.producer.transaction_states import ProducerIdAndEpoch
from spark_kafka_sink.protocol.messages import InitProducerIdResponse
from spark_kafka_sink.protocol.transaction_admin_messages import TransactionState
from spark_kafka_sink.transactions.coordinators import Coordinators
from spark_kafka_sink.transactions.transactional_ids import parse

#: Fenced ids that are remembered, the ones fenced last.
_REMEMBERED = 10_000


class Sweeper:
    """Remembers, for as long as one process keeps its connections, what it has fenced: an id that
    is Empty since then need not be fenced in each micro-batch.
    """

    def __init__(self, coordinators: Coordinators) -> None:
        self._coordinators = coordinators
        #: The identity that fencing gave an id.
        self._fenced: dict[str, ProducerIdAndEpoch] = {}

    def runs(self, prefix: str, deadline_ms: int) -> set[str]:
        """Run ids of streams that have something open under ``prefix``, or may have soon."""
        listed = self._coordinators.open_transactions(prefix, deadline_ms, idle=True)
        found = (parse(one.transactional_id) for one in listed)
        return {i.run for i in found if i is not None and i.prefix == prefix and i.worker}

    def sweep(
        self,
        prefix: str,
        runs: Collection[str],
        deadline_ms: int,
        *,
        keep: Collection[str] = (),
    ) -> tuple[str, ...]:
        """End what is open under ``prefix`` of these ``runs`` (run ids, or a job's uuid), but
        ``keep``.

        Gives the ids whose transaction was ended. The ids of others are never touched: "a" is not
        "a.b".
        """
        orphans, idle = [], []
        for listed in self._coordinators.open_transactions(prefix, deadline_ms, idle=True):
            transactional_id = listed.transactional_id
            found = parse(transactional_id)
            if found is None or found.prefix != prefix or found.run not in runs:
                continue
            if transactional_id in keep:
                continue
            if listed.state is TransactionState.EMPTY:
                idle.append(transactional_id)
            else:
                orphans.append(transactional_id)
        idle = self._used_again(idle, deadline_ms)
        if not orphans and not idle:
            return ()
        answers = self._coordinators.fence([*orphans, *idle], deadline_ms)
        ended = []
        for transactional_id, answer in answers.items():
            if answer is None or answer.error is not ErrorCode.NONE:
                continue
            ended.append(transactional_id)
            self._remember(transactional_id, answer)
        return tuple(i for i in orphans if i in ended)

    def _used_again(self, idle: list[str], deadline_ms: int) -> list[str]:
        """Without those that nobody has touched since they were fenced."""
        known = [i for i in idle if i in self._fenced]
        if not known:
            return idle
        now = self._coordinators.describe(known, deadline_ms)
        untouched = {
            i for i, d in now.items() if (d.producer_id, d.producer_epoch) == self._fenced[i]
        }
        return [i for i in idle if i not in untouched]

    def _remember(self, transactional_id: str, answer: InitProducerIdResponse) -> None:
        self._fenced.pop(transactional_id, None)
        self._fenced[transactional_id] = ProducerIdAndEpoch(
            answer.producer_id, answer.producer_epoch
        )
        while len(self._fenced) > _REMEMBERED:
            del self._fenced[next(iter(self._fenced))]
