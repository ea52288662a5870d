"""``twoPhaseCommit=auto``: whether brokers allow transactions that never time out (KIP-939)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import AuthorizationError, UnsupportedVersionError
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.transactions.transactional_ids import check_id, prefix_of_key

if TYPE_CHECKING:
    from spark_kafka_sink.admin.transaction_client import TransactionClient

_log = logging.getLogger(__name__)

#: What this process has logged, once: a stream is planned again and again.
_logged: ProcessLocal[set[str]] = ProcessLocal(set)


def allows_two_phase_commit(client: TransactionClient, key: str) -> bool:
    """Whether brokers allow it for the transactions of ``key``; logs the result."""
    try:
        client.init_producer_id(
            check_id(prefix_of_key(key)),
            client.config.transaction_timeout_ms,
            client.deadline(),
            two_phase_commit=True,
        )
    except (AuthorizationError, UnsupportedVersionError) as error:
        why = (
            "brokers have transaction.two.phase.commit.enable=false, or the principal lacks the "
            "right TWO_PHASE_COMMIT"
            if isinstance(error, AuthorizationError)
            else "brokers don't support InitProducerId version 6"
        )
        _log_once(f"kprod '{key}': twoPhaseCommit=auto is off: {why}")
        return False
    _log_once(
        f"kprod '{key}': twoPhaseCommit=auto is on: transactions never time out, and those that a "
        "crashed driver leaves open are ended by the next start, or by 'kprod txn sweep --force'"
    )
    return True


def _log_once(text: str) -> None:
    if text not in _logged():
        _logged().add(text)
        _log.info(text)
