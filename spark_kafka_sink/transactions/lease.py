"""The time limits of a decision to commit a batch: the *margin* and the *lease*. Both are pure
functions of transaction.timeout.ms.

The *margin* is the time that a decided batch needs for its commit. A broker aborts a transaction
that is older than its ``timeout``. So a batch may be decided only if each of its transactions is
younger than ``timeout - margin``. Then there is time to commit them.

The *lease* limits the time between this check and the moment when the decision takes effect. The
driver may stop in between (a SIGSTOP, a migrating VM, an unavailable coordinator), and the
transactions become older meanwhile. So the decision is written to the log in a transaction whose
timeout is the lease. The lease begins before the check. If the log's EndTxn arrives too late, the
coordinator has aborted the log's transaction, and the decision never takes effect. (The coordinator
scans for old transactions only from time to time. The lease is short enough for one late scan.)
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

    It is half of (margin - 10 s), but at most 15 s and at least 1 s. The 10 s are for a late scan
    of the coordinator. If transaction.timeout.ms is below ``cross_checks.SHORT_TIMEOUT_MS``, the
    margin is too short, and the lease of 1 s does not guarantee that a late decision fails.
    """
    return max(1_000, min(_LONGEST_MS, (margin_ms(timeout_ms) - _SCAN_MS) // 2))
