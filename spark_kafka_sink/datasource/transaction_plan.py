"""What planning ships to the tasks for exactly-once: whose transactions, and what is done already.

Owns: :class:`TransactionPlan`, the options of exactly-once that depend on the mode (batch or
stream), and the first look at the commit log. It stands before step 1 of a record's way. Never: a
transaction (``transactional_producers``), a commit (``transaction_commit``).

A batch job is named by its writer, which Spark makes once and carries everywhere: a uuid made here
is the same in the tasks and at commit. A stream is named by Spark: its run id and its query id are
known in tasks only, so what depends on them is checked there, before anything is written.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.config import SinkConfig
from spark_kafka_sink.errors import CommitError, ConfigError, IllegalStateError, SupersededError
from spark_kafka_sink.transactions.transactional_ids import (
    DEFAULT_PREFIX,
    check_part,
    is_part,
    log_key,
)

if TYPE_CHECKING:
    from spark_kafka_sink.datasource.write_task import TaskIdentity, TransactionTime

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """Of one batch or micro-batch. Immutable and picklable.

    ``key`` is the commit log's. ``job`` is the batch job's uuid, empty in streams. ``generation``,
    ``last_done``, ``query_id`` and ``superseded`` are the log's (``commit_state.CommitState``) when
    the batch was planned. ``txn_version`` is None without txnAppId. Times are milliseconds.
    """

    key: str
    prefix: str
    job: str
    generation: int
    last_done: int
    query_id: str
    superseded: tuple[str, ...]
    txn_version: int | None
    transaction_timeout_ms: int
    margin_ms: int
    log_topic: str

    @property
    def is_stream(self) -> bool:
        return not self.job

    @property
    def skips(self) -> bool:
        """A batch job whose txnVersion is committed already."""
        return self.txn_version is not None and self.txn_version <= self.last_done

    @property
    def time(self) -> TransactionTime:
        from spark_kafka_sink.datasource.write_task import TransactionTime

        return TransactionTime(self.transaction_timeout_ms, self.margin_ms, self.generation)

    def is_done(self, identity: TaskIdentity) -> bool:
        """True: what this task belongs to is committed already, and it must write nothing.

        Raises SupersededError when another run took over, and CommitError when the query or its
        micro-batch (or, in a foreachBatch, its version) isn't the one that the log expects; nothing
        is written then.
        """
        if not self.is_stream:
            self._check_foreach_batch(identity)
            return self.skips
        number = identity.batch_id
        if number < 0 or not is_part(identity.run_id):
            raise IllegalStateError(
                "Spark did not tell this task which run and micro-batch it belongs to",
                hint="exactly-once needs the local properties streaming.sql.batchId and "
                "spark.jobGroup.id of a micro-batch; this Spark sets another one",
            )
        if identity.run_id in self.superseded:
            raise SupersededError(
                f"another run has taken over '{self.key}': run {identity.run_id} of query "
                f"{identity.query_id} must stop, before its micro-batch {number} is written",
                hint="a query runs twice with one checkpoint, or two queries share a "
                "transactionalIdPrefix: give each query a prefix of its own",
            )
        if not self.generation or not self.query_id:
            return False  # nothing was ever committed under this key
        same = identity.query_id == self.query_id
        if not same or not self.last_done <= number <= self.last_done + 1:
            raise CommitError(
                f"'{self.key}' is at batch {self.last_done} of query {self.query_id}, and query "
                f"{identity.query_id or 'unknown'} wants to write batch {number}",
                hint="the query runs twice, its checkpoint was deleted or put back, it ran without "
                "exactly-once for a while, or two queries share a transactionalIdPrefix; if that "
                f"is meant, 'kprod txn reset {self.key}' forgets the old one",
            )
        return number == self.last_done

    def _check_foreach_batch(self, identity: TaskIdentity) -> None:
        """In a foreachBatch whose versions are the micro-batches' ids, only the last one ever comes
        again. An older one is another checkpoint's, and one of another query is nothing that was
        ever written: both would be dropped for nothing.
        """
        version = self.txn_version
        if not identity.query_id or version is None or version != identity.batch_id:
            return
        if self.query_id and self.query_id != identity.query_id:
            raise CommitError(
                f"'{self.key}' is at version {self.last_done} of query {self.query_id}, and query "
                f"{identity.query_id} wants to write micro-batch {version} under it",
                hint="two queries share a name, or a checkpoint was deleted: give foreach_batch "
                "(or txnAppId) a name that was never used",
            )
        if version < self.last_done:
            raise CommitError(
                f"'{self.key}' is at version {self.last_done}, and query {identity.query_id} wants "
                f"to write micro-batch {version} under it",
                hint="a checkpoint was deleted, copied or put back, or two writes share a name: "
                "give foreach_batch (or txnAppId) a name that was never used",
            )


def prefix_of(config: SinkConfig, *, streaming: bool) -> str:
    """The prefix of every transactional id; also checks what depends on the mode.

    Needs no broker: it runs before each commit and abort of a stream, too.
    """
    prefix = config.transactional_id_prefix
    if streaming and config.txn_version is not None:
        raise ConfigError(
            "txnAppId and txnVersion are for batch writes; a stream counts its micro-batches by "
            "itself",
            hint="with foreachBatch, spark_kafka_sink.foreach_batch(name, ...) sets both",
        )
    if streaming and prefix is None:
        raise ConfigError(
            "deliveryGuarantee=exactly-once in a stream needs the option transactionalIdPrefix",
            hint="decisions are kept under it, and a restarted query must find its own: choose a "
            "name that no other query has, and never change it while the checkpoint lives",
        )
    if config.txn_app_id is not None:
        check_part("txnAppId", config.txn_app_id)
    return DEFAULT_PREFIX if prefix is None else check_part("transactionalIdPrefix", prefix)


def plan_transactions(config: SinkConfig, *, streaming: bool) -> TransactionPlan:
    """Looks into the commit log, after ending what an earlier driver decided. Asks brokers.

    Raises what ``ExactlyOnce.plan`` raises: missing rights, a transaction.timeout.ms that brokers
    don't allow, brokers that are too old, a batch that an operator has to resolve.
    """
    from spark_kafka_sink.transactions.committer import margin_ms
    from spark_kafka_sink.transactions.exactly_once import shared

    prefix = prefix_of(config, streaming=streaming)
    job = "" if streaming else uuid.uuid4().hex
    key = log_key(prefix) if streaming else log_key(prefix, config.txn_app_id or job)
    with shared(config.producer, config.commit_log_topic) as driver:
        state = driver.plan(key)
    plan = TransactionPlan(
        key=key,
        prefix=prefix,
        job=job,
        generation=state.generation,
        last_done=state.last_done,
        query_id=state.query_id,
        superseded=state.superseded,
        txn_version=config.txn_version,
        transaction_timeout_ms=config.producer.transaction_timeout_ms,
        margin_ms=margin_ms(config.producer.transaction_timeout_ms),
        log_topic=config.commit_log_topic,
    )
    if plan.skips:
        # An older one than the last may be a re-run, or come too late and never have been written.
        _log.log(
            logging.INFO if plan.txn_version == plan.last_done else logging.WARNING,
            "kprod writes nothing: version %d of txnAppId '%s' counts as committed (last: %d)",
            plan.txn_version,
            config.txn_app_id,
            plan.last_done,
        )
    return plan
