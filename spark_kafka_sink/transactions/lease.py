"""Time limits of a decision: pure functions of transaction.timeout.ms.

Owns: the margin of the data's transactions and the lease of the log's. Never: a clock.

A batch is decided while its transactions are open, and they must stay open until they are ended.
Brokers abort a transaction when it is ``timeout`` old, so no transaction of a decision may be older
than ``timeout - margin``.

A decision must not take effect long after its check, even if the driver is delayed in between (by a
SIGSTOP, a migrating VM, an unavailable coordinator). So the decision is written in a transaction of
the log, and the timeout of that transaction is the lease. The lease begins before the check. If the
log's EndTxn does not arrive within the lease and one late scan of the coordinator, the coordinator
aborts the log's transaction, and the decision never takes effect.
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
    """The part of transaction.timeout.ms that is reserved for the driver's commit, in milliseconds.

    It is a tenth of transaction.timeout.ms, but at least 30 s and at most a half. These numbers are
    chosen by judgement.
    """
    return max(timeout_ms // 10, min(_MARGIN_MS, timeout_ms // 2))


def lease_ms(timeout_ms: int) -> int:
    """The longest time between the decision in the log and its EndTxn, in milliseconds.

    First 10 s are subtracted from the margin, for a late scan of the coordinator. The lease is half
    of the rest, but at most 15 s and at least 1 s. If transaction.timeout.ms is below
    ``cross_checks.SHORT_TIMEOUT_MS``, the lease is 1 s, which guarantees nothing.
    """
    return max(1_000, min(_LONGEST_MS, (margin_ms(timeout_ms) - _SCAN_MS) // 2))
