"""Commits or aborts the transactions of a batch, from the tasks' commit messages.

This module checks the transactions in the commit messages, and calls
``transactions/exactly_once.py``. The commit is step 15 in "The way of a record" (DESIGN.md).
``transactions/committer.py`` implements the protocol of the commit.

For a stream's micro-batch, Spark passes only the options, the commit messages and the micro-batch's
id. So these facts come from the messages:

- the run id and the query id
- the *generation* that the stream's key had at planning. A key's generation is a number that grows
  when another run takes over the key.

If the abort of a stream's micro-batch gets no message, the driver's token identifies the open
transactions. This token is a part of each transactional id (``driver_identity``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitError,
    CommitOutcomeUnknownError,
    KafkaError,
    safe_text,
    warn,
)
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.exactly_once.transactional_producers import is_of_driver
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage, TaskTransaction
from spark_kafka_sink.datasource.write.letter_counts import STAYS, check_letters
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.group_requests import OffsetAndMetadata
from spark_kafka_sink.transactions.batches import Batch, Block
from spark_kafka_sink.transactions.commit_state import Payload
from spark_kafka_sink.transactions.driver_transactions import TopicRecord
from spark_kafka_sink.transactions.offset_commits import GroupOffsets
from spark_kafka_sink.transactions.outcome_hints import NOTHING_UNDONE
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import AbortResult, Commit
from spark_kafka_sink.transactions.transactional_ids import log_key, parse

if TYPE_CHECKING:
    from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
    from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver

_log = logging.getLogger(__name__)


def commit(
    config: SinkConfig,
    plan: TransactionPlan | None,
    messages: Sequence[TaskCommitMessage],
    batch_id: int | None,
    report: TopicRecord | None = None,
) -> Commit:
    """Checks and commits the transactions in the tasks' commit messages. Returns how the batch was
    committed (:class:`Commit`), for example as a replay of a batch that is already committed.

    - ``plan`` is None in streams.
    - ``batch_id`` is the id of a stream's micro-batch.
    - ``report`` is the record of the batch's report. It is committed together with the rows and the
      source offsets. It is not written if the batch has neither rows nor offsets, unless the batch
      is a write of a ``transaction`` block.

    Raises CommitError for messages that can't belong to this batch, and the errors of
    ``Committer.commit``.
    """
    from spark_kafka_sink.transactions.exactly_once import shared_driver

    owner = _owner(config, plan, messages)
    batch = _batch(config, plan, messages, batch_id, owner)
    # (If the batch commits nothing, its report is written after the commit.)
    if batch.carries_report:
        batch = replace(batch, report=report)
    with shared_driver(config.producer, config.commit_log_topic) as driver:
        return driver.commit(owner, batch)


def has_commit(
    config: SinkConfig,
    plan: TransactionPlan | None,
    messages: Sequence[TaskCommitMessage],
    batch_id: int | None,
) -> bool:
    """Whether a batch has anything to commit: rows, the offsets of a consumer group, or the writes
    of a ``transaction`` block. The arguments are those of :func:`commit`.

    If the batch has no rows, the call may read the query's checkpoint, and block for minutes. If
    the checkpoint can't be read, the result is True.
    """
    try:
        owner = _owner(config, plan, messages)
        rows = Batch(_number(plan, batch_id), prepared_transactions(messages, owner))
        return rows.has_commit or _batch(config, plan, messages, batch_id, owner).has_commit
    except Exception:  # noqa: BLE001 - it may have offsets
        return True


def may_be_committed(plan: TransactionPlan | None, *, all_finished: bool) -> bool:
    """Whether a commit of the batch may have begun before its abort. Spark begins the commit of a
    batch only if all tasks have finished (``all_finished``).

    The rows of a ``transaction`` block are only committed by the write that ends the block. So the
    result is False for each other write of the block.
    """
    if plan is None or not plan.is_of_block:
        return all_finished
    if plan.aborts_block:
        # (A done batch with the number of a refused replay is the batch of another block.)
        return plan.may_be_decided and not _is_refused_replay(plan)
    return all_finished and plan.ends_block


def perhaps_committed(
    config: SinkConfig, plan: TransactionPlan | None, batch_id: int | None, error: KafkaError
) -> KafkaError:
    """The error in the report of a batch that may be committed. ``error`` is the error of its
    abort.
    """
    key = _key_of_stream(config) if plan is None else plan.key
    return CommitOutcomeUnknownError(
        f"a commit of batch {_number(plan, batch_id)} of '{key}' may have begun, and its abort has "
        f"failed: {error.message}",
        hint=NOTHING_UNDONE,
    )


def abort_block(
    config: SinkConfig, plan: TransactionPlan, messages: Sequence[TaskCommitMessage]
) -> AbortResult:
    """Aborts the transactions of all writes of a failed ``transaction`` block. ``plan`` and
    ``messages`` are those of the write without rows that Spark runs for this abort.

    Aborts nothing if the commit log already has the decision to commit the block. Returns how many
    rows of the block are visible. ALL means that an earlier call has committed the block.

    Raises KafkaError if the transactions can't be aborted.
    """
    from spark_kafka_sink.transactions.exactly_once import shared_driver

    context = plan.context
    assert context is not None
    with shared_driver(config.producer, config.commit_log_topic) as driver:
        found = _aborted(driver, config, plan, messages, None, tasks_may_run=context.tasks_may_run)
    # (Without a begun commit of this block, a decision with its number is of another block.)
    is_ours = may_be_committed(plan, all_finished=True)
    return found if is_ours else AbortResult(found.swept)


def abort(
    config: SinkConfig,
    plan: TransactionPlan | None,
    messages: Sequence[TaskCommitMessage],
    batch_id: int | None,
    *,
    tasks_may_run: bool,
    driver_token: str = "",
) -> AbortResult:
    """Aborts the transactions of a batch. Aborts nothing if the commit log already has the decision
    to commit the batch. Returns the transactional ids of aborted transactions that no task has
    reported, and whether rows of the batch are visible.

    - ``driver_token`` is a part of the transactional ids that the driver's tasks use. It identifies
      the transactions if there is no plan and no message.
    - ``tasks_may_run`` is true if tasks of the batch may still be running.

    Raises KafkaError if the transactions can't be aborted.
    """
    from spark_kafka_sink.transactions.exactly_once import shared_driver

    if plan is not None and plan.skips:
        return AbortResult()
    with shared_driver(config.producer, config.commit_log_topic) as driver:
        if plan is None and not messages:
            if driver_token:
                key = _key_of_stream(config)
                mine = driver.abort_unknown(key, lambda one: is_of_driver(one, driver_token))
                return AbortResult(mine)
            warn(
                _log,
                Kind.ORPHANS_UNSEEN,
                "kprod abort: no task reported its run, and this process has no JVM as an "
                "ancestor; open transactions of the tasks are aborted by the first commit after "
                "the next start, or after kafka.transaction.timeout.ms (%d)",
                config.producer.transaction_timeout_ms,
            )
            return AbortResult()
        return _aborted(driver, config, plan, messages, batch_id, tasks_may_run=tasks_may_run)


def _aborted(
    driver: ExactlyOnceDriver,
    config: SinkConfig,
    plan: TransactionPlan | None,
    messages: Sequence[TaskCommitMessage],
    batch_id: int | None,
    *,
    tasks_may_run: bool,
) -> AbortResult:
    """Aborts the transactions of a batch whose run is known."""
    owner = _owner(config, plan, messages)
    return driver.abort(
        owner,
        _number(plan, batch_id),
        prepared_transactions(messages, owner),
        tasks_may_run=tasks_may_run,
        may_be_committed=may_be_committed(plan, all_finished=not tasks_may_run),
    )


def _batch(
    config: SinkConfig,
    plan: TransactionPlan | None,
    messages: Sequence[TaskCommitMessage],
    batch_id: int | None,
    owner: Owner,
) -> Batch:
    """Creates the :class:`Batch` of a commit, without its report."""
    prepared = prepared_transactions(messages, owner)
    batch = Batch(_number(plan, batch_id), prepared, payload_of(messages, config.topic))
    context = None if plan is None else plan.context
    if context is None:
        return _with_checkpoint(batch, config, owner)
    offsets = _group_offsets(config, _of_context(context))
    batch = replace(batch, digest=context.digest, offsets=offsets)
    if context.token:
        batch = replace(batch, block=_block(config, context, messages))
    return batch


def payload_of(messages: Sequence[TaskCommitMessage], topic: str | None) -> Payload | None:
    """Sums the counts of all tasks: the number of rows, the bytes of the rows, and the number of
    dead letters. Returns None if a task did not count its rows.

    If the batch is already committed, the counts are those of the rows that the tasks skipped.
    ``topic`` is the topic of the rows, or None if each row has its own topic.
    """
    payloads = [p for m in messages if (p := _transaction(m).payload) is not None]
    if len(payloads) < len(messages):
        return None
    return Payload(
        sum(rows for rows, _ in payloads),
        sum(size for _, size in payloads),
        topic or "",
        sum(_transaction(message).letters for message in messages),
    )


def prepared_transactions(
    messages: Sequence[TaskCommitMessage], owner: Owner
) -> tuple[PreparedTransaction, ...]:
    """The prepared transaction of each task that wrote a row.

    Raises CommitError if a transaction can't belong to its task. Without this check, a forged
    commit message could end another client's transaction with the rights of the driver.
    """
    found: dict[str, PreparedTransaction] = {}
    for index, message in enumerate(messages):
        prepared = message.prepared
        if (prepared is None) != (message.rows == 0):
            raise CommitError(
                f"task {index} wrote {message.rows} rows, and its commit message "
                + ("names no transaction" if prepared is None else "names a transaction"),
            )
        if prepared is None:
            continue
        problem = _problem(prepared, owner)
        if prepared.transactional_id in found:
            problem = "another task has it, too"
        if problem is not None:
            raise CommitError(
                f"task {index} names transaction "
                f"'{safe_text(prepared.transactional_id)}', which is not its own: {problem}"
            )
        found[prepared.transactional_id] = prepared
    return tuple(found.values())


def _problem(prepared: PreparedTransaction, owner: Owner) -> str | None:
    found = parse(prepared.transactional_id)
    if found is None:
        return "it is not the transactional id of a task"
    if found.key != owner.key:
        return f"its key is not '{owner.key}'"
    if found.run != owner.run_id:
        return f"its run is not {owner.run_id}"
    return None


def _transaction(message: TaskCommitMessage) -> TaskTransaction:
    """The transaction in a task's commit message.

    If the task ran without exactly-once, the message has no transaction. Then the result is a
    placeholder with the generation -1, for which :func:`_owner` raises an error.
    """
    return message.transaction or TaskTransaction(-1)


def _owner(
    config: SinkConfig, plan: TransactionPlan | None, messages: Sequence[TaskCommitMessage]
) -> Owner:
    """The run that commits the batch. The run of a batch job comes from the plan. The run of a
    stream comes from the tasks' messages. Raises CommitError if the messages contradict each other
    or the plan.
    """
    if plan is not None:
        if any(_transaction(m).generation != plan.state.generation for m in messages):
            raise CommitError("a task's commit message is of another plan than this writer's")
        return plan.owner
    owners = {
        (m.identity.run_id, m.identity.query_id, _transaction(m).generation) for m in messages
    }
    if len(owners) != 1:
        raise CommitError(
            f"the commit messages of one micro-batch name {len(owners)} runs, queries or "
            "generations of the commit log; they must have the same one"
        )
    run_id, query_id, generation = owners.pop()
    if not run_id or not query_id or generation < 0:
        raise CommitError(
            "the commit messages don't have the run and the query that they belong to",
            hint="the micro-batch was written without deliveryGuarantee=exactly-once",
        )
    return Owner(_key_of_stream(config), run_id, query_id, generation)


def _key_of_stream(config: SinkConfig) -> str:
    """The key of a stream in the commit log. It is made from the option transactionalIdPrefix,
    which must be set.
    """
    assert config.transactional_id_prefix is not None
    return log_key(config.transactional_id_prefix)


def _with_checkpoint(batch: Batch, config: SinkConfig, owner: Owner) -> Batch:
    """Adds the digest and the source offsets to a stream's batch. Both come from the query's
    checkpoint.
    """
    if config.checkpoint_location is None or owner.numbering is not Numbering.STREAM:
        return batch
    checkpoint = Checkpoint(config.checkpoint_location)
    offsets = None
    if config.offsets_group is not None:
        checkpoint.check(batch.number, owner.query_id)
        offsets = _group_offsets(config, checkpoint.offsets(batch.number))
    return replace(
        batch, offsets=offsets, digest=checkpoint.known_digest(batch.number, owner.query_id)
    )


def _block(
    config: SinkConfig, context: WriteContext, messages: Sequence[TaskCommitMessage]
) -> Block:
    """Describes the ``transaction`` block to which a write belongs, for the commit of this write.
    If dead letters are on, one more field of the result is set:

    - ``letters`` for a write with rows: the number of dead letters, and the number of rows.
    - ``check_letters`` for the write that ends the block: a function that compares the totals of
      all writes with errors.max.records and errors.max.fraction.
    """
    block = Block(context.token, context.writes, number=context.write)
    options = config.dead_letters
    if options is None:
        return block
    if context.ends_block:
        then = f"so the transaction fails; {STAYS[True]}"
        return replace(block, check_letters=partial(check_letters, options, then=then))
    letters = sum(count.rows for message in messages for count in message.letters)
    return replace(block, letters=(letters, sum(message.counts.rows_in for message in messages)))


def _of_context(context: WriteContext) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in (context.offsets or {}).items()
        for partition, offset in partitions.items()
    }


def _group_offsets(
    config: SinkConfig, offsets: Mapping[TopicPartition, int]
) -> GroupOffsets | None:
    """The source offsets to commit to ``offsetsGroup``. None if no group is set, or if the query
    has no Kafka source.
    """
    if config.offsets_group is None or not offsets:
        return None
    ends = {tp: OffsetAndMetadata(at) for tp, at in offsets.items()}
    return GroupOffsets(config.offsets_group, ends)


def _is_refused_replay(plan: TransactionPlan) -> bool:
    """Whether a ``transaction`` block has repeated a done batch, and the end of the block was
    refused, for example because the done batch has more writes.
    """
    # (Both the decision and the end of a replay remove the recorded writes of the block.)
    number, context, state = plan.number, plan.context, plan.state
    if number is None or context is None or state.done_batch(number) is None:
        return False
    return state.parts_by(number, context.token) != ()


def _number(plan: TransactionPlan | None, batch_id: int | None) -> int:
    number = batch_id if plan is None else plan.number
    assert number is not None
    return number
