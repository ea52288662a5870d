"""Time limits of a decision: pure functions of transaction.timeout.ms.

Owns: the margin of the data's transactions and the lease of the log's. Never: a clock.

A batch is decided while its transactions are open, and they must stay open until they are ended.
Brokers abort a transaction when it is ``timeout`` old, so no transaction of a decision may be older
than ``timeout - margin``.

A decision must not be made long after its check, whatever happens to the driver in between (a
SIGSTOP, a migrating VM, an unavailable coordinator). So the decision is written in a transaction of
the log, whose timeout is the lease. The lease begins before the check. The log's EndTxn comes
within the lease and one late scan of the coordinator, or never.
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

    Chosen by judgement: a tenth, and at least 30 s, but never more than half of it.
    """
    return max(timeout_ms // 10, min(_MARGIN_MS, timeout_ms // 2))


def lease_ms(timeout_ms: int) -> int:
    """The longest time between the decision in the log and its EndTxn, in milliseconds.

    Half of the margin after subtracting 10 s for a late scan of the coordinator, at most 15 s and
    at least 1 s. If transaction.timeout.ms is below ``cross_checks.SHORT_TIMEOUT_MS``, the lease is
    1 s, which guarantees nothing.
    """
    return max(1_000, min(_LONGEST_MS, (margin_ms(timeout_ms) - _SCAN_MS) // 2))
