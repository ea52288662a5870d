"""Functions for ``writeStream.foreachBatch`` that write each micro-batch exactly once.

* :func:`foreach_batch` is for one write.
* :func:`transaction` is for several writes that are committed together.

After a failure, Spark runs a micro-batch again with the same id. Spark does not show whether two
writes of a user's function are the same write. So the user gives each write a name. The commit log
then identifies a write by its name (txnAppId) and the micro-batch's id (txnVersion).

A name belongs to one query and its checkpoint. The commit log refuses other writes:

* If two running queries use one name, the commit log refuses the writes of one of them. To
  distinguish the queries, each write has a run id. ``exactly_once/named_writes.py`` generates it
  for each name and each run of a query.
* If a query with a new checkpoint uses an old name, its batch ids begin at 0 again. The commit log
  expects the last id or a larger one, from the same query, and refuses the writes.

A failed write is aborted, and the commit log then refuses its run id. So the next write of the same
query gets a new run id.
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

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitError,
    ConfigError,
    IllegalStateError,
    coded,
    safe_text,
    warn_once,
)
from spark_kafka_sink.base.process_local import ProcessLocal
from spark_kafka_sink.base.topic_name import COMMIT_LOG_TOPIC
from spark_kafka_sink.config.names.given import CONFIG_FILE
from spark_kafka_sink.config.names.given_options import given_options
from spark_kafka_sink.config.names.unknown_options import PREFIX
from spark_kafka_sink.config.option import OptionText
from spark_kafka_sink.config.option_table import SINK_OPTIONS
from spark_kafka_sink.config.sink_config import TXN_CONTEXT, DeliveryGuarantee
from spark_kafka_sink.datasource.exactly_once.checkpoint import Checkpoint
from spark_kafka_sink.datasource.exactly_once.named_writes import NamedWrites, Place, Written
from spark_kafka_sink.datasource.process.active_session import active_session
from spark_kafka_sink.datasource.process.calling_query import CallingQuery, calling_query
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.transactions.transactional_ids import (
    DEFAULT_PREFIX,
    check_part,
    log_key,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)

#: The options that these functions set, in lower case.
_ITS_OWN = ("txnappid", "txnversion", TXN_CONTEXT.lower())
#: The options that may differ between the writes of a transaction, in lower case.
_OF_ONE_WRITE = frozenset(o.name.lower() for o in SINK_OPTIONS.values() if o.of_one_write)
#: The options that identify a write, in lower case: a file may have them.
_IDENTITY = _OF_ONE_WRITE | {CONFIG_FILE.lower()}

_GUARANTEE = SINK_OPTIONS["deliveryGuarantee"]
_VERIFIES = SINK_OPTIONS["verifyReplays"]

_runs = ProcessLocal(NamedWrites)


@dataclass(frozen=True, slots=True)
class ForeachBatch:
    """The function that :func:`foreach_batch` returns. Each call writes one micro-batch under the
    name ``name``, with the sink's ``options``. Picklable, because Spark Connect sends the function
    to the server.
    """

    name: str
    options: tuple[tuple[str, OptionText], ...] = field(repr=False)

    def __repr__(self) -> str:
        """Shows the names of the options without their values. A notebook prints this text, and an
        option's value may be a secret.
        """
        names = ", ".join(name for name, _ in self.options)
        return f"foreach_batch({self.name!r}, with the options {names})"

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Writes a micro-batch. Spark calls this method once per micro-batch, and again after a
        failure. If the micro-batch is already committed, no row is written.

        Raises CommitError, before a row is written, if the commit log does not expect this batch
        id. It expects the id of the last batch under :attr:`name`, or a larger id of the same
        query.

        Raises ConfigError in two cases:

        * This process has already written another DataFrame with the same name and batch id.
        * Another write of this name is running in this process.
        """
        options = dict(self.options)
        micro_batch = _MicroBatch(self.name, batch_id, options)
        with _runs().open(micro_batch.place, _described("foreach_batch", self.name)):
            query = calling_query(batch.sparkSession, batch_id)
            written = Written(query.run, batch_id, Counter([_plan_of(batch, options)]))
            micro_batch.check(written, whole=True)
            try:
                context = micro_batch.context(batch.sparkSession, query, written)
                _save(batch, self.name, batch_id, options, context)
            except BaseException:
                _runs().end(micro_batch.place, query.run, query.session)
                raise
            _runs().wrote(micro_batch.place, written)


def foreach_batch(name: str, **options: OptionText) -> ForeachBatch:
    """A function for ``writeStream.foreachBatch`` that writes every micro-batch exactly once.

        write = foreach_batch("orders", **{"kafka.bootstrap.servers": "host:9092", "topic": "t"})
        df.writeStream.foreachBatch(write).option("checkpointLocation", path).start()

    ``name`` identifies the write:

    * It must be unique among all writes to a Kafka cluster with the same transactionalIdPrefix
      (default: ``kprod``).
    * Keep the name after a restart.
    * Use a new name for a new checkpoint, because its batch ids begin at 0 again.

    ``options`` are the options of the sink. If a micro-batch runs again, the sink compares the new
    run with the first run. If ``options`` contain the query's checkpointLocation, the sink compares
    the offsets of the sources. Without checkpointLocation, the sink compares the numbers of rows
    and bytes.

    The returned function also supports the output modes update and complete, which Spark does not
    support for Python sinks. You can call it in your own foreachBatch function, from threads, and
    over Spark Connect.

    Raises ConfigError for an invalid name, and for a deliveryGuarantee other than exactly-once.
    Also raises ConfigError for the options txnAppId and txnVersion, which this function sets
    itself.
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

    You get this object from the ``with`` block of :func:`transaction`.
    """

    def __init__(self, name: str, number: int, options: Mapping[str, OptionText]) -> None:
        self._name = name
        self._number = number
        self._options = dict(options)
        self._micro_batch = _MicroBatch(name, number, self._options)
        self._token = uuid.uuid4().hex
        self._lock = threading.Lock()
        # The lock guards the fields from here on.
        self._state = _State.OPEN
        self._plans: Counter[int] = Counter()
        self._running = 0
        self._failure: BaseException | None = None
        #: The first write's.
        self._session: SparkSession | None = None
        self._query = CallingQuery()
        self._context: WriteContext | None = None
        #: The write that commits the block was begun. It may succeed even if it raises an error.
        self._is_ending = False

    @property
    def place(self) -> Place:
        return self._micro_batch.place

    def write(self, batch: DataFrame, **options: OptionText) -> None:
        """Writes the rows of ``batch``. Blocks until all rows are acknowledged. Consumers with
        read_committed don't see the rows until the block ends.

        ``options`` override topic, columns and formats for this write. If the write raises an
        exception, the whole transaction fails. No row is sent in these cases:

        * The transaction has ended: IllegalStateError.
        * An earlier write has failed: CommitError.
        * ``options`` change an option that must be the same for all writes of the transaction:
          ConfigError.
        """
        with self._counted():
            _check("transaction", options)
            _check_of_one_write(options, self._options)
            options = {**self._options, **options}
            context = self._context_of(batch, options)
            _save(batch, self._name, self._number, options, context)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """A context manager that counts a write as running. It stores an error of the write, so
        that :meth:`commit` fails.

        Raises an error before the write begins if the transaction has ended or an earlier write has
        failed.
        """
        with self._lock:
            self._refuse_ended("a write comes after its end, and sends nothing")
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
        """Returns the identity of the transaction's next write. At the first write, also finds the
        query that has called the user's function.
        """
        session = batch.sparkSession
        with self._lock:
            before = self._plans
            plans = before + Counter([_plan_of(batch, options)])
            if self._context is None:
                self._session, self._query = session, calling_query(session, self._number)
                written = Written(self._query.run, self._number, plans)
                self._context = self._micro_batch.context(
                    session, self._query, written, self._token
                )
            self._check_plans(plans, whole=False)
            self._plans = plans
            return self._context.of_part(before.total())

    def commit(self) -> None:
        """Commits all writes of the block. The block calls this method at its end if the user has
        not called it. If the block has no write, nothing is committed.

        Raises CommitError if a write failed or is still running, and IllegalStateError if the
        transaction has ended, or if another thread aborts it before the commit begins. Also raises
        the errors of a commit (:class:`BatchError`).
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
        if self._plans:  # otherwise it has no rows, and its number is not done
            self._check_plans(self._plans, whole=True)
            with self._lock:
                # Another thread may have aborted the block meanwhile. A later abort sees that the
                # commit was begun.
                if self._state is not _State.ENDING:
                    raise self._has_ended("it can't be committed")
                self._is_ending = True
            self._end(abort=False)
            _runs().wrote(self.place, Written(self._query.run, self._number, self._plans))
        with self._lock:
            self._state = _State.COMMITTED

    def abort(self) -> None:
        """Aborts the writes of the block, because of an error that the caller then raises. Does
        nothing after a commit.
        """
        with self._lock:
            if self._state in (_State.COMMITTED, _State.ABORTED):
                return
            self._state = _State.ABORTED
        _runs().end(self.place, self._query.run, self._query.session)
        try:
            self._end(abort=True)
        except Exception as error:  # noqa: BLE001 - the error that led here is the one to see
            # Usually a failed write has already aborted all writes of the block, and the commit
            # log refuses a second abort.
            _log.info("the abort of transaction '%s': %s", self._name, error)

    def end(self) -> None:
        """Ends the block. Commits its writes, if the user has not called :meth:`commit`."""
        if self._state is not _State.COMMITTED:
            self.commit()

    @property
    def _shown(self) -> str:
        return f"the transaction '{self._name}' of batch {self._number}"

    def _refuse_ended(self, what: str) -> None:
        if self._state is not _State.OPEN:
            raise self._has_ended(what)

    def _has_ended(self, what: str) -> IllegalStateError:
        return IllegalStateError(
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
        self._micro_batch.check(written, whole=whole)

    def _end(self, *, abort: bool) -> None:
        """Commits or aborts all writes of the block. Does nothing if the block has no write."""
        # A further write without rows ends the block: Spark runs its commit on the driver, which
        # can reach the brokers. This process may be unable to reach them.
        session, context = self._session, self._context
        if session is None or context is None:
            return  # nothing was written
        writes = sum(self._plans.values())
        if abort:
            # Spark has ended the tasks of a write that raised; of an interrupted one they may run.
            tasks_may_run = self._running > 0 or not isinstance(self._failure, Exception | None)
            context = context.of_abort(
                writes, tasks_may_run=tasks_may_run, may_be_decided=self._is_ending
            )
        else:
            context = context.of_end(writes)
        # A key, too: the block's topic may be compacted.
        columns = [f"CAST(id AS STRING) AS {name}" for name in ("key", "value", "topic")]
        nothing = session.range(0).selectExpr(*columns)
        _save(nothing, self._name, self._number, self._options, context)


@contextmanager
def transaction(name: str, batch_id: int, **options: OptionText) -> Iterator[Transaction]:
    """A ``with`` block of several writes that are committed together: all become visible, or none
    does.

        def write(batch, batch_id):
            with transaction("orders", batch_id, **kafka) as t:
                t.write(batch.where("kind = 'order'"), topic="orders")
                t.write(batch.where("kind = 'payment'"), topic="payments")

        df.writeStream.foreachBatch(write).start()

    ``name`` and ``batch_id`` have the same meaning as for :func:`foreach_batch`. ``options`` are
    the sink's options for all writes of the block. Only topic, columns and formats may differ
    between the writes.

    The writes may run in threads, and each must end before the block ends. If a write or the block
    raises an exception, all writes of the block are aborted.

    Raises the errors of :func:`foreach_batch`. Also raises ConfigError if another block with this
    name is open in this process.
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
    """A micro-batch that ``foreach_batch`` or ``transaction`` writes under a name. This class finds
    three facts about the micro-batch: the write's key in the commit log, the run id, and the source
    offsets.
    """

    def __init__(self, name: str, number: int, options: Mapping[str, OptionText]) -> None:
        self._given = given_options(options, PREFIX)
        self._name, self._number = name, number
        servers = self._given.producer.get("bootstrap.servers")
        self.place = Place(
            "" if servers is None else str(servers.value),
            self._text("commitLogTopic") or COMMIT_LOG_TOPIC,
            log_key(self._text("transactionalIdPrefix") or DEFAULT_PREFIX, name),
        )

    def check(self, written: Written, *, whole: bool) -> None:
        """Raises ConfigError if the last write under this name had other DataFrames, but the same
        batch id. Without this error, the sink would treat the new write as a replay, and would not
        write its rows.

        ``written`` describes the DataFrames of the new write. ``whole`` is false if more DataFrames
        may follow under this name, as in a ``transaction`` block. Nothing is checked if the user
        has set verifyReplays=false and the query of the write is unknown.
        """
        if written.query_run or not self._is_replay:
            _runs().check(self.place, self._name, written, whole=whole)

    @property
    def _is_replay(self) -> bool:
        """Whether the user has set verifyReplays=false, and so guarantees that a batch has the same
        rows when it runs again. With this setting, a write of an unknown query counts as a replay,
        without a check, if its name and batch id are already written.
        """
        given = self._text(_VERIFIES.name)
        return given is not None and _VERIFIES.read(given, _VERIFIES.name) is False

    def context(
        self, session: SparkSession, query: CallingQuery, written: Written, token: str = ""
    ) -> WriteContext:
        """Returns the identity of a write: the run id, the query, the source offsets and their
        digest. ``token`` identifies a ``transaction`` block, and is empty in ``foreach_batch``.

        Raises ConfigError if offsetsGroup is set and the source offsets can't be read. Logs a
        warning if changelog is set and the micro-batch ends within a version of a Delta table.
        """
        location = self._text("checkpointLocation")
        offsets, digest = None, ""
        checkpoint = None if location is None else Checkpoint(location, session)
        if self._text("offsetsGroup") is not None:
            offsets = self._offsets(checkpoint, query)
        # In a user's thread of a classic session, the query is unknown, and the thread may write
        # any DataFrame. Then there is no digest, and the numbers of rows and bytes are compared.
        if checkpoint is not None and (query.id or query.run or not query.session):
            digest = checkpoint.known_digest(self._number, query.id)
            if digest and self._text("changelog") is not None:
                warn_once(_log, map(_divided, checkpoint.divided_versions(self._number)))
        run = _runs().run(self.place, query.run, query.session)
        # If the batch id is already done, this write is known to be a replay in two cases: its
        # query or digest is known, or this process repeats a call.
        known = bool(query.run or query.id or digest) or _runs().repeats(self.place, written)
        return WriteContext(run, query.id, token=token, offsets=offsets, digest=digest, known=known)

    def _offsets(
        self, checkpoint: Checkpoint | None, query: CallingQuery
    ) -> dict[str, dict[str, int]]:
        """The source offsets to commit to ``offsetsGroup``, by topic and partition, such as
        ``{"orders": {"0": 1234}}``. Raises ConfigError if the checkpoint is not set, can't be read,
        or belongs to another query.
        """
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
        """The value of a sink option, set directly or in the ``configFile``. None if it is not
        set.
        """
        given = self._given.own.get(option)
        return None if given is None else str(given.value)


def _divided(version: int) -> str:
    """The warning that a micro-batch has read only a part of version ``version`` of a Delta table.

    The next micro-batch reads the other part. It may contain deletes of keys that this micro-batch
    has inserted.
    """
    return coded(
        Kind.DIVIDED_VERSION,
        f"a micro-batch ends within version {version} of the Delta table: if this version deletes"
        " and inserts a key, as INSERT OVERWRITE does, the topic loses the row",
        "set maxFilesPerTrigger=2147483647 on readStream, without maxBytesPerTrigger; a query with"
        f" startingVersion={version}, a new checkpointLocation and a new name of foreach_batch"
        " writes the rows again",
    )


def _save(
    batch: DataFrame,
    name: str,
    number: int,
    options: Mapping[str, OptionText],
    context: WriteContext,
) -> None:
    writer = (
        batch.write.format("kprod")
        .options(**options)
        .option("deliveryGuarantee", "exactly-once")
        .option("txnAppId", name)
        .option("txnVersion", number)
        .option(TXN_CONTEXT, context.to_option())
        .mode("append")
    )
    with active_session(batch.sparkSession):  # also where nobody has called register
        writer.save()


def _plan_of(batch: DataFrame, options: Mapping[str, OptionText]) -> int:
    """A hash that identifies a write of this process. It is made from the DataFrame's plan, its
    schema, and the options that may differ between writes.
    """
    found: list[object] = [
        (name, str(value)) for key, value in options.items() if (name := key.lower()) in _IDENTITY
    ]
    with contextlib.suppress(Exception):  # the write must not fail for it
        found.append(batch.semanticHash())
        # The plan's own hash ignores the names of columns.
        found.append(batch.schema.json())
    return hash(frozenset(found))


def _described(function: str, name: str) -> str:
    """A text that describes a running call of ``function`` in an error, such as
    ``transaction('orders') at job.py:12 in thread MainThread``. The line is in the user's code.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - inspect.stack reads the files of all callers
    while frame.f_back is not None and frame.f_code.co_filename in (__file__, contextlib.__file__):
        frame = frame.f_back
    return (
        f"{function}('{name}') at {safe_text(frame.f_code.co_filename)}:{frame.f_lineno} in thread "
        f"{threading.current_thread().name}"
    )


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
                hint="for another guarantee, write the batch with df.write in your own function",
            )


def _check_of_one_write(
    options: Mapping[str, OptionText], of_all: Mapping[str, OptionText]
) -> None:
    """Raises ConfigError if a write of a transaction changes an option that must be the same for
    all writes of the transaction. ``options`` are the options of the write, and ``of_all`` are the
    options of the transaction.
    """
    same = {key.lower(): str(value) for key, value in of_all.items()}
    for key, value in options.items():
        if key.lower() not in _OF_ONE_WRITE and same.get(key.lower()) != str(value):
            raise ConfigError(
                f"{safe_text(key)} of one write: the writes of a transaction are decided together, "
                "so they may differ in topic, columns and formats only",
                hint="give it to transaction, for all of its writes",
            )
