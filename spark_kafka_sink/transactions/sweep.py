"""Orphans: transactions that a dead, killed or beaten task attempt left open.

Owns: which of them are ours to end. Never: the fence that must come before (``committer.py``).

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
from spark_kafka_sink.protocol.transaction_admin_messages import TransactionState
from spark_kafka_sink.transactions.coordinators import Coordinators
from spark_kafka_sink.transactions.transactional_ids import parse


def sweep(
    coordinators: Coordinators,
    prefix: str,
    runs: Collection[str],
    deadline_ms: int,
    *,
    fenced: set[str],
    keep: Collection[str] = (),
) -> tuple[str, ...]:
    """End what is open under ``prefix`` of these ``runs`` (run ids, or a job's uuid), but ``keep``.

    Gives the ids whose transaction was ended. The ids of others are never touched: "a" is not
    "a.b". ``fenced`` is the caller's memory: an Empty id is fenced once, for it stays Empty.
    """
    orphans, idle = [], []
    for listed in coordinators.open_transactions(prefix, deadline_ms, idle=True):
        transactional_id = listed.transactional_id
        found = parse(transactional_id)
        if found is None or found.prefix != prefix or found.run not in runs:
            continue
        if transactional_id in keep:
            continue
        if listed.state is not TransactionState.EMPTY:
            orphans.append(transactional_id)
        elif transactional_id not in fenced:
            idle.append(transactional_id)
    if not orphans and not idle:
        return ()
    answers = coordinators.fence([*orphans, *idle], deadline_ms)
    fenced.update(i for i, answer in answers.items() if answer is ErrorCode.NONE)
    return tuple(i for i in orphans if answers.get(i) is ErrorCode.NONE)
