"""A batch's messages as the driver's side of exactly-once takes them: who commits, and what.

Owns: what must be true of the transactions in commit messages, and the calls to
``transactions/exactly_once.py``. It is step 8 of a record's way, seen from Spark. Never: the
protocol (``transactions/committer.py``).

At commit and abort of a stream Spark gives us options, messages and the micro-batch's id. Run id,
query id and generation come out of the messages, and when an abort has none, nobody can say whose
transactions to sweep: then the run that this process committed for last is taken, unless that has
committed this very batch already: the abort is another query's then, which shares the prefix by
mistake, and what the healthy one has open must not be ended with it. A run that was superseded does
no harm, because the abort opens the log first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from spark_kafka_sink.config import SinkConfig
from spark_kafka_sink.datasource.commit_message import TaskCommitMessage
from spark_kafka_sink.datasource.transaction_plan import TransactionPlan, prefix_of
from spark_kafka_sink.errors import CommitError, safe_text
from spark_kafka_sink.transactions.transactional_ids import log_key, parse

if TYPE_CHECKING:
    from spark_kafka_sink.producer.transaction_states import PreparedTransaction
    from spark_kafka_sink.transactions.committer import Commit
    from spark_kafka_sink.transactions.ownership import Owner

_log = logging.getLogger(__name__)

#: Keys of which one process remembers the last owner; it serves few queries.
_REMEMBERED = 16

#: Of streams: who committed last in this process, and which batch, by key.
_last_owner: dict[str, tuple[Owner, int]] = {}


def commit(
    config: SinkConfig,
    plan: TransactionPlan | None,
    messages: Sequence[TaskCommitMessage],
    batch_id: int | None,
) -> Commit:
    """Ends what ``messages`` (which are checked) have prepared. ``plan`` is None in streams.

    Raises CommitError for messages that can't be of this batch, and what ``Committer.commit``
    raises.
    """
    from spark_kafka_sink.transactions.committer import Batch, Commit
    from spark_kafka_sink.transactions.exactly_once import shared

    if plan is not None and plan.skips:
        return Commit.ALREADY_DONE
    owner = _owner(config, plan, messages)
    prepared = prepared_transactions(messages, owner)
    if plan is None:
        assert batch_id is not None
        batch = Batch(batch_id, prepared)
    else:
        batch = Batch(_number(plan), prepared, forget=plan.txn_version is None)
    with shared(config.producer, config.commit_log_topic) as driver:
        committed = driver.commit(owner, batch)
    if plan is None:
        _remember(owner, batch.number)
    return committed


def abort(
    config: SinkConfig,
    plan: TransactionPlan | None,
    messages: Sequence[TaskCommitMessage],
    batch_id: int | None,
    *,
    tasks_may_live: bool,
) -> tuple[str, ...]:
    """Undoes what is not decided; gives the ids of orphans that it ended. Raises KafkaError."""
    from spark_kafka_sink.transactions.exactly_once import shared

    if plan is not None and plan.skips:
        return ()
    number = _number(plan) if plan is not None else -1 if batch_id is None else batch_id
    if plan is None and not messages:
        owner = _remembered_owner(log_key(prefix_of(config, streaming=True)), number)
        if owner is None:
            _log.warning(
                "kprod abort: no task told whose run this is; what tasks left open is ended at the "
                "next start's first commit, or after kafka.transaction.timeout.ms (%d)",
                config.producer.transaction_timeout_ms,
            )
            return ()
    else:
        owner = _owner(config, plan, messages)
    prepared = prepared_transactions(messages, owner)
    with shared(config.producer, config.commit_log_topic) as driver:
        return driver.abort(owner, number, prepared, tasks_may_live=tasks_may_live)


def prepared_transactions(
    messages: Sequence[TaskCommitMessage], owner: Owner
) -> tuple[PreparedTransaction, ...]:
    """One for each task that wrote a row; CommitError unless each is one that its task could have.

    An id of somebody else would end a stranger's transaction, with our rights.
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
        problem = _problem(prepared, message, owner)
        if prepared.transactional_id in found:
            problem = "another task has it too"
        if problem is not None:
            raise CommitError(
                f"task {index} names transaction "
                f"'{safe_text(prepared.transactional_id)}', which is not its own: {problem}"
            )
        found[prepared.transactional_id] = prepared
    return tuple(found.values())


def _problem(prepared: PreparedTransaction, message: TaskCommitMessage, owner: Owner) -> str | None:
    found = parse(prepared.transactional_id)
    if found is None:
        return "it is no transactional id of a task"
    if found.prefix != owner.prefix:
        return f"its prefix is not '{owner.prefix}'"
    if found.run != owner.run_id:
        return f"its run is not {owner.run_id}"
    if owner.is_stream != bool(found.worker):
        return "it is one of a stream" if found.worker else "it is one of a batch job"
    if not owner.is_stream and found.number != message.task_attempt_id:
        return f"its task attempt is not {message.task_attempt_id}"
    told = (message.producer_id, message.producer_epoch)
    if told != (prepared.producer_id, prepared.producer_epoch):
        return "its producer id is not the task's"
    return None


def _owner(
    config: SinkConfig, plan: TransactionPlan | None, messages: Sequence[TaskCommitMessage]
) -> Owner:
    """Who commits: of a job, what was planned; of a stream, what all tasks say."""
    from spark_kafka_sink.transactions.ownership import Owner

    if plan is not None:
        if any(m.generation != plan.generation for m in messages):
            raise CommitError("a task's commit message is of another plan than this writer's")
        # Of a foreachBatch, whose versions are micro-batches: then they are of one query only.
        counts = {m.query_id if m.batch_id == plan.txn_version else "" for m in messages}
        counted_by = counts.pop() if len(counts) == 1 else ""
        return Owner(plan.key, plan.job, "", plan.generation, counted_by)
    told = {(m.run_id, m.query_id, m.generation) for m in messages}
    if len(told) != 1:
        raise CommitError(
            f"the commit messages of one micro-batch name {len(told)} runs, queries or "
            "generations of the commit log; they must be of one"
        )
    run_id, query_id, generation = told.pop()
    if not run_id or not query_id or generation < 0:
        raise CommitError(
            "the commit messages don't say which run of which query they are of",
            hint="the micro-batch was written without deliveryGuarantee=exactly-once",
        )
    return Owner(log_key(prefix_of(config, streaming=True)), run_id, query_id, generation)


def _number(plan: TransactionPlan) -> int:
    return 0 if plan.txn_version is None else plan.txn_version


def _remembered_owner(key: str, number: int) -> Owner | None:
    """Whose micro-batch ``number``, of which nothing is known, must be."""
    owner, committed = _last_owner.get(key, (None, number))
    return owner if number > committed else None


def _remember(owner: Owner, number: int) -> None:
    _last_owner.pop(owner.key, None)
    _last_owner[owner.key] = (owner, number)
    while len(_last_owner) > _REMEMBERED:
        del _last_owner[next(iter(_last_owner))]
