"""Producers for exactly-once: which transactional id a task gets, and when one is used again.

Owns: the worker's token, its ids and what they were last used for, and the warm producers that wait
with a prepared transaction. It stands where ``producer_cache`` stands without transactions. Never:
a transaction's states (``producer/transaction/transaction_manager.py``), a row.

**No two processes ever share an id.** Spark gives a failed, a speculative and a forgotten attempt
of one task the same names, and any of them may come back late: a stalled InitProducerId of one
would abort what another has prepared. So
an id belongs to a worker process: ``{key}~{run}~g{generation}.{driver}.{token}~{k}``. The token is
made once in a process, anew after a fork; before it stands the driver's (``driver_identity``), and
the log's generation when the batch was planned (``transactional_ids``). k is the smallest whose
last use is over for sure: the batch of that use is done, as the driver's plan says (``last_done``),
and the driver has not burnt the id (``sweep.py``). A use counts from the moment on when the id is
taken, whether its attempt failed or not.

A micro-batch that gives a worker three tasks, with lastDone 6 when it is planned::

    task A of batch 7   k=0 (last used in 6: over)      prepared, kept warm
    task B of batch 7   k=1 (0 is used in 7)            fails, is fenced; used in 7 all the same
    task C of batch 7   k=2                             prepared
    batch 8, planned with lastDone 7: A' takes k=0, warm: forget_prepared, InitProducerId, begin

InitProducerId, even where the identity could be kept: it waits for the markers of the transaction
before, and aborts one that nobody decided on (the loser of a speculative pair).

**An id whose InitProducerId got lost is never used.** The producer asks again, as it must; but
should the first one be on its way still, it hurts the transaction that the second one began::

    InitProducerId               on its way for long; request.timeout.ms passes
    InitProducerId, again        answered; rows, prepare; the driver has checked the transaction
    the first one arrives        the transaction is aborted
    the driver decides           a batch of which one task's rows are gone
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, cast

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
from spark_kafka_sink.datasource.write.write_task import TaskIdentity, TaskProducer
from spark_kafka_sink.errors import ErrorCode, KafkaTimeoutError
from spark_kafka_sink.network.process_local import ProcessLocal
from spark_kafka_sink.producer.transaction.transaction_states import PreparedTransaction
from spark_kafka_sink.protocol.cluster import Cluster
from spark_kafka_sink.transactions.commit_state import NOTHING_DONE
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.transactional_ids import TransactionalId

#: How long a failed attempt may take to abort its transaction. The sweep ends what is left then.
ABANDON_MS = 5_000

#: Ids that a task tries at most.
_MOST_IDS = 3
_NEVER = 2**63
#: Between the driver's token and the worker's.
_OF_DRIVER = "."


class TransactionalProducer(TaskProducer, Protocol):
    """What a task needs of a producer with a transactional id (``KafkaProducer``)."""

    @property
    def identity_in_doubt(self) -> bool:
        """An InitProducerId or AddPartitionsToTxn of it may be on its way still."""
        ...

    def init_transactions(self) -> None: ...

    def begin_transaction(self) -> None: ...

    def prepare(self) -> PreparedTransaction:
        """From here on only the driver, or the broker's time-out, ends the transaction."""
        ...

    def forget_prepared(self) -> None:
        """The driver ended it; ``init_transactions`` comes next."""
        ...

    def abandon(self, timeout_ms: int) -> None:
        """Abort what is open, and close."""
        ...


class WorkerIds:
    """The ids of one process, whose ``token`` nobody else has. ``_lock`` guards all fields.

    Nothing is ever forgotten: an id that is not known as used would be used again. That is a number
    for each task of the largest micro-batch of each run (and of its first one, which takes over).
    """

    def __init__(self, token: str = "") -> None:
        self.token = token or os.urandom(6).hex()
        self._lock = threading.Lock()
        #: By key, run and generation: the batch in which each k was used last.
        self._used: dict[tuple[str, str, int | None], list[int]] = {}

    def take(
        self, plan: TransactionPlan, run: str, batch_id: int, last_done: int
    ) -> TransactionalId:
        """The id for the next task of ``batch_id``; it counts as used in that."""
        worker = f"{plan.driver}{_OF_DRIVER}{self.token}" if plan.driver else self.token
        burnt, generation = plan.state.burnt, plan.state.generation
        with self._lock:
            used = self._used.setdefault((plan.key, run, generation), [])
            for k, last_use in enumerate([*used, last_done]):
                found = TransactionalId(plan.key, run, worker, k, generation)
                if last_use <= last_done and str(found) not in burnt:
                    break
            if k == len(used):
                used.append(batch_id)
            else:
                used[k] = batch_id
        return found

    def give_up(self, id_: TransactionalId) -> None:
        """It is never taken again."""
        with self._lock:
            self._used[id_.key, id_.run, id_.planned][id_.number] = _NEVER


class TransactionalProducers:
    """The :class:`ProducerSource` of one task: one id, taken with the first row, one transaction.

    ``warm`` is None when no later task can use the id.
    """

    def __init__(
        self,
        next_id: Callable[[], TransactionalId],
        config: ProducerConfig,
        cluster: Cluster | None,
        factory: ProducerFactory,
        ids: WorkerIds,
        warm: ProducerCache | None = None,
    ) -> None:
        self._next_id = next_id
        self._ids = ids
        self._config = config
        self._cluster = cluster
        self._factory = factory
        self._warm = warm
        self._id: TransactionalId | None = None

    def acquire(self) -> TaskProducer:
        """A producer with a transaction that has begun. Asks the coordinator, for max.block.ms.

        KafkaTimeoutError when InitProducerId gets lost and there is no other id to take.
        """
        for _ in range(_MOST_IDS):
            self._id = self._next_id()
            producer = self._begun(self._id)
            if producer is not None:
                return producer
            self._ids.give_up(self._id)
        raise KafkaTimeoutError(
            f"InitProducerId for '{self._id}' timed out and was retried; the first request may "
            "still reach the broker and abort this transaction",
            hint="this attempt has written nothing, and the next one has another transactional.id",
            code=ErrorCode.REQUEST_TIMED_OUT,
        )

    def _begun(self, id_: TransactionalId) -> TransactionalProducer | None:
        """With a transaction that has begun; None when its identity is in doubt."""
        self._config = replace(self._config, transactional_id=str(id_))
        warm = None if self._warm is None else self._warm.take(self._config)
        producer = _own(warm or self._factory(self._config, self._cluster))
        try:
            if warm is not None:
                producer.forget_prepared()
            producer.init_transactions()
            if producer.identity_in_doubt:
                _abandon(producer)
                return None
            producer.begin_transaction()
        except BaseException:
            _abandon(producer)
            raise
        return producer

    def prepare(self, producer: TaskProducer) -> PreparedTransaction:
        """KafkaTimeoutError when an AddPartitionsToTxn got lost: should it arrive after the commit,
        nobody could tell any more that the transaction was committed.
        """
        own = _own(producer)
        if own.identity_in_doubt:
            raise KafkaTimeoutError(
                f"AddPartitionsToTxn for '{self._id}' timed out and was retried; the first request "
                "may still reach the broker, behind the commit",
                hint="this attempt is given up, and Spark makes another one",
                code=ErrorCode.REQUEST_TIMED_OUT,
            )
        return own.prepare()

    def release(self, producer: TaskProducer) -> None:
        if self._warm is None:
            close(producer)
        else:
            self._warm.keep(self._config, producer)

    def discard(self, producer: TaskProducer) -> None:
        _abandon(_own(producer))


def producers_of_task(
    plan: TransactionPlan,
    config: ProducerConfig,
    cluster: Cluster | None,
    identity: TaskIdentity,
    *,
    factory: ProducerFactory = new_producer,
    worker: Worker | None = None,
) -> TransactionalProducers:
    """Where a task of ``plan`` gets its producer from. No id is taken before it is needed."""
    config = effective_config(config, identity.app_id)
    config = replace(config, two_phase_commit=plan.two_phase_commit)
    worker = process_worker() if worker is None else worker
    run, number, last_done = identity.run_id, identity.batch_id, plan.state.last_done
    if plan.context is not None and plan.number is not None:
        run, number = plan.context.run, plan.number
    if plan.numbering is Numbering.ONCE:
        last_done = NOTHING_DONE

    def next_id() -> TransactionalId:
        return worker.ids.take(plan, run, number, last_done)

    # The ids of other jobs are never used again.
    warm = worker.warm if plan.numbering.is_of_micro_batches else None
    return TransactionalProducers(next_id, config, cluster, factory, worker.ids, warm)


def is_of_driver(id_: TransactionalId, driver: str) -> bool:
    """A worker process took the id for a task that ``driver`` planned."""
    return id_.worker.startswith(driver + _OF_DRIVER)


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker process keeps between its tasks."""

    ids: WorkerIds
    warm: ProducerCache


#: The one of this process.
process_worker = ProcessLocal(lambda: Worker(WorkerIds(), process_cache()))


def _own(producer: TaskProducer) -> TransactionalProducer:
    """What :meth:`TransactionalProducers.acquire` gave comes back."""
    return cast("TransactionalProducer", producer)


def _abandon(producer: TransactionalProducer) -> None:
    with contextlib.suppress(Exception):  # the caller has its own error
        producer.abandon(ABANDON_MS)
