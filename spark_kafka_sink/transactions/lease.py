"""How long what a decision stands on may last: pure functions of transaction.timeout.ms.

Owns: the margin of the data's transactions and the lease of the log's. Never: a clock.

A batch is decided while its transactions are open, and they must stay open until they are ended.
Brokers abort one when it is ``timeout`` old, so none may be older than ``timeout - margin``. And a
decision must not be made later than it was checked, whatever happens to the driver in between (a
SIGSTOP, a migrating VM, a coordinator that is away): it lies in the log in a transaction of its
own, whose time-out is the lease::

    Produce DECIDED       the lease begins, by the brokers' clock
    check the ages        all are younger than timeout - margin
    EndTxn                within the lease, and a late scan of the coordinator, or never
    EndTxn of the data    what is left of the margin
"""

from __future__ import annotations

from typing import Final

#: Of a transaction's time, that much must be left for the commit: 10 %, and 30 s of a longer one.
_MARGIN_MS: Final = 30_000
#: Kafka's transaction.abort.timed.out.transaction.cleanup.interval.ms: a broker may abort a
#: transaction so much later than its time-out.
_SCAN_MS: Final = 10_000
_LONGEST_MS: Final = 15_000


#: What a coordinator tells as the time-out of a transaction with two-phase commit (KIP-939).
NEVER_TIMES_OUT_MS: Final = 2**31 - 1


def margin_ms(timeout_ms: int) -> int:
    """How much of transaction.timeout.ms the driver's commit may need (judgement: a tenth, and at
    least 30 s, but never more than half of it).
    """
    return max(timeout_ms // 10, min(_MARGIN_MS, timeout_ms // 2))


def lease_ms(timeout_ms: int) -> int:
    """How long a decision may lie in the log before its end: 15 s, and half of what a late scan
    leaves of a shorter margin. Below ``cross_checks.SHORT_TIMEOUT_MS`` it is a second, and no
    promise.
    """
    return max(1_000, min(_LONGEST_MS, (margin_ms(timeout_ms) - _SCAN_MS) // 2))
