"""The driver's side of exactly-once over one cluster's connections: plan, commit, abort.

Owns: :class:`ExactlyOnceDriver`, which puts client, log, committer and aborter together, what
planning checks before a task starts, and the connections that one process keeps between two
commits. Never: the protocol's steps (``committer.py``, ``aborter.py``).

Spark plans, commits and aborts in short-lived calls of pooled processes. A process that is asked
again within a minute finds its connections warm (:func:`shared`); nothing else is kept: what the
log says is read anew each time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from spark_kafka_sink.admin.request_loop import NewClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.errors import AuthorizationError, UnsupportedVersionError
from spark_kafka_sink.network.process_local import ProcessLocal
from spark_kafka_sink.transactions.aborter import Aborter
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.committer import Batch, Commit, Committer
from spark_kafka_sink.transactions.decision_log import DecisionLog
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.topic_records import TopicRecord, write_record
from spark_kafka_sink.transactions.transactional_ids import (
    check_id,
    prefix_of_key,
)

_log = logging.getLogger(__name__)

#: So long a process believes that what it may do under a key, it still may.
_CHECKED_MS: Final = 60_000
#: Clusters (or configurations) of which one process keeps connections; a planner serves few.
_KEPT: Final = 4


class ExactlyOnceDriver:
    """A context manager over one :class:`TransactionClient`. One thread at a time.

    ``config`` is the tasks' producer config; its transaction.timeout.ms is what the brokers must
    allow. ``log_topic`` keeps the decisions.
    """

    def __init__(
        self,
        config: ProducerConfig,
        log_topic: str,
        *,
        clock: Clock | None = None,
        new_client: NewClient | None = None,
    ) -> None:
        self._config = config
        self._checked: dict[str, int] = {}
        self._told: set[str] = set()
        self._client = TransactionClient(config, clock=clock, new_client=new_client)
        self._clock = self._client.clock
        log = DecisionLog(self._client, log_topic)
        aborter = Aborter(log, self._client)
        self._committer = Committer(log, self._client)
        #: See :class:`Committer` and :class:`Aborter`.
        self.commit = self._committer.commit
        self.abort = aborter.abort
        self.abort_unknown = aborter.abort_unknown

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def write_record(self, record: TopicRecord, timeout_ms: int) -> None:
        """A report of what has no decision; at least once."""
        write_record(self._client, record, self._client.deadline(timeout_ms))

    def plan(self, key: str) -> CommitState:
        """What the log says of ``key``, after everything decided before is ended.

        Meets, before any task starts: missing rights on the transactional ids and on the log's
        topic, a transaction.timeout.ms above the broker's limit, brokers that are too old.
        """
        self._check(key)
        return self._committer.roll_forward(key)

    def two_phase_commit(self, key: str) -> bool:
        """Whether brokers give us transactions that never time out (KIP-939): asked, and logged."""
        asked = check_id(prefix_of_key(key))
        try:
            self._client.init_producer_id(
                asked,
                self._config.transaction_timeout_ms,
                self._client.deadline(),
                two_phase_commit=True,
            )
        except (AuthorizationError, UnsupportedVersionError) as error:
            why = (
                "brokers have transaction.two.phase.commit.enable=false, or the principal has not "
                "the right TWO_PHASE_COMMIT"
                if isinstance(error, AuthorizationError)
                else "brokers don't offer InitProducerId version 6"
            )
            self._tell_once(f"kprod '{key}': twoPhaseCommit=auto is off: {why}")
            return False
        self._tell_once(
            f"kprod '{key}': twoPhaseCommit=auto is on: transactions never time out, and what a "
            "dead driver leaves open is ended by the next start, or by 'kprod txn sweep'"
        )
        return True

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            _log.info(text)

    def _check(self, key: str) -> None:
        prefix = prefix_of_key(key)
        now = self._clock.now_ms()
        if self._checked.get(prefix, 0) > now:
            return
        timeout_ms = self._config.transaction_timeout_ms
        check_rights(self._client, prefix, timeout_ms, self._client.deadline())
        self._checked[prefix] = now + _CHECKED_MS


def check_rights(
    client: TransactionClient, prefix: str, transaction_timeout_ms: int, deadline_ms: int
) -> None:
    """Meets missing rights on the transactional ids of ``prefix``, a time-out above the brokers'
    limit (ConfigError) and brokers that are too old. It fences nobody: the id is for this alone.
    """
    transactional_id = check_id(prefix)
    try:
        client.init_producer_id(transactional_id, transaction_timeout_ms, deadline_ms)
        client.describe([transactional_id], deadline_ms)
    except AuthorizationError as error:
        raise AuthorizationError(
            f"deliveryGuarantee=exactly-once: {error.message}",
            hint="the principal needs WRITE and DESCRIBE on transactional ids that begin with "
            f"'{prefix}~' (an ACL with a prefixed pattern)",
            code=error.code,
        ) from error
    except UnsupportedVersionError as error:
        raise UnsupportedVersionError(
            f"deliveryGuarantee=exactly-once needs Apache Kafka 3.0 or later: {error.message}",
            hint="use deliveryGuarantee=at-least-once with these brokers",
            code=error.code,
        ) from error


_shared_drivers: ProcessLocal[dict[tuple[ProducerConfig, str], ExactlyOnceDriver]] = ProcessLocal(
    dict
)


@contextmanager
def shared(config: ProducerConfig, log_topic: str) -> Iterator[ExactlyOnceDriver]:
    """The instance that this process keeps for these options; gone after an error in it."""
    kept = _shared_drivers()
    driver = kept.pop((config, log_topic), None) or ExactlyOnceDriver(config, log_topic)
    try:
        yield driver
    except BaseException:
        driver.close()
        raise
    kept[config, log_topic] = driver
    while len(kept) > _KEPT:
        kept.pop(next(iter(kept))).close()


def close_shared_drivers() -> None:
    """Close what this process keeps (tests, and a process that ends in an orderly way)."""
    while _shared_drivers():
        _shared_drivers().popitem()[1].close()


__all__ = ["Batch", "Commit", "ExactlyOnceDriver", "Owner", "close_shared_drivers", "shared"]
