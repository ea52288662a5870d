"""Functions for ``writeStream.foreachBatch`` that write each micro-batch exactly once.

Owns: :func:`foreach_batch`, which gives every write its identity (txnAppId is the name, txnVersion
the micro-batch's id), and :func:`transaction`, in which several writes are decided together. Both
run in the user's function. Never: the writing itself, which the batch writer of ``format("kprod")``
does.

Spark runs a micro-batch again after a failure, with the same id. A batch write can't tell which of
the writes in one foreachBatch function it is, so the user names each.

**The run** is an id that is generated once per name and run of a query (``named_writes``), so an
object that is made in each call of the function has the run of the one before. The commit log
treats it like a stream's run: two queries with one name stop each other, a new checkpoint is an
error. A failed write is followed by a new run, because its abort has aborted the previous one.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from spark_kafka_sink.base.errors import CommitError, ConfigError, IllegalStateError, safe_text
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.config.given_options import CONFIG_FILE, PREFIX, given_options
from spark_kafka_sink.config.option_table import COMMIT_LOG_TOPIC, SINK_OPTIONS
from spark_kafka_sink.config.sink_config import TXN_CONTEXT, DeliveryGuarantee
from spark_kafka_sink.datasource.calling_query import CallingQuery, calling_query
from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint
from spark_kafka_sink.datasource.exactly_once.named_writes import NamedWrites, Place, Written
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.transactions.transactional_ids import (
    DEFAULT_PREFIX,
    check_part,
    log_key,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

OptionText = str | int | float | bool

#: The options that these functions set, in lower case.
_ITS_OWN = ("txnappid", "txnversion", TXN_CONTEXT.lower())
#: Those in which the writes of a transaction may differ, in lower case.
_OF_ONE_WRITE = frozenset(o.name.lower() for o in SINK_OPTIONS.values() if o.of_one_write)
#: Those by which a write is known, in lower case: a file may hold them.
_IDENTITY = _OF_ONE_WRITE | {CONFIG_FILE.lower()}

_GUARANTEE = SINK_OPTIONS["deliveryGuarantee"]

_runs = ProcessLocal(NamedWrites)


@dataclass(frozen=True, slots=True)
class ForeachBatch:
    """Writes a micro-batch with ``options`` as ``name``. Picklable (Spark Connect sends it)."""

    name: str
    options: tuple[tuple[str, OptionText], ...] = field(repr=False)

    def __repr__(self) -> str:
        """Names only: a value may be a secret, and a notebook shows its last line."""
        names = ", ".join(name for name, _ in self.options)
        return f"foreach_batch({self.name!r}, with the options {names})"

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Called by Spark once for each micro-batch, and again for one that was not finished.

        Raises CommitError, before anything is written, for a micro-batch that can't be the next one
        of this name, and ConfigError for another DataFrame with a number that is done, and while
        another write of this name is running.
        """
        options = dict(self.options)
        micro_batch = _MicroBatch(self.name, batch_id, options)
        with _runs().open(micro_batch.place, _described("foreach_batch", self.name)):
            query = calling_query(batch.sparkSession, batch_id)
            written = Written(query.run, batch_id, Counter([_plan_of(batch, query, options)]))
            _runs().check(micro_batch.place, self.name, written, whole=True)
            try:
                context = micro_batch.context(batch.sparkSession, query)
                _save(batch, self.name, batch_id, options, context)
            except BaseException:
                _runs().end(micro_batch.place, query.run, query.session)
                raise
            _runs().wrote(micro_batch.place, written)


def foreach_batch(name: str, **options: OptionText) -> ForeachBatch:
    """A function for ``writeStream.foreachBatch`` that writes every micro-batch exactly once.

        write = foreach_batch("orders", **{"kafka.bootstrap.servers": "host:9092", "topic": "t"})
        df.writeStream.foreachBatch(write).option("checkpointLocation", path).start()

    ``name`` identifies the write: unique among all writes with the same transactionalIdPrefix
    (``kprod`` unless set), the same after a restart, and a new one for a new checkpoint, whose ids
    begin at 0 again. ``options`` are those of the sink. With the query's checkpointLocation among
    them, a micro-batch that runs again is known by its sources' offsets; without, by its rows and
    bytes. It also supports outputMode("update"), which Spark does not support for Python sinks. In
    your own foreachBatch function, from threads and over Spark Connect, call the returned object.

    Raises ConfigError for an invalid name, and for options that contradict it.
    """
    check_part("the name given to foreach_batch", name)
    _check("foreach_batch", options)
    return ForeachBatch(name, tuple(options.items()))


class _State(Enum):
    OPEN = "is open"
    ENDING = "is being ended"
    COMMITTED = "is committed already"
    ABORTED = "is aborted"


class Transaction:
    """Several writes of one micro-batch that become visible together, or not at all. Thread-safe.
    Created by :func:`transaction`. ``_lock`` guards the fields after it.
    """

    def __init__(self, name: str, number: int, options: Mapping[str, OptionText]) -> None:
        self._name = name
        self._number = number
        self._options = dict(options)
        self._micro_batch = _MicroBatch(name, number, self._options)
        self._token = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._state = _State.OPEN
        self._plans: Counter[int] = Counter()
        self._running = 0
        self._failure: BaseException | None = None
        #: The first write's.
        self._session: SparkSession | None = None
        self._query = CallingQuery()
        self._context: WriteContext | None = None

    @property
    def place(self) -> Place:
        return self._micro_batch.place

    def write(self, batch: DataFrame, **options: OptionText) -> None:
        """Write ``batch``, which is not visible yet. ``options`` add to the transaction's: topic,
        columns and formats. Blocks until all rows are acknowledged.

        Raises what the write raises; then the whole transaction fails. IllegalStateError, and
        nothing is sent, after the transaction's end; CommitError after a failed write.
        """
        with self._counted():
            _check("transaction", options)
            _check_of_one_write(options, self._options)
            options = {**self._options, **options}
            context = self._context_of(batch, options)
            _save(batch, self._name, self._number, options, context)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A write that runs, unless it comes too late; its error is the block's."""
        with self._lock:
            self._refuse_ended("a write comes behind its end, and sends nothing")
            self._refuse_failed()
            self._running += 1
        failure: BaseException | None = None
        try:
            yield
        except BaseException as error:
            failure = error
            raise
        finally:
            with self._lock:
                self._running -= 1
                self._failure = self._failure or failure

    def _context_of(self, batch: DataFrame, options: Mapping[str, OptionText]) -> WriteContext:
        """The context of a further write."""
        session = batch.sparkSession
        with self._lock:
            if self._context is None:
                self._session, self._query = session, calling_query(session, self._number)
                self._context = self._micro_batch.context(session, self._query, self._token)
            before = self._plans
            plans = before + Counter([_plan_of(batch, self._query, options)])
            self._check_plans(plans, whole=False)
            self._plans = plans
            return self._context.of_part(before.total())

    def commit(self) -> None:
        """Decide all writes. The end of the block does it, unless it was done. Raises CommitError
        when one failed or is still running, and what a commit raises.
        """
        with self._lock:
            self._refuse_ended("it can't be committed")
            self._state = _State.ENDING
            running, failure = self._running, self._failure
        if running or failure is not None:
            raise CommitError(
                f"{self._shown} is aborted: "
                + (f"{running} of its writes are still running" if running else "a write failed"),
                hint="end every write before the block ends, and let its errors out of it",
            ) from failure
        self._check_plans(self._plans, whole=True)
        self._end(abort=False)
        _runs().wrote(self.place, Written(self._query.run, self._number, self._plans))
        self._state = _State.COMMITTED

    def abort(self) -> None:
        """Abort the prepared writes; the caller raises the error. Does nothing after a commit."""
        with self._lock:
            if self._state in (_State.COMMITTED, _State.ABORTED):
                return
            self._state = _State.ABORTED
        _runs().end(self.place, self._query.run, self._query.session)
        try:
            self._end(abort=True)
        except Exception as error:  # noqa: BLE001 - the error that led here is the one to see
            # Usually a failed write has aborted all of them, and this one is superseded.
            _log.info("the abort of transaction '%s': %s", self._name, error)

    def end(self) -> None:
        """The block's end without an error."""
        if self._state is not _State.COMMITTED:
            self.commit()

    @property
    def _shown(self) -> str:
        return f"the transaction '{self._name}' of batch {self._number}"

    def _refuse_ended(self, what: str) -> None:
        if self._state is not _State.OPEN:
            raise IllegalStateError(
                f"{self._shown} {self._state.value}: {what}",
                hint="all writes of a micro-batch belong into its 'with transaction(...)' block",
            )

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise CommitError(
                f"{self._shown} is aborted at its end, because a write failed; this one sends "
                "nothing",
                hint="let the error of a failed write out of the block",
            ) from self._failure

    def _check_plans(self, plans: Counter[int], *, whole: bool) -> None:
        written = Written(self._query.run, self._number, plans)
        _runs().check(self.place, self._name, written, whole=whole)

    def _end(self, *, abort: bool) -> None:
        """By a write without rows: its commit runs where brokers are surely reachable."""
        session, context = self._session, self._context
        if session is None or context is None:
            return  # nothing was written
        # Spark has ended the tasks of a write that raised; of an interrupted one they may run.
        tasks_may_run = self._running > 0 or not isinstance(self._failure, Exception | None)
        context = context.of_end(
            sum(self._plans.values()), abort=abort, tasks_may_run=tasks_may_run
        )
        # A key, too: the block's topic may be compacted.
        columns = [f"CAST(id AS STRING) AS {name}" for name in ("key", "value", "topic")]
        nothing = session.range(0).selectExpr(*columns)
        _save(nothing, self._name, self._number, self._options, context)


@contextmanager
def transaction(name: str, batch_id: int, **options: OptionText) -> Iterator[Transaction]:
    """Several writes that are decided together: all of them become visible, or none does.

        def write(batch, batch_id):
            with transaction("orders", batch_id, **kafka) as t:
                t.write(batch.where("kind = 'order'"), topic="orders")
                t.write(batch.where("kind = 'payment'"), topic="payments")

        df.writeStream.foreachBatch(write).start()

    ``name`` and ``batch_id`` are as those of :func:`foreach_batch`; ``options`` are the sink's, for
    all writes, which may differ in topic, columns and formats only. Writes may run in threads; each
    must have ended when the block ends. When the block raises, or a write does, all are aborted.

    Raises ConfigError while another block of that name is open in this process.
    """
    check_part("the name given to transaction", name)
    _check("transaction", options)
    block = Transaction(name, batch_id, options)
    with _runs().open(block.place, _described("transaction", name)):
        try:
            yield block
            block.end()
        except BaseException:
            block.abort()
            raise


class _MicroBatch:
    """A micro-batch of one name: where it is decided, and what its writes say of it."""

    def __init__(self, name: str, number: int, options: Mapping[str, OptionText]) -> None:
        self._given = given_options(options, PREFIX)
        self._number = number
        servers = self._given.producer.get("bootstrap.servers")
        self.place = Place(
            "" if servers is None else str(servers.value),
            self._text("commitLogTopic") or COMMIT_LOG_TOPIC,
            log_key(self._text("transactionalIdPrefix") or DEFAULT_PREFIX, name),
        )

    def context(self, session: SparkSession, query: CallingQuery, token: str = "") -> WriteContext:
        """ConfigError when offsetsGroup needs what can't be read."""
        location = self._text("checkpointLocation")
        offsets, digest = None, ""
        checkpoint = None if location is None else Checkpoint(location, session)
        if self._text("offsetsGroup") is not None:
            offsets = self._offsets(checkpoint, query)
        # (A thread of a classic session that names no query may write another DataFrame: then rows
        # are compared.)
        if checkpoint is not None and (query.id or query.run or not query.session):
            digest = checkpoint.known_digest(self._number, query.id)
        run = _runs().run(self.place, query.run, query.session)
        return WriteContext(run, query.id, token=token, offsets=offsets, digest=digest)

    def _offsets(
        self, checkpoint: Checkpoint | None, query: CallingQuery
    ) -> dict[str, dict[str, int]]:
        """The offsets for the option offsetsGroup, by topic and partition."""
        if checkpoint is None:
            raise ConfigError(
                "offsetsGroup needs the option checkpointLocation: offsets are read there",
                hint="give foreach_batch or transaction the query's own checkpointLocation, too",
            )
        checkpoint.check(self._number, query.id)
        found: dict[str, dict[str, int]] = {}
        for tp, offset in checkpoint.offsets(self._number).items():
            found.setdefault(tp.topic, {})[str(tp.partition)] = offset
        return found

    def _text(self, option: str) -> str | None:
        """The option, or that of the ``configFile``."""
        given = self._given.own.get(option)
        return None if given is None else str(given.value)


def _save(
    batch: DataFrame,
    name: str,
    number: int,
    options: Mapping[str, OptionText],
    context: WriteContext,
) -> None:
    _make_active(batch.sparkSession)
    (
        batch.write.format("kprod")
        .options(**options)
        .option("deliveryGuarantee", "exactly-once")
        .option("txnAppId", name)
        .option("txnVersion", number)
        .option(TXN_CONTEXT, context.to_option())
        .mode("append")
        .save()
    )


def _plan_of(batch: DataFrame, query: CallingQuery, options: Mapping[str, OptionText]) -> int:
    """A hash of what is written: the DataFrame's plan, its columns' names, which the plan's own
    hash leaves out, and the options in which writes may differ. 0 outside of a query, where it is
    not needed.
    """
    if not query.run:
        return 0
    found: list[object] = [
        (name, str(value)) for key, value in options.items() if (name := key.lower()) in _IDENTITY
    ]
    with contextlib.suppress(Exception):  # the write must not fail for it
        found.append(batch.semanticHash())
        found.append(batch.schema.json())
    return hash(frozenset(found))


def _described(function: str, name: str) -> str:
    """The call of ``function`` that is running, by the user's line and the thread."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack reads the files of all callers
    while frame.f_back is not None and frame.f_code.co_filename in (__file__, contextlib.__file__):
        frame = frame.f_back
    return (
        f"{function}('{name}') at {safe_text(frame.f_code.co_filename)}:{frame.f_lineno} in thread "
        f"{threading.current_thread().name}"
    )


def _make_active(session: SparkSession) -> None:
    """Spark resolves a Python data source in the thread's active session, which a user thread does
    not have ("DATA_SOURCE_NOT_FOUND") before its first DataFrame.
    """
    active = getattr(type(session), "getActiveSession", lambda: session)()
    if active is None:
        session.createDataFrame([], "value STRING")


def _check(whose: str, options: Mapping[str, OptionText]) -> None:
    for key, value in options.items():
        if key.lower() in _ITS_OWN:
            raise ConfigError(
                f"{whose} sets {safe_text(key)} itself: to its name, and to the micro-batch's id",
                hint="remove it from the options",
            )
        if key.lower() == _GUARANTEE.name.lower() and (
            _GUARANTEE.read(value, _GUARANTEE.name) != DeliveryGuarantee.EXACTLY_ONCE
        ):
            raise ConfigError(
                f"{whose} is exactly-once, and deliveryGuarantee is {safe_text(str(value))}",
                hint="for another guarantee, write the batch with df.write in a function of your "
                "own",
            )


def _check_of_one_write(
    options: Mapping[str, OptionText], of_all: Mapping[str, OptionText]
) -> None:
    """ConfigError for an option that would lead one write out of its transaction: it would be
    decided elsewhere, or never.
    """
    same = {key.lower(): str(value) for key, value in of_all.items()}
    for key, value in options.items():
        if key.lower() not in _OF_ONE_WRITE and same.get(key.lower()) != str(value):
            raise ConfigError(
                f"{safe_text(key)} of one write: the writes of a transaction are decided together, "
                "so they may differ in topic, columns and formats only",
                hint="give it to transaction, for all of its writes",
            )
