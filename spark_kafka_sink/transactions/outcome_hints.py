"""The advice in an error about a decided batch with an unknown outcome.

The text depends on the outcomes of the batch's transactions. This module sends no request, and does
not find out the outcomes: ``outcomes.py`` and ``ending.py`` do that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spark_kafka_sink.transactions.ending import CommitOutcomes
from spark_kafka_sink.transactions.transactional_ids import is_of_rows, parse, prefix_of_key

NOTHING_UNDONE: Final = (
    "nothing was undone: start the query again, and it resolves the batch; for a job without "
    "txnAppId 'kprod txn commit' does, and another run writes all rows again"
)


def hint_for(ended: CommitOutcomes, key: str, number: int, of: int) -> str:
    """Creates the hint for the error that a decided batch could not be committed completely.

    * ``key``, ``number``: the key and the number of the batch.
    * ``of``: how many transactions the batch has.
    * ``ended``: the outcomes of these transactions.
    """
    lost, unknown = len(ended.lost), len(ended.unknown)
    committed = of - lost - unknown - len(ended.unclear)
    # (A report is committed last, so it can time out beside rows without an outcome.)
    are_rows = any(map(is_of_rows, ended.lost))
    if ended.overdue:
        then = (
            f"'kprod txn commit {key}' then ends the batch, or shows how an operator ends it"
            if committed or unknown
            else "the next start writes the batch again"
        )
        return (
            f"{len(ended.overdue)} of them are open for longer than kafka.transaction.timeout.ms, "
            "and the broker has not aborted them: if it never does, no start resolves the batch. "
            f"Stop the query, then 'kprod txn abort {_named(ended.overdue, key)} --force' aborts "
            f"them, and {then}"
        )
    if not unknown:
        aborted = f"; brokers have aborted {lost} others, " if lost else ""
        if lost and committed:
            aborted += "whose rows are missing" if are_rows else "which have no rows"
        elif lost:
            aborted += "so a start aborts the rest, too, if it is not committed by then"
        return (
            f"brokers or a partition's leader were away, or this driver was paused; "
            f"{NOTHING_UNDONE}{aborted}"
        )
    if ended.expired:
        why = f"{unknown} transactional ids have expired (transactional.id.expiration.ms)"
    else:
        why = (
            f"{unknown} transactional ids were initialized again, or their broker describes an "
            "abort otherwise than Apache Kafka ('kprod check --exactly-once' shows whether it does)"
        )
    if ended.unclear:
        why += f", and {len(ended.unclear)} others are not ended"
    rest = "the rest of its rows is visible" if are_rows or committed else "its rows are visible"
    missing = f"look whether {rest}"
    if lost:
        rows = "whose rows are missing in either case" if are_rows else "which have no rows"
        missing = f"brokers have aborted {lost} others, {rows}; {missing}"
    twice = ""
    if committed:
        missing = f"{committed} others are committed; {missing}"
        twice = " (the rows that are visible come twice)"
    return (
        f"{why}, so no restart can resolve the batch; {missing}, then "
        f"continue with 'kprod txn resolve {key} --batch {number} --as done --force' if they are, "
        f"or with '--as replay', which has the batch written again{twice}, if they are not"
    )


def _named(ids: Sequence[str], key: str) -> str:
    """Returns the arguments with which ``kprod txn abort`` ends the transactions in ``ids``. These
    transactions must all be of one run. The arguments are the prefix of ``key``, and the run in the
    first id. If the first id can't be parsed, this id is the only argument.
    """
    found = parse(ids[0])
    return ids[0] if found is None else f"--prefix {prefix_of_key(key)} --run {found.run}"
