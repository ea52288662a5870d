"""Plans a batch for exactly-once: reads the state of the batch's key in the commit log.

- A *batch job* is a write with ``df.write``. Each write of ``foreach_batch`` or ``transaction`` is
  a batch job.
- A *stream* is a query with ``df.writeStream.format("kprod")``.
- A *key* is the name of a stream or batch job in the commit log.

The driver reads the commit log at planning, and sends the result as a :class:`TransactionPlan` to
the tasks. This module also checks the exactly-once options that differ between a batch job and a
stream.

The run id and the number of a batch are compared with the commit log before rows are written. For a
batch job, the driver makes this comparison at planning. For a stream, each task makes this
comparison, because Spark passes the run id only to tasks.

``transactional_producers`` begins the transactions, and ``transaction_commit`` commits them.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitError,
    ConfigError,
    IllegalStateError,
    SupersededError,
    warn,
)
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint
from spark_kafka_sink.datasource.exactly_once.named_writes import SAYS_REPLAY
from spark_kafka_sink.datasource.exactly_once.offsets_group import check_group_id, refuse_members
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.transactions.batches import forgotten_refusal, number_refusal
from spark_kafka_sink.transactions.commit_state import CommitState, Standing
from spark_kafka_sink.transactions.lease import margin_ms
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.result_errors import raise_refusal
from spark_kafka_sink.transactions.transactional_ids import (
    DEFAULT_PREFIX,
    check_part,
    is_part,
    log_key,
)

if TYPE_CHECKING:
    from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
    from spark_kafka_sink.datasource.write.write_task import TransactionTime

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionPlan:
    """The facts about one batch job, or about one micro-batch of a stream. The driver determines
    these facts before the tasks begin, and Spark sends them to the tasks. Immutable and picklable.

    - ``key`` is the name of the query or job in the commit log.
    - ``state`` is the key's state in the commit log at planning.
    - ``numbering`` is the rule by which the key's batch numbers follow each other.
    - ``context`` has the run and the query of a batch job. It is None in streams.
    - ``number`` is the option txnVersion of a batch job, or 0 if this option is not set.
      ``foreach_batch`` and ``transaction`` set the option to the micro-batch's id. ``number`` is
      None in streams, because the id of a stream's micro-batch is unknown at planning.
    - ``driver`` is a token that identifies the Spark driver and a stream
      (``process/driver_identity.py``). It is empty for a batch job.
    - ``verify`` is the option verifyReplays. If it is true, the tasks of a repeated batch count
      their rows, and the driver compares these counts with the counts of the first write.
    - ``transaction_timeout_ms`` is the option kafka.transaction.timeout.ms.
    - ``log_topic`` is the topic of the commit log.
    - ``digest`` is a hash of the source offsets of a batch job. For a stream, it is a hash of the
      source offsets of the last done batch, read from the checkpoint of the query. It is empty if
      the offsets are unknown.
    """

    key: str
    state: CommitState
    numbering: Numbering
    context: WriteContext | None
    number: int | None
    driver: str
    verify: bool
    transaction_timeout_ms: int
    log_topic: str
    digest: str = ""

    @property
    def skips(self) -> bool:
        """Whether this batch job writes nothing, because the commit log shows that its batch is
        already committed. False in streams: there each task decides (:meth:`is_done`).
        """
        return (
            self.number is not None
            and self.numbering is not Numbering.ONCE
            and self.number <= self.state.last_done
        )

    @property
    def number_of_foreach_batch(self) -> int:
        """The id of the micro-batch that ``foreach_batch`` or ``transaction`` writes. -1 for any
        other write.
        """
        if self.numbering is not Numbering.MICRO_BATCHES or self.number is None:
            return -1
        return self.number

    @property
    def is_of_block(self) -> bool:
        """Whether the write belongs to a ``transaction`` block. The write without rows that ends
        the block also belongs to it.
        """
        return self.context is not None and bool(self.context.token)

    @property
    def aborts_block(self) -> bool:
        """Whether this is the write without rows that aborts all writes of a ``transaction``
        block.
        """
        return self.context is not None and self.context.abort

    @property
    def ends_block(self) -> bool:
        """Whether this is the write without rows that commits or aborts all writes of a
        ``transaction`` block.
        """
        return self.context is not None and self.context.ends_block

    @property
    def may_be_decided(self) -> bool:
        """Whether the ``transaction`` block that this write aborts may be decided already."""
        return self.context is not None and self.context.may_be_decided

    @property
    def counts_replays(self) -> bool:
        """Whether the tasks of a replay count their rows, so that the driver can compare them with
        the rows that were written. False if a digest of the source offsets already shows that the
        batch is the same.
        """
        return self.verify and not (self.digest and self._done_digest)

    @property
    def _done_digest(self) -> str:
        number = self.state.last_done if self.number is None else self.number
        done = self.state.done_batch(number)
        return "" if done is None else done.digest

    def check_digest(self) -> None:
        """Raises CommitError if the commit log and this query's checkpoint have different source
        offsets for a committed batch: the checkpoint may have been copied or restored, or may
        belong to another query.

        For a stream, the last committed batch is checked. For a batch job, its own batch is
        checked. Does nothing if this batch is not committed, or if its offsets are unknown in the
        commit log or the checkpoint.
        """
        here, there = self.digest, self._done_digest
        if not here or not there or here == there:
            return
        number = self.state.last_done if self.number is None else self.number
        raise CommitError(
            f"batch {number} of '{self.key}' is done with the sources' offsets {there}, and in "
            f"this checkpoint it has the offsets {here}: other rows under a done number",
            hint="the checkpoint was copied or restored, or belongs to another query; for a new "
            "checkpoint choose a new transactionalIdPrefix or name, or 'kprod txn reset "
            f"{self.key}' removes the old state",
        )

    @property
    def time(self) -> TransactionTime:
        from spark_kafka_sink.datasource.write.write_task import TransactionTime

        timeout_ms = self.transaction_timeout_ms
        return TransactionTime(timeout_ms, margin_ms(timeout_ms), self.state.generation)

    @property
    def owner(self) -> Owner:
        """The run that commits or aborts this batch job."""
        assert self.context is not None
        return Owner(
            self.key,
            self.context.run,
            self.context.query_id,
            self.state.generation,
            self.numbering,
        )

    def check_job(self, generation: int | None = None) -> None:
        """Compares this batch job with the key's state in the commit log. Does nothing in streams.
        Raises SupersededError if another run has taken over the key. Raises CommitError in these
        cases:

        - The run of this job was aborted.
        - The commit log does not expect the job's ``number`` (:func:`check_number`).
        - The batch with this ``number`` is already committed, but from other source offsets.
        - The batch with this ``number`` is or may be committed, and it is unknown whether this job
          has the same rows.

        ``generation`` is the generation that the key must have if the job is a step of ``backfill``
        (:func:`check_generation`). It is None for any other job.
        """
        if self.context is not None and self.number is not None:
            # (If the version is done, no rows are written.)
            if generation is not None and self.state.done_batch(self.number) is None:
                check_generation(self.key, self.number, generation, self.state)
            check_run(self.key, self.context.run, self.state)
            check_number(self.key, self.numbering, self.context.query_id, self.number, self.state)
            self._refuse_forgotten_version(self.number)
            self.check_digest()
            self._refuse_unknown_replay(self.context)

    def _refuse_forgotten_version(self, number: int) -> None:
        """Raises CommitError if the txnVersion ``number`` is older than every version that the
        commit log keeps. Then it is unknown whether this version was written, and with which rows.
        With verifyReplays=false, no error is raised.
        """
        # (Micro-batches are not checked here: check_number refuses each micro-batch before the last
        # done micro-batch.)
        if self.verify and self.numbering is Numbering.VERSIONS:
            raise_refusal(self.key, forgotten_refusal(number, self.state))

    def _refuse_unknown_replay(self, context: WriteContext) -> None:
        """Raises CommitError if the micro-batch of this write is already committed, and it is not
        certain that this write repeats the committed write. It is certain if the query or the hash
        of the source offsets is known, or if this process has already written the same DataFrames
        (``WriteContext.known``).

        Only a write of ``foreach_batch`` or ``transaction`` is checked. With verifyReplays=false,
        no error is raised.
        """
        # (Equal numbers of rows and bytes do not show a repetition: another DataFrame may have the
        # same numbers.)
        is_unknown = self.numbering is Numbering.MICRO_BATCHES and not context.known
        if is_unknown and self.skips and self.verify and not context.abort:
            raise CommitError(
                f"batch {self.number} of '{self.key}' is done, and whether this is the same write "
                "again can't be told: it names neither its query nor its sources' offsets",
                hint=SAYS_REPLAY,
            )

    def is_done(self, identity: TaskIdentity) -> bool:
        """Whether the task's batch is already committed. If it is, the task must write nothing.

        For a task of a stream, this method also checks the run and the micro-batch, which are
        unknown at planning. Raises the errors of :func:`check_run`, :func:`check_number` and
        :meth:`check_digest`. Raises IllegalStateError if Spark has not passed the run and the
        micro-batch to the task.
        """
        if self.context is not None:
            return self.skips  # planning has called check_job
        number = identity.batch_id
        if number < 0 or not is_part(identity.run_id):
            raise IllegalStateError(
                "Spark did not pass the run and the micro-batch to this task",
                hint="exactly-once needs the local properties streaming.sql.batchId and "
                "spark.jobGroup.id of a micro-batch; this Spark sets another one",
            )
        check_run(self.key, identity.run_id, self.state)
        # MICRO_BATCHES allows a gap. The commit checks that a stream skips no batch: planning may
        # have read an old state of the log, from a broker that leads the partition no more.
        check_number(self.key, Numbering.MICRO_BATCHES, identity.query_id, number, self.state)
        self.check_digest()
        return number <= self.state.last_done


def check_run(key: str, run: str, state: CommitState) -> None:
    """Raises an error if the run with the id ``run`` can't commit any more. ``state`` is the state
    of the run's key in the commit log.

    * CommitError: ``state`` shows that the run was aborted, and that no other run has taken over.
    * SupersededError: either another run has taken over the key, or the run was aborted. ``state``
      does not show which.
    """
    if state.standing(run) is Standing.SUPERSEDED:
        if state.newest_run == run:
            owner = Owner(key, run, "", generation=0)
            raise_refusal(key, owner.refusal(state))  # no run has taken over: run was aborted
        now = f"run {state.run_id} owns the key" if state.run_id else "no run owns the key"
        raise SupersededError(
            f"run {run} must stop before its batch is written: another run has taken over '{key}', "
            f"or run {run} was aborted; {now}",
            hint="a query runs twice with one checkpoint, or two queries share a "
            "transactionalIdPrefix or a name of foreach_batch: use a different prefix or name for "
            "each query; if no other query runs, Spark aborted the run, or an operator did ('kprod "
            "txn abort' or 'sweep'): start the query again",
        )


def check_generation(key: str, number: int, expected: int, state: CommitState) -> None:
    """Checks that the key of a backfill still has the generation ``expected``: the generation
    before the backfill recorded the step with the txnVersion ``number``. Each take-over of the key
    by another run raises the generation. Raises one of these errors if the generation differs:

    * SupersededError: the generation is larger. Another call of ``backfill`` has taken over the
      key, or an operator has reset the key.
    * CommitError: the generation is smaller. ``state`` is old, and may come from a broker that no
      longer leads the partition.
    """
    if state.generation == expected:
        return
    # A call of backfill may be suspended between the record of a step and the planning of the
    # write:
    #   1. The first call records version 7, and is suspended.
    #   2. The second call takes over the key, and begins the step again as version 8.
    #   3. The first call plans version 7. Without this check, the commit log would accept the
    #      commit, because version 7 was planned after the takeover.
    # Then versions 7 and 8 would both have the rows. If the state is old, a deposed leader has
    # returned it: planning opens the key, and calls this function again.
    kind = SupersededError if state.generation > expected else CommitError
    raise kind(
        f"version {number} of '{key}' is not written: since this step began, another call of the "
        "backfill has taken over, or an operator has reset the key (generation "
        f"{state.generation}, not {expected})",
        hint="'kprod backfill NAME' shows whether another call runs; if none runs, call backfill "
        "again: it goes on with this step",
        kind=Kind.BACKFILL_RUNS,
    )


def check_number(
    key: str, numbering: Numbering, query_id: str, number: int, state: CommitState
) -> None:
    """Raises CommitError if the commit log does not expect the batch's number.
    :func:`number_refusal` has the rule for each kind of ``numbering``.
    """
    raise_refusal(key, number_refusal(numbering, query_id, number, state))


def prefix_of(config: SinkConfig, *, streaming: bool) -> str:
    """Returns the prefix of all transactional ids, after a check of the options that depend on the
    mode (batch or stream). Sends no request to a broker, because this function also runs before
    each commit and abort of a stream.
    """
    prefix = config.transactional_id_prefix
    if streaming and config.txn_version is not None:
        raise ConfigError(
            "txnAppId and txnVersion are for batch writes; a stream has its micro-batch ids "
            "already",
            hint="with foreachBatch, spark_kafka_sink.foreach_batch(name, ...) sets both",
        )
    if streaming and prefix is None:
        raise ConfigError(
            "deliveryGuarantee=exactly-once in a stream needs the option transactionalIdPrefix",
            hint="it is the key of the query's decisions, also after a restart: choose a name that "
            "no other query has, and never change it while the checkpoint is in use",
        )
    if config.txn_app_id is not None:
        check_part("txnAppId", config.txn_app_id)
    if config.offsets_group is not None:
        check_group_id("offsetsGroup", config.offsets_group)
        # (foreach_batch and transaction have read them, and pass them in their context.)
        if (config.checkpoint_location if streaming else config.txn_context) is None:
            raise ConfigError(
                "offsetsGroup needs the option checkpointLocation: offsets are read there",
                hint="set it with .option(...) on this write"
                if streaming
                else "it is for streams, and for foreach_batch and transaction",
            )
    return DEFAULT_PREFIX if prefix is None else check_part("transactionalIdPrefix", prefix)


def plan_transactions(config: SinkConfig, *, streaming: bool, driver: str = "") -> TransactionPlan:
    """Plans a batch for exactly-once, from the state of its key in the commit log. If an earlier
    driver has decided to commit a batch, but has not finished, that batch is first committed or
    undone.

    ``driver`` is the token of ``driver_identity``. These errors are raised:

    - the errors of ``ExactlyOnceDriver.plan``, for example for missing rights, for old brokers, and
      for a batch that an operator has to resolve
    - the errors of :meth:`TransactionPlan.check_job` for a batch job
    - ConfigError if a consumer uses the group of the option offsetsGroup, and offsetsGroupInUse
      does not allow that
    """
    from spark_kafka_sink.transactions.exactly_once import shared_driver

    prefix = prefix_of(config, streaming=streaming)
    given = None
    if config.txn_context is not None:
        given = WriteContext.of_option(config.txn_context)
    numbering = _numbering(given, config, streaming=streaming)
    job = uuid.uuid4().hex
    name = job if numbering is Numbering.ONCE else config.txn_app_id
    key = log_key(prefix, None if streaming else name)

    def planned(state: CommitState) -> TransactionPlan:
        context = given
        if context is None and not streaming:
            context = WriteContext(_run(numbering, job, state, driver))
        return TransactionPlan(
            key=key,
            state=state,
            numbering=numbering,
            context=context,
            number=None if streaming else config.txn_version or 0,
            driver=driver if streaming else "",
            verify=config.verify_replays,
            transaction_timeout_ms=config.producer.transaction_timeout_ms,
            log_topic=config.commit_log_topic,
            digest="" if context is None else context.digest,
        )

    with shared_driver(config.producer, config.commit_log_topic) as driver_side:
        state = driver_side.plan(key, lambda state: planned(state).check_job(config.txn_generation))
        if config.offsets_group is not None and config.offsets_group_in_use != "allow":
            refuse_members(driver_side.client, config.offsets_group)
    plan = planned(state)
    if streaming:
        plan = replace(plan, digest=_digest_of_done(config, state))
    if plan.skips:
        # With verifyReplays=false, a version older than the last may never have been written.
        warn(
            _log,
            Kind.NOTHING_WRITTEN,
            "kprod writes nothing: version %d of txnAppId '%s' counts as committed (last: %d)",
            plan.number,
            config.txn_app_id,
            state.last_done,
            level=logging.INFO if plan.number == state.last_done else logging.WARNING,
        )
    return plan


def _numbering(context: WriteContext | None, config: SinkConfig, *, streaming: bool) -> Numbering:
    if streaming:
        return Numbering.STREAM
    if context is not None:
        return Numbering.MICRO_BATCHES
    return Numbering.ONCE if config.txn_app_id is None else Numbering.VERSIONS


def _run(numbering: Numbering, job: str, state: CommitState, driver: str) -> str:
    """The run id of a batch job. ``job`` is a random text for a new run id.

    If the same driver wrote the last txnVersion of this key, the result is the run id of that
    version. So the workers of the driver can reuse their transactional ids. In any other case, the
    result is a new run id that contains ``job``.
    """
    if numbering is Numbering.ONCE or not driver:
        return job
    ours = f"{driver}-"
    return state.run_id if state.run_id.startswith(ours) else ours + job


def _digest_of_done(config: SinkConfig, state: CommitState) -> str:
    """A hash of the source offsets of the last done batch of a stream, read from the checkpoint of
    the query. The tasks compare it with the hash in the commit log. Empty if the commit log has no
    hash of this batch, or if the checkpoint does not show the offsets.
    """
    done = state.done_batch(state.last_done)
    if config.checkpoint_location is None or done is None or not done.digest:
        return ""
    return Checkpoint(config.checkpoint_location).known_digest(state.last_done)
