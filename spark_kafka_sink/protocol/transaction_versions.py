"""In which versions a transaction's requests may be sent.

Owns: the ranges that are smaller than what ``protocol/messages/`` can encode. Never: which version
of transactions the cluster writes (``producer/transaction/transaction_states.py``).
"""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.protocol.request import VersionRange

#: InitProducerId with ``enable_2pc``: the id's transactions are never aborted for their age,
#: whatever the time-out (KIP-939). No broker has this version by default: up to Kafka 4.3 it is
#: unstable.
TWO_PHASE_COMMIT: Final = VersionRange(6, 6)
#: The same without: the latest version may change, so it is used only when it is needed.
INIT_PRODUCER_ID: Final = VersionRange(0, 5)


def init_producer_id_versions(*, two_phase_commit: bool) -> VersionRange:
    """Of InitProducerId."""
    return TWO_PHASE_COMMIT if two_phase_commit else INIT_PRODUCER_ID


def ending_versions(transaction_version: int) -> VersionRange:
    """Of EndTxn and of TxnOffsetCommit, for a transaction of this version.

    The broker judges them by the rules of the request's version, not by those that the cluster has
    now, so it is the version that the transaction was written with: a transaction of version 2 that
    is requested to end again with EndTxn 4 would be called fenced although it was committed.
    TxnOffsetCommit 5 adds the group to the transaction, the versions below must not be requested
    that.
    """
    return VersionRange(5, 5) if transaction_version >= 2 else VersionRange(0, 4)
