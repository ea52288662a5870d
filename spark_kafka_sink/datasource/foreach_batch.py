"""Functions for ``writeStream.foreachBatch`` that write each micro-batch exactly once.

Owns: :func:`foreach_batch`, which gives every write its identity (txnAppId is the name, txnVersion
the micro-batch's id), and :func:`transaction`, in which several writes are decided together. Both
run in the user's function. Never: the writing itself, which the batch writer of ``format("kprod")``
does.

Spark runs a micro-batch again after a failure, with the same id. A batch write can't tell which of
the writes in one foreachBatch function it is, so the user names each.

**The run** is an id that is generated once per query run (:class:`_Runs`), not taken from Spark's
local properties: user threads and Spark Connect have none. The commit log treats it like a stream's
run: two queries with one name stop each other, a new checkpoint is an error. A failed write is
followed by a new run, because its abort has aborted the previous one.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from spark_kafka_sink.config.given_options import given_options
from spark_kafka_sink.config.option_table import SINK_OPTIONS
from spark_kafka_sink.config.sink_config import TXN_CONTEXT, DeliveryGuarantee
from spark_kafka_sink.config.unknown_options import PREFIX
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.errors import CommitError, ConfigError, safe_text
from spark_kafka_sink.network.process_local import ProcessLocal
from spark_kafka_sink.transactions.transactional_ids import check_part, is_part

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

OptionText = str | int | float | bool

#: The options that these functions set, in lower case.
_ITS_OWN = ("txnappid", "txnversion", TXN_CONTEXT.lower())

_GUARANTEE = SINK_OPTIONS["deliveryGuarantee"]


@dataclass(frozen=True, slots=True)
class _Written:
    """A write of this process. ``query_run`` is Spark's run id, which a restarted query doesn't
    keep. ``plan`` is a hash of the DataFrame's plan.
    """

    query_run: str
    number: int
    plan: int


class _Runs:
    """The current runs of this process, by the caller's nonce, and the last write of each name.
    ``_lock`` guards all fields.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._current: dict[str, str] = {}
        self._written: dict[str, _Written] = {}

    def check(self, name: str, writes: _Written | None) -> None:
        """ConfigError for a second DataFrame with one name in one micro-batch: it would count as
        done. (Spark Connect and user threads have no run id; there only rows and bytes are
        compared.)
        """
        with self._lock:
            before = self._written.get(name)
        if writes is None or before is None or before == writes:
            return
        if (before.query_run, before.number) == (writes.query_run, writes.number):
            raise ConfigError(
                f"foreach_batch('{name}') wrote another DataFrame in micro-batch {writes.number} "
                "already, so this one would count as done, and none of its rows would be written",
                hint="give each write in a foreachBatch function a different name, or make them "
                "one transaction (spark_kafka_sink.transaction)",
            )

    def wrote(self, name: str, writes: _Written | None) -> None:
        if writes is not None:
            with self._lock:
                self._written[name] = writes

    def of(self, nonce: str) -> str:
        """The same until :meth:`end`, in this process."""
        with self._lock:
            return self._current.setdefault(nonce, uuid.uuid4().hex)

    def end(self, nonce: str) -> None:
        with self._lock:
            self._current.pop(nonce, None)


_runs = ProcessLocal(_Runs)


@dataclass(frozen=True, slots=True)
class ForeachBatch:
    """Writes a micro-batch with ``options`` as ``name``. Picklable (Spark Connect sends it)."""

    name: str
    options: tuple[tuple[str, OptionText], ...] = field(repr=False)
    nonce: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False, repr=False)

    def __repr__(self) -> str:
        """Names only: a value may be a secret, and a notebook shows its last line."""
        names = ", ".join(name for name, _ in self.options)
        return f"foreach_batch({self.name!r}, with the options {names})"

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Called by Spark once for each micro-batch, and again for one that was not finished.

        Raises CommitError, before anything is written, for a micro-batch that can't be the next one
        of this name, and for another DataFrame with a number that is done.
        """
        session, options = batch.sparkSession, dict(self.options)
        context = WriteContext(_runs().of(self.nonce), _query_of(session))
        writes = _written(batch, batch_id)
        _runs().check(self.name, writes)
        try:
            context = replace(context, offsets=_offsets(session, options, batch_id))
            _save(batch, self.name, batch_id, options, context)
            _runs().wrote(self.name, writes)
        except BaseException:
            _runs().end(self.nonce)
            raise


def foreach_batch(name: str, **options: OptionText) -> ForeachBatch:
    """A function for ``writeStream.foreachBatch`` that writes every micro-batch exactly once.

        write = foreach_batch("orders", **{"kafka.bootstrap.servers": "host:9092", "topic": "t"})
        df.writeStream.foreachBatch(write).option("checkpointLocation", path).start()

    ``name`` identifies the write: unique among all writes with the same transactionalIdPrefix
    (``kprod`` unless set), the same after a restart, and a new one for a new checkpoint, whose ids
    begin at 0 again. ``options`` are those of the sink. It also supports outputMode("update"),
    which Spark does not support for Python sinks. In your own foreachBatch function, from threads
    and over Spark Connect, call the returned object.

    Raises ConfigError for an invalid name, and for options that contradict it.
    """
    check_part("the name given to foreach_batch", name)
    _check("foreach_batch", options)
    return ForeachBatch(name, tuple(options.items()))


class Transaction:
    """Several writes of one micro-batch that become visible together, or not at all. Thread-safe.
    Created by :func:`transaction`. ``_lock`` guards the fields after it.
    """

    def __init__(self, name: str, number: int, options: Mapping[str, OptionText], run: str) -> None:
        self._name = name
        self._number = number
        self._options = dict(options)
        self._run = run
        self._token = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._begun = 0
        self._running = 0
        self._failure: BaseException | None = None
        self._session: SparkSession | None = None

    def write(self, batch: DataFrame, **options: OptionText) -> None:
        """Write ``batch``, which is not visible yet. ``options`` add to the transaction's, and
        override them. Blocks until all rows are acknowledged.

        Raises what the write raises; then the whole transaction fails.
        """
        _check("transaction", options)
        group = _offsets_group(options)
        if group is not None and group != _offsets_group(self._options):
            raise ConfigError(
                "offsetsGroup of one write: offsets are committed with the whole transaction",
                hint="give it to transaction, with the query's checkpointLocation",
            )
        session = batch.sparkSession
        with self._lock:
            part = self._begun
            self._begun += 1
            self._running += 1
            self._session = session
        context = WriteContext(self._run, _query_of(session), part=part, token=self._token)
        try:
            _save(batch, self._name, self._number, {**self._options, **options}, context)
        except BaseException as error:
            with self._lock:
                self._failure = self._failure or error
            raise
        finally:
            with self._lock:
                self._running -= 1

    def commit(self) -> None:
        """Decide all writes. Raises CommitError when one failed or is still running, and what a
        commit raises.
        """
        with self._lock:
            running, failure = self._running, self._failure
        if running or failure is not None:
            raise CommitError(
                f"the transaction '{self._name}' of batch {self._number} is aborted: "
                + (f"{running} of its writes are still running" if running else "a write failed"),
                hint="end every write before the block ends, and let its errors out of it",
            ) from failure
        self._end(abort=False)

    def abort(self) -> None:
        """Abort the prepared writes; the caller raises the error."""
        try:
            self._end(abort=True)
        except Exception as error:  # noqa: BLE001 - the error that led here is the one to see
            # Usually a failed write has aborted all of them, and this one is superseded.
            _log.info("the abort of transaction '%s': %s", self._name, error)

    def _end(self, *, abort: bool) -> None:
        """By a write without rows: its commit runs where brokers are surely reachable."""
        session = self._session
        if session is None:
            return  # nothing was written
        offsets = None if abort else _offsets(session, self._options, self._number)
        context = WriteContext(
            self._run,
            _query_of(session),
            parts=self._begun,
            token=self._token,
            abort=abort,
            offsets=offsets,
        )
        text = "CAST(id AS STRING)"
        nothing = session.range(0).selectExpr(f"{text} AS value", f"{text} AS topic")
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
    all writes. Writes may run in threads; each must have ended when the block ends. They go to one
    cluster, in the same order each time a batch is written. When the block raises, or a write does,
    all are aborted.
    """
    check_part("the name given to transaction", name)
    _check("transaction", options)
    nonce = f"transaction {name}"
    writes = Transaction(name, batch_id, options, _runs().of(nonce))
    try:
        yield writes
        writes.commit()
    except BaseException:
        _runs().end(nonce)
        writes.abort()
        raise


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


def _written(batch: DataFrame, number: int) -> _Written | None:
    """None when the run is unknown."""
    try:
        query_run = batch.sparkSession.sparkContext.getLocalProperty("spark.jobGroup.id")
        return _Written(query_run, number, batch.semanticHash()) if query_run else None
    except Exception:  # noqa: BLE001 - Spark Connect has neither; the write must not fail for it
        return None


def _offsets_group(options: Mapping[str, OptionText]) -> str | None:
    """The option, or that of the ``configFile``."""
    given = given_options(options, PREFIX).own.get("offsetsGroup")
    return None if given is None else str(given.value)


def _offsets(
    session: SparkSession, options: Mapping[str, OptionText], batch_id: int
) -> dict[str, dict[str, int]] | None:
    """The offsets for the option offsetsGroup, by topic and partition."""
    if _offsets_group(options) is None:
        return None
    checkpoint = given_options(options, PREFIX).own.get("checkpointLocation")
    if checkpoint is None:
        raise ConfigError(
            "offsetsGroup needs the option checkpointLocation: offsets are read there",
            hint="give foreach_batch or transaction the query's own checkpointLocation, too",
        )
    from spark_kafka_sink.datasource.exactly_once.offset_log import offsets_by_spark

    found: dict[str, dict[str, int]] = {}
    for tp, offset in offsets_by_spark(session, str(checkpoint.value), batch_id).items():
        found.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return found


def _make_active(session: SparkSession) -> None:
    """Spark resolves a Python data source in the thread's active session, which a user thread does
    not have ("DATA_SOURCE_NOT_FOUND") before its first DataFrame.
    """
    active = getattr(type(session), "getActiveSession", lambda: session)()
    if active is None:
        session.createDataFrame([], "value STRING")


def _query_of(session: SparkSession) -> str:
    """The calling query's id; empty when unknown (Spark Connect, a user thread)."""
    try:
        found = session.sparkContext.getLocalProperty("sql.streaming.queryId")
    except Exception:  # noqa: BLE001 - Spark Connect has no such thing; the write must not fail for it
        return ""
    return found if isinstance(found, str) and is_part(found) else ""


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
