"""The time limits of a decision to commit a batch, as functions of transaction.timeout.ms:

* The *margin* is the time that is reserved for the commit of a decided batch. A batch may be
  decided only if each of its transactions is younger than its timeout minus the margin.
* The *log transaction* is the transaction that writes the decision to the commit log.
* The *lease* is the timeout of the log transaction.

The ages of the batch's transactions are checked after the log transaction has begun. The decision
takes effect when EndTxn commits the log transaction. Soon after the lease, the coordinator aborts
the log transaction, and then the decision never takes effect. So the lease limits the time from the
check to the decision.
"""

from __future__ import annotations

from typing import Final

#: The least margin, if it is not more than half of the timeout. This number was not measured: it
#: was chosen by judgement, like the tenth in :func:`margin_ms`.
_MARGIN_MS: Final = 30_000
#: Kafka's transaction.abort.timed.out.transaction.cleanup.interval.ms: a broker may abort a
#: transaction this much later than its timeout.
_SCAN_MS: Final = 10_000
_LONGEST_MS: Final = 15_000


def margin_ms(timeout_ms: int) -> int:
    """Returns the margin in milliseconds: the part of transaction.timeout.ms that is reserved for
    the driver's commit.

    The margin is a tenth of transaction.timeout.ms, but at least 30 s. Exception: if
    transaction.timeout.ms is less than 60 s, the margin is half of transaction.timeout.ms.
    """
    return max(timeout_ms // 10, min(_MARGIN_MS, timeout_ms // 2))


def lease_ms(timeout_ms: int) -> int:
    """Returns the lease in milliseconds: the timeout of the log transaction. ``timeout_ms`` is
    transaction.timeout.ms, the timeout of the batch's transactions. The lease is (:func:`margin_ms`
    - 10 s) / 2, but at least 1 s and at most 15 s.

    A coordinator may abort the log transaction up to 10 s after the lease, because by default it
    searches for transactions that have timed out every 10 s. Until then, EndTxn can commit the log
    transaction, and the decision takes effect. So that the batch can still be committed then, the
    margin must be longer than the lease and these 10 s together.

    Exception: the margin is not longer if transaction.timeout.ms is 22 s or less, because the lease
    is at least 1 s. Then a late decision may take effect after transactions of its batch have timed
    out, and the batch may be committed in part.
    """
    return max(1_000, min(_LONGEST_MS, (margin_ms(timeout_ms) - _SCAN_MS) // 2))
