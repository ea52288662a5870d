"""The time limits of a decision to commit a batch: the *margin* and the *lease*. Both are pure
functions of transaction.timeout.ms.

The *margin* is the time that is reserved for the commit of a decided batch. A broker aborts a
transaction that is older than its ``timeout``. So a batch may be decided only if each of its
transactions is younger than ``timeout - margin``.

The *lease* limits the time between this check and the moment when the decision takes effect. It is
the timeout of the transaction that writes the decision to the log, and begins before the check.
EndTxn of this transaction may be late, for example because the driver was stopped, or because the
coordinator was unavailable. If the coordinator has aborted the transaction meanwhile, the decision
never takes effect. (It scans for old transactions only from time to time. The lease is short enough
for one late scan.)
"""

from __future__ import annotations

from typing import Final

#: The part of a transaction's timeout that must be left for the commit: 10 %, and at least 30 s.
_MARGIN_MS: Final = 30_000
#: Kafka's transaction.abort.timed.out.transaction.cleanup.interval.ms: a broker may abort a
#: transaction this much later than its timeout.
_SCAN_MS: Final = 10_000
_LONGEST_MS: Final = 15_000


def margin_ms(timeout_ms: int) -> int:
    """The part of transaction.timeout.ms that remains for the driver's commit, in milliseconds.

    It is a tenth of transaction.timeout.ms, but at least 30 s. If 30 s are more than half of
    transaction.timeout.ms, it is that half. These numbers are not measured: they were chosen by
    judgement.
    """
    return max(timeout_ms // 10, min(_MARGIN_MS, timeout_ms // 2))


def lease_ms(timeout_ms: int) -> int:
    """The timeout of the log's transaction with a decision, in milliseconds.

    It is half of (margin - 10 s), but at least 1 s and at most 15 s. The 10 s are reserved for a
    coordinator that aborts an old transaction late. If transaction.timeout.ms is below
    ``cross_checks.SHORT_TIMEOUT_MS``, the margin is too short for that. Then a decision may take
    effect after its transactions have timed out.
    """
    return max(1_000, min(_LONGEST_MS, (margin_ms(timeout_ms) - _SCAN_MS) // 2))
