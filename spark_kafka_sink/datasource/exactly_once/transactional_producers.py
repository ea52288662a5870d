"""Producers for exactly-once: the transactional id of a task, and the rules for its reuse.

This module chooses a transactional id for a task, and begins and prepares the task's transaction.
It remembers the ids that this worker process has used. A producer with a prepared transaction can
be *warm*: it is kept open for a later task (``producer_cache``).

An id is ``{key}~{run}~g{generation}.{driver}.{token}~{k}`` (``transactional_ids``):

- ``key`` is the name of the query or job in the commit log.
- ``run`` is the id of a run: one start of the query or job.
- ``generation`` is a number of the key in the commit log, read when the batch was planned. It grows
  when another run takes over the key.
- ``driver`` is the driver's token (``driver_identity``).
- ``token`` identifies this process. A fork gets a new token, so no two processes ever share an id.
- ``k`` is the smallest free number. A number is in use from the moment when a task acquires the id
  with this number. The number is free again when the batch of that task is done, according to the
  driver's plan (``last_done``).

An id is never used again in these cases:

- The attempt that used the id has failed.
- A request InitProducerId for the id timed out and was sent again.
- The coordinator does not report that the last transaction with the id was committed.

docs/design/exactly-once.md has the reasons, in "Exactly-once, the tasks' side" and "Exactly-once,
the driver's side".

An example: batch 7 gives a worker three tasks, and ``last_done`` is 6 at planning.

* Task A takes k=0, which batch 6 used last, and prepares. Its producer is kept warm.
* Task B takes k=1, because task A uses k=0. Task B fails, so k=1 is never used again.
* Task C takes k=2, and prepares.
* Batch 8 is planned with ``last_done`` 7. The first task of batch 8 takes k=0 with the warm
  producer. The producer sends DescribeTransactions (the response is CompleteCommit) and
  InitProducerId. Then the task begins its transaction.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import KafkaError, KafkaTimeoutError
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.write.producer_cache import (
    ProducerCache,
    ProducerFactory,
    close,
    effective_config,
    new_producer,
    process_cache,
)
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.transactional_ids import TransactionalId

if TYPE_CHECKING:
    from spark_kafka_sink.producer.kafka_producer import KafkaProducer

T = TypeVar("T")

#: How long a failed attempt may take to abort its transaction, in ms. If the transaction is still
#: open after this time, the sweep of a later commit aborts the transaction.
ABANDON_MS = 5_000

#: The largest number of ids for which a task tries InitProducerId.
_MOST_IDS = 3
_NEVER = 2**63
#: Separates the driver's token and the worker's.
_OF_DRIVER = "."


class WorkerIds:
    """The transactional ids that this worker process has used. ``token`` is unique for the process,
    and is a part of each id. Thread-safe: ``_lock`` guards all fields.

    The object remembers each used id until the process ends. The number of a run's ids grows with
    the tasks of its largest micro-batch in this process, and with failed attempts.
    """

    def __init__(self, token: str = "") -> None:
        self.token = token or os.urandom(6).hex()
        self._lock = threading.Lock()
        #: By key, run and generation: the batch of the last use of each k. Without its entry, an id
        #: would be used again. A run that takes over a key raises the generation at the commit of
        #: its first micro-batch. So later micro-batches of the run have entries of their own.
        self._used: dict[tuple[str, str, int | None], list[int]] = {}

    def acquire(
        self, plan: TransactionPlan, run: str, batch_id: int, last_done: int
    ) -> tuple[TransactionalId, bool]:
        """Acquires a transactional id for a task of the batch ``batch_id``. Returns the id, and
        whether this process has used the id before. Batches up to ``last_done`` are done, so the
        ids that they have used are free.
        """
        found = self.acquire_used(plan, run, batch_id, last_done)
        if found is not None:
            return found, True
        with self._lock:
            used = self._used.setdefault((plan.key, run, plan.state.generation), [])
            used.append(batch_id)
            k = len(used) - 1
        return self._id(plan, run, k), False

    def acquire_used(
        self, plan: TransactionPlan, run: str, batch_id: int, last_done: int
    ) -> TransactionalId | None:
        """Like :meth:`acquire`, but acquires only an id that this process has used before. Returns
        None if there is none.
        """
        with self._lock:
            used = self._used.get((plan.key, run, plan.state.generation), [])
            k = _free(used, last_done)
            if k == len(used):
                return None
            used[k] = batch_id
        return self._id(plan, run, k)

    def _id(self, plan: TransactionPlan, run: str, k: int) -> TransactionalId:
        worker = f"{plan.driver}{_OF_DRIVER}{self.token}" if plan.driver else self.token
        return TransactionalId(plan.key, run, worker, k, plan.state.generation)

    def retire(self, id_: TransactionalId) -> None:
        """Marks the id so that it is never used again."""
        self._note(id_, _NEVER)

    def free(self, id_: TransactionalId) -> None:
        """Frees an acquired id under which no transaction was begun."""
        self._note(id_, NOTHING_DONE)

    def _note(self, id_: TransactionalId, last_use: int) -> None:
        with self._lock:
            self._used[id_.key, id_.run, id_.planned][id_.number] = last_use


def _free(used: list[int], last_done: int) -> int:
    """Returns the smallest free ``k``: the number at the end of a transactional id.

    ``used[k]`` is the last batch that has used the id with the number ``k``. The number is free if
    that batch is done, so not later than ``last_done``. If no number in ``used`` is free, the
    result is the next new number: the length of ``used``.
    """
    return next((k for k, last_use in enumerate(used) if last_use <= last_done), len(used))


@dataclass(frozen=True, slots=True)
class TaskIds:
    """Acquires transactional ids for one task.

    - ``worker`` has the ids of this process.
    - ``run`` and ``batch_id`` are the run and the number of the task's batch.
    - ``last_done`` is the last done batch. The ids that this batch and earlier batches have used
      are free.
    """

    worker: WorkerIds
    plan: TransactionPlan
    run: str
    batch_id: int
    last_done: int

    def next(self) -> tuple[TransactionalId, bool]:
        return self.worker.acquire(self.plan, self.run, self.batch_id, self.last_done)

    def next_used(self) -> TransactionalId | None:
        return self.worker.acquire_used(self.plan, self.run, self.batch_id, self.last_done)


class TransactionalProducers:
    """The :class:`ProducerSource` of a task with exactly-once. A task acquires one transactional id
    for one transaction.

    ``warm`` is a cache of *warm* producers, which earlier tasks of this process have left open:

    - If the cache has a producer for the task, the task acquires the producer and its id while it
      waits for its first row (:meth:`begin`).
    - If the cache has no producer for the task, the task acquires an id when its first row arrives,
      and creates a producer.
    - If ``warm`` is None, the producer is closed at the end of the task. This is the case for a job
      that writes no micro-batches.
    """

    def __init__(
        self,
        ids: TaskIds,
        config: ProducerConfig,
        cluster: Cluster | None,
        factory: ProducerFactory,
        warm: ProducerCache | None = None,
    ) -> None:
        self._ids = ids
        self._config = config
        self._cluster = cluster
        self._factory = factory
        self._warm = warm
        self._id: TransactionalId | None = None
        #: The warm producer whose requests :meth:`begin` has sent.
        self._begun: KafkaProducer | None = None

    def begin(self) -> None:
        """Takes a producer from the cache for :meth:`acquire`, and requests the state of the
        producer's last transaction (DescribeTransactions). Does not wait for the response. Does
        nothing if the cache has no producer for the task.
        """
        # Spark takes longer to make the first rows than the coordinator takes to respond. But
        # InitProducerId is sent only after a row has come: it leaves the id in the state Empty, and
        # the sweep of the next commit aborts an id in this state. A task without a warm producer
        # opens no connection before a row has come.
        id_ = None if self._warm is None else self._ids.next_used()
        if id_ is None:
            return
        self._id, self._begun = id_, self._warm_of(id_)
        if self._begun is None:
            self._ids.worker.free(id_)

    def leave(self) -> None:
        """Returns the producer of :meth:`begin` to the cache, and frees its transactional id. Does
        nothing if :meth:`begin` has found no producer. Call this method instead of :meth:`acquire`
        if the task gets no rows.
        """
        # (The response to DescribeTransactions may arrive later. Nothing uses this response.)
        begun, self._begun = self._begun, None
        if begun is not None:
            assert self._id is not None
            self.release(begun)
            self._ids.worker.free(self._id)

    def acquire(self) -> KafkaProducer:
        """Returns a producer that has begun a transaction. Each request to a coordinator waits for
        at most max.block.ms.

        If InitProducerId for a transactional id is sent again after a timeout, the id is not used,
        and another id is tried. Raises KafkaTimeoutError if this happens for three ids, or if a
        coordinator does not respond within max.block.ms.
        """
        doubts = 0
        while doubts < _MOST_IDS:
            producer, is_used = self._next()
            try:
                # A transaction that was not committed may still be open. For example:
                #   1. Two attempts of one task prepare. The driver commits one of them.
                #   2. The coordinator of the other id also leads its partition, and stops: no sweep
                #      sees the transaction. (A sweep also misses it if the coordinator is moving,
                #      or if the transaction was prepared after the sweep.)
                #   3. The next batch takes this id. InitProducerId aborts the transaction without a
                #      check of the leaders, and Kafka 4.3.1 drops the marker of the abort.
                #   4. The commit of the next batch makes the rows of the other attempt visible.
                # InitProducerId is sent even if the producer could keep its producer id and epoch.
                # It succeeds only after the markers of the previous transaction are written.
                if not is_used or _was_committed(producer):
                    _answer(producer.init_transactions)
                    if not producer.identity_in_doubt:
                        producer.begin_transaction()
                        return producer
                    # The first InitProducerId may arrive late, after the rows are written and the
                    # driver has checked the transaction. It would abort the transaction, and the
                    # driver would decide a batch that lacks the rows of this task.
                    doubts += 1
            except BaseException:
                self.discard(producer)
                raise
            self.discard(producer)
        raise KafkaTimeoutError(
            f"InitProducerId for '{self._id}' timed out and was retried; the first request may "
            "still reach the broker and abort this transaction",
            hint="this attempt has written nothing, and the next attempt has another"
            " transactional.id",
        )

    def _next(self) -> tuple[KafkaProducer, bool]:
        """Returns a producer with a transactional id, and whether this process has used the id
        before. The first call returns the producer that :meth:`begin` has taken, if this producer
        can still be used. In any other case, the producer comes from the cache, or is new.
        """
        begun, self._begun = self._begun, None
        if begun is not None and begun.reusable:
            return begun, True
        if begun is not None:
            self.discard(begun)  # a request of begin has failed, perhaps long before the first row
        self._id, is_used = self._ids.next()
        warm = self._warm_of(self._id)
        return warm or self._factory(self._config, self._cluster), is_used

    def _warm_of(self, id_: TransactionalId) -> KafkaProducer | None:
        self._config = replace(self._config, transactional_id=str(id_))
        warm = None if self._warm is None else self._warm.take(self._config)
        if warm is not None:
            with contextlib.suppress(KafkaError):  # acquire raises it, if there are rows
                warm.begin_reuse()
        return warm

    def prepare(self, producer: KafkaProducer) -> PreparedTransaction:
        """Prepares the transaction: waits until all rows are acknowledged, and returns the identity
        of the transaction. The driver needs this identity to commit the transaction.

        Raises KafkaTimeoutError if an AddPartitionsToTxn request may still arrive after the commit.
        This is possible if the request got no response and was sent again.
        """
        # A late AddPartitionsToTxn would begin another transaction with the same transactional id,
        # and the coordinator would describe only that other transaction. When the other transaction
        # times out, the committed transaction would look lost.
        if producer.identity_in_doubt:
            raise KafkaTimeoutError(
                f"AddPartitionsToTxn for '{self._id}' timed out and was retried; the first request "
                "may still reach the broker, after the commit",
                hint="this attempt fails, and Spark starts another one",
            )
        return producer.prepare()

    def release(self, producer: KafkaProducer) -> None:
        if self._warm is None:
            close(producer)
        else:
            self._warm.keep(self._config, producer)

    def discard(self, producer: KafkaProducer) -> None:
        """Tries to abort the open transaction of the producer, and closes the producer. Takes at
        most 5 s. Never raises. The transactional id is never used again.

        The transaction is aborted only if each of its partitions has a leader. The abort is sent
        within one second after this check, or not at all.
        """
        assert self._id is not None
        # In a partition without a leader, Kafka 4.3.1 loses the marker of an abort, and the rows
        # stay in an open transaction. If the id were used again, the commit marker of its next
        # transaction would also commit these rows.
        self._ids.worker.retire(self._id)
        with contextlib.suppress(Exception):  # the caller raises the cause
            producer.abandon(ABANDON_MS)


def _was_committed(producer: KafkaProducer) -> bool:
    return TransactionState(_answer(producer.describe_last_transaction)).is_committed


def _answer(call: Callable[[], T]) -> T:
    """Returns the result of ``call``. If ``call`` raises KafkaTimeoutError, raises it with a hint
    that suggests ``kprod check``.
    """
    try:
        return call()
    except KafkaTimeoutError as error:
        hint = "see whether its brokers run and can be reached: 'kprod check'"
        raise KafkaTimeoutError(error.message, hint=hint, kind=error.kind) from error


def producers_of_task(
    plan: TransactionPlan,
    config: ProducerConfig,
    cluster: Cluster | None,
    identity: TaskIdentity,
    *,
    factory: ProducerFactory = new_producer,
    worker: Worker | None = None,
) -> TransactionalProducers:
    """Creates the producer source for a task of ``plan``. The source acquires a transactional id
    later: see :class:`TransactionalProducers`.
    """
    config = effective_config(config, identity.app_id)
    worker = process_worker() if worker is None else worker
    run, number, last_done = identity.run_id, identity.batch_id, plan.state.last_done
    if plan.context is not None and plan.number is not None:
        run, number = plan.context.run, plan.number
    if plan.numbering is Numbering.ONCE:
        last_done = NOTHING_DONE

    # Only a run of micro-batches uses an id often enough to keep its producer.
    warm = worker.warm if plan.numbering.is_of_micro_batches else None
    ids = TaskIds(worker.ids, plan, run, number, last_done)
    return TransactionalProducers(ids, config, cluster, factory, warm)


def is_of_driver(id_: TransactionalId, driver: str) -> bool:
    """Whether the transactional id belongs to a task of the driver with the token ``driver``."""
    return id_.worker.startswith(driver + _OF_DRIVER)


@dataclass(frozen=True, slots=True)
class Worker:
    """The transactional ids and warm producers that a worker process keeps between its tasks."""

    ids: WorkerIds
    warm: ProducerCache


#: The ids and warm producers of this process.
process_worker = ProcessLocal(lambda: Worker(WorkerIds(), process_cache()))
