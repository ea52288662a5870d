"""The class with which the Spark driver uses this package: :class:`ExactlyOnceDriver` plans,
commits and aborts batches in one Kafka cluster.

The class connects the client, the commit log and the committer. Its planning checks rights and
limits before a task starts. ``table.py`` chooses the steps of the protocol, and ``committer.py``
performs them.

A Python process keeps its connections for later calls (:func:`shared_driver`). For a minute after a
commit, the process also remembers the state that it has written to the commit log. The next commit
under the same key may use this state, without reading the log. Planning always reads the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Self

from spark_kafka_sink.admin.request_loop import NewClient
from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.base.errors import AuthorizationError, UnsupportedVersionError
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.committer import Committer
from spark_kafka_sink.transactions.transactional_ids import check_id, prefix_of_key

#: How long a check of rights is cached, in ms.
_CHECK_CACHE_MS: Final = 60_000
#: The maximum number of drivers that a process keeps: one for each cluster and configuration.
_KEPT: Final = 4


class ExactlyOnceDriver:
    """Plans, commits and aborts batches, for one Kafka cluster. Only one thread at a time may use
    an object of this class.

    ``config`` is the config of the tasks' producers. :meth:`plan` checks that brokers allow the
    transaction.timeout.ms in it. ``log_topic`` is the topic of the commit log. ``commit``,
    ``abort`` and ``abort_unknown`` are the methods of :class:`Committer`.
    """

    def __init__(
        self,
        config: ProducerConfig,
        log_topic: str,
        *,
        clock: Clock | None = None,
        new_client: NewClient | None = None,
    ) -> None:
        self._checked: dict[str, int] = {}
        self.client = TransactionClient(config, clock=clock, new_client=new_client)
        log = CommitLog(self.client, log_topic)
        self._committer = Committer(log, self.client)
        self.commit = self._committer.commit
        self.abort = self._committer.abort
        self.abort_unknown = self._committer.abort_unknown

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        self.client.close()

    def plan(self, key: str, check: Callable[[CommitState], None] = lambda _: None) -> CommitState:
        """Does the planning of a new batch, before any task starts: checks rights and limits, ends
        the batch that an earlier driver has decided, and then returns the state of ``key``. A batch
        is decided if the commit log has the decision to commit it. To end a batch means to commit
        or to abort all its transactions.

        Raises an error in these cases:

        * Rights on the transactional ids or on the log's topic are missing.
        * transaction.timeout.ms is above the broker's limit.
        * The brokers are too old.
        * The decided batch can't be ended (:meth:`Committer.roll_forward`).
        * The new batch can't follow the state. ``check`` is a function that is called with the
          state, and raises CommitError or SupersededError in this case.
        """
        prefix, now = prefix_of_key(key), self.client.clock.now_ms()
        if self._checked.get(prefix, 0) <= now:
            check_rights(self.client, prefix, self.client.deadline())
            self._checked[prefix] = now + _CHECK_CACHE_MS
        return self._committer.roll_forward(key, check)


def check_rights(client: TransactionClient, prefix: str, deadline_ms: int) -> None:
    """Checks that the brokers accept transactions whose ids begin with ``prefix``. The check fences
    no producer: it sends InitProducerId for an id that no producer uses.

    Raises an error if the brokers don't accept such transactions:

    * AuthorizationError: rights on the transactional ids are missing.
    * ConfigError: the client's transaction.timeout.ms is above the brokers' limit.
    * UnsupportedVersionError: the brokers are too old.
    """
    transactional_id, weaker = check_id(prefix), "none"
    try:
        client.init_producer_id(transactional_id, client.config.transaction_timeout_ms, deadline_ms)
        weaker = "at-least-once"
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
            "deliveryGuarantee=exactly-once needs Apache Kafka 3.0 or later, or a service with the "
            f"same requests: {error.message}",
            hint=f"use deliveryGuarantee={weaker} with these brokers",
            code=error.code,
        ) from error


_shared: ProcessLocal[dict[tuple[ProducerConfig, str], ExactlyOnceDriver]] = ProcessLocal(dict)


@contextmanager
def shared_driver(config: ProducerConfig, log_topic: str) -> Iterator[ExactlyOnceDriver]:
    """A context manager with the :class:`ExactlyOnceDriver` that this process keeps for ``config``
    and ``log_topic``. It creates the driver if the process keeps none for them. If the ``with``
    block raises an error, the driver is closed and not kept.
    """
    kept = _shared()
    driver = kept.pop((config, log_topic), None) or ExactlyOnceDriver(config, log_topic)
    try:
        yield driver
    except BaseException:
        driver.close()
        raise
    kept[config, log_topic] = driver
    while len(kept) > _KEPT:
        kept.pop(next(iter(kept))).close()
