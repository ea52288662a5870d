"""Orphans: transactions that a dead, killed or beaten task attempt left open.

Owns: which of them are ours to end. Never: the fence that must come before (``committer.py``).

An orphan stalls every read_committed consumer of its partitions until its time is over. It is ended
by InitProducerId, not by EndTxn(abort): its writer may be alive for a moment longer, and must not
open the next transaction under the same epoch (version 1 does not raise it).
"""

from __future__ import annotations

from collections.abc import Collection

from spark_kafka_sink.errors import ErrorCode
from spark_kafka_sink.transactions.coordinators import Coordinators
from spark_kafka_sink.transactions.transactional_ids import parse


def sweep(
    coordinators: Coordinators,
    prefix: str,
    runs: Collection[str],
    deadline_ms: int,
    *,
    keep: Collection[str] = (),
) -> tuple[str, ...]:
    """End what is open under ``prefix`` of these ``runs`` (run ids, or a job's uuid), but ``keep``.

    Gives the ids that were ended. The ids of others are never touched: "a" is not "a.b".
    """
    orphans = []
    for listed in coordinators.open_transactions(prefix, deadline_ms):
        found = parse(listed.transactional_id)
        if found is None or found.prefix != prefix or found.run not in runs:
            continue
        if listed.transactional_id not in keep:
            orphans.append(listed.transactional_id)
    if not orphans:
        return ()
    answers = coordinators.fence(orphans, deadline_ms)
    return tuple(i for i in orphans if answers.get(i) is ErrorCode.NONE)
