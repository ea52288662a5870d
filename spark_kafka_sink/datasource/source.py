"""The data source ``kprod``, which Spark calls: it takes options and a schema, and returns writers.

:class:`KprodDataSource` makes the plan of a write (``plan/write_plan.py``) for one of three
writers. A writer only passes calls on: ``write`` to :class:`PlannedTask`, ``commit`` and ``abort``
to :class:`PlannedBatch`. Most modules are imported on use, so that a lookup of the format is cheap.

The driver checks a write in this order:

1. The write has at least one option. The mode is not overwrite, because a topic can't be replaced.
2. The values of the options, and the columns.
3. The file of the report, and the users' classes.
4. The brokers and the topics (the preflight).
5. The schemas of a registry.
6. With exactly-once, the commit log.

Before a commit or abort, Spark calls ``streamWriter`` again. Then the driver only checks 1 and 2.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, MutableMapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NoReturn

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, coded, warn_once
from spark_kafka_sink.base.format_name import FORMAT
from spark_kafka_sink.datasource.process.plain_errors import without_traceback
from spark_kafka_sink.datasource.process.spark_needed import spark_needed
from spark_kafka_sink.datasource.process.worker_heap import freeze_modules

try:
    from pyspark.sql import datasource as spark_datasource
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceStreamWriter,
        WriterCommitMessage,
    )
except ImportError as error:
    raise spark_needed(error) from None

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Row
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, DataSourceWriter
    from pyspark.sql.types import StructType

    from spark_kafka_sink.config.names.given import GivenOptions
    from spark_kafka_sink.config.sink_config import SinkConfig
    from spark_kafka_sink.datasource.plan.write_plan import WritePlan

_log = logging.getLogger(__name__)

#: Spark's own option, with the name of the query.
_QUERY_NAME = "queryName"
#: An option that only ``read_dead_letters`` sets.
_DEAD_LETTERS = "deadLetters"
#: Options that only ``backfill`` and ``by_leader`` set.
_BACKFILL = "backfill"
_BY_LEADER = "byleader"

ROWS_ONE_BY_ONE = (
    "this pyspark has no Arrow writer for streams, so rows are converted one by one; pyspark 4.1 "
    "and later don't need that"
)

Messages = list[WriterCommitMessage | None]


class KprodDataSource(DataSource):
    """The data source of ``df.write.format("kprod")`` and ``df.writeStream.format("kprod")``. It
    can also read dead letters, but no other records.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._unpickled = False

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str | StructType:
        """Returns the columns of a table that is created without a schema (CREATE TABLE ... USING
        kprod).

        Exception: ``last_report``, ``backfill`` and ``by_leader`` ask the driver by reading this
        schema. The request is an option, and the answer is in the metadata of the returned schema
        (``process/asked_of_driver.py``).
        """
        if _BY_LEADER in self.options:
            from spark_kafka_sink.datasource.jobs.by_leader import schema_with_places
            from spark_kafka_sink.datasource.write.schema import plan_columns

            return schema_with_places(dict(self.options), plan_columns)
        if _BACKFILL in self.options:
            from spark_kafka_sink.datasource.jobs.backfill_request import schema_with_state

            return schema_with_state(dict(self.options))
        from spark_kafka_sink.datasource.report.last_report import LAST_REPORT, schema_with_report
        from spark_kafka_sink.datasource.write.schema import CANONICAL_SCHEMA

        requested = self.options.get(LAST_REPORT)
        return CANONICAL_SCHEMA if requested is None else schema_with_report(requested)

    @without_traceback
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Plans a batch write, and returns its writer. Spark calls this method once per batch
        write.
        """
        return KprodWriter(self._plan(schema, overwrite=overwrite, streaming=False))

    @without_traceback
    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,
    ) -> DataSourceStreamWriter:
        """Plans a micro-batch, and returns its writer. Spark calls this method at planning, and
        again before a commit or abort.

        Raises ConfigError on pyspark 4.0 if the write has keyColumns, valueColumns, headersColumns
        or changelog.
        """
        plan = self._plan(schema, overwrite=overwrite, streaming=True)
        if self._has_arrow_stream_writer():
            return KprodStreamWriter(plan)
        if plan.columns.names_columns or plan.columns.changes is not None:
            raise ConfigError(
                "this pyspark has no Arrow writer for streams, which keyColumns, valueColumns, "
                "headersColumns and changelog need",
                hint="use pyspark 4.1 or later, or make the columns key, value and headers "
                "yourself, for example with to_json(struct(...))",
                kind=Kind.UNSUPPORTED_WRITE,
            )
        if not self._unpickled:
            warn_once(_log, [coded(Kind.ROWS_ONE_BY_ONE, ROWS_ONE_BY_ONE)])
        return KprodRowStreamWriter(plan, schema)

    @without_traceback
    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's
        if _DEAD_LETTERS not in self.options:
            self._refuse_reading()
        from spark_kafka_sink.datasource.jobs.read_dead_letters import DeadLetterReader

        return DeadLetterReader(self.options)

    @without_traceback
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        self._refuse_reading()

    def __reduce__(self) -> tuple[object, ...]:
        return (_unpickled, (type(self), self._pickled_options()))

    @cached_property
    def _given(self) -> GivenOptions:
        """The options of the write, together with the options in the file of ``configFile``. The
        file is read at the first use of this property.
        """
        from spark_kafka_sink.config.names.given_options import given_options
        from spark_kafka_sink.config.names.unknown_options import PREFIX

        return given_options(self.options, PREFIX)

    def _pickled_options(self) -> dict[str, str]:
        """The options of the write, together with the options in the file of ``configFile``. They
        are pickled with the data source, so that a commit does not need the file.
        """
        try:
            given = self._given.as_options()
        except ConfigError:
            return dict(self.options)  # planning raises a better error
        # ``queryName`` is an option of Spark. The report of an abort takes the query's name from
        # it.
        name = self.options.get(_QUERY_NAME)
        return given if name is None else given | {_QUERY_NAME: name}

    def _has_arrow_stream_writer(self) -> bool:
        return hasattr(spark_datasource, "DataSourceStreamArrowWriter")

    def _plan(self, schema: StructType, *, overwrite: bool, streaming: bool) -> WritePlan:
        from spark_kafka_sink.config.parsing import sink_config_of
        from spark_kafka_sink.datasource.plan.write_plan import WritePlan
        from spark_kafka_sink.datasource.process.driver_identity import driver_token
        from spark_kafka_sink.datasource.report.failed_attempts import FailedAttempts
        from spark_kafka_sink.datasource.write.schema import plan_columns

        self._refuse_unusable(overwrite=overwrite, streaming=streaming)
        config = _without_columns_at_the_end(sink_config_of(self._given))
        if config.is_exactly_once:
            from spark_kafka_sink.datasource.exactly_once.transaction_plan import prefix_of

            prefix_of(config, streaming=streaming)
        token = driver_token(self._given.as_options())
        # The name of the directories for failed attempts. The abort of a stream plans again and
        # must find the same name, so a stream uses the token. Two batch jobs may have equal
        # options and so one token, so a batch job uses a random name.
        batch = token if streaming else uuid.uuid4().hex
        is_named = config.is_exactly_once and (streaming or config.txn_app_id is not None)
        query_name = self.options.get(_QUERY_NAME, "")
        plan = WritePlan(
            config,
            plan_columns(
                schema, config.topic, config.named_columns, config.log_topics, config.changes
            ),
            None,
            driver=token if is_named else "",
            query_name=query_name,
            failed=FailedAttempts.of(config.report_path, batch, query_name),
        )
        if not self._unpickled:
            plan = self._checked(plan, schema, streaming=streaming)
        freeze_modules()
        return plan

    def _checked(self, plan: WritePlan, schema: StructType, *, streaming: bool) -> WritePlan:
        """Completes the plan with the results of the driver's checks: of brokers, registries, files
        and the commit log.
        """
        from spark_kafka_sink.datasource.checks.dead_letter_checks import refuse_compacted
        from spark_kafka_sink.datasource.checks.own_code import check_own_code
        from spark_kafka_sink.datasource.checks.preflight import process_preflight
        from spark_kafka_sink.datasource.process.process_logging import configure_logging
        from spark_kafka_sink.datasource.report.report_file import check_report_path
        from spark_kafka_sink.datasource.write.change_columns import not_compacted
        from spark_kafka_sink.datasource.write.schema import (
            batch_schema,
            near_names,
            with_keys_required,
        )

        config, columns = plan.config, plan.columns
        configure_logging()
        if config.report_path is not None:
            check_report_path(config.report_path)
        check_own_code(config, on_driver=True)
        warn_once(_log, [*config.warnings, *near_names(schema, columns)])
        is_end = _ends_a_block(config)
        seen = None if is_end else process_preflight().check(config, streaming=streaming)
        cluster = None if seen is None else seen.cluster
        limits = {} if seen is None else seen.limits
        if seen is not None and config.topic in seen.compacted:
            columns = with_keys_required(columns)
        if seen is not None and columns.changes is not None:
            warn_once(_log, not_compacted(config.topic, seen.limits))
        if seen is not None and config.dead_letters is not None:
            refuse_compacted(config.dead_letters, seen.compacted)
        if config.schemas is not None:
            from spark_kafka_sink.datasource.schemas.payload_schemas import with_encoders

            columns = with_encoders(columns, batch_schema(schema, columns), config)
            # The driver's own data, with its secrets, does not travel.
            config = replace(config, schemas=None)
        plan = replace(plan, config=config, columns=columns, cluster=cluster, limits=limits)
        if config.is_exactly_once:
            from spark_kafka_sink.datasource.exactly_once.transaction_plan import plan_transactions

            plan = replace(
                plan,
                transactions=plan_transactions(config, streaming=streaming, driver=plan.driver),
            )
        plan.failed.begin()
        return plan

    def _refuse_unusable(self, *, overwrite: bool, streaming: bool) -> None:
        if not self.options:
            raise ConfigError(
                "no option reached the kprod sink: Spark drops the options of a table and of "
                "insertInto() for every Python source",
                hint="use INSERT INTO table WITH ('kafka.bootstrap.servers' = 'host:9092', 'topic' "
                "= 'name') SELECT ..., or df.writeTo(table).option(...).append(), or "
                'df.write.format("kprod").option(...).mode("append").save()',
                kind=Kind.NO_OPTIONS,
            )
        if overwrite:
            # Spark also passes outputMode("complete") as overwrite. Spark's Kafka sink accepts it,
            # and appends the whole result table in every micro-batch.
            raise _overwrite_refused(streaming=streaming)

    def _refuse_reading(self) -> NoReturn:
        raise ConfigError(
            "kprod only writes",
            hint="read with Spark's source, format('kafka'), and dead letters with"
            " spark_kafka_sink.read_dead_letters",
            kind=Kind.UNSUPPORTED_WRITE,
        )


def _unpickled(cls: type[KprodDataSource], options: dict[str, str]) -> KprodDataSource:
    """Creates the data source when Spark unpickles it, and marks it as unpickled. Spark unpickles a
    data source only for a commit or an abort.
    """
    source = cls(spark_datasource.CaseInsensitiveDict(options))
    # Seen on pyspark 4.2: to plan a micro-batch, Spark creates a new data source from the class and
    # the options. For a commit or an abort, it unpickles the data source of the start of the run,
    # in another process. If a later Spark also plans with an unpickled data source, there is no
    # preflight, and the tasks raise errors such as a missing topic.
    # A preflight in a writer's __getstate__ was rejected: Spark would show its errors as
    # "PicklingError: Could not serialize object".
    source._unpickled = True
    return source


class KprodWriter(DataSourceArrowWriter):
    """The writer of a batch job. Spark gets the writer at planning, and pickles it for each task
    and for the commit or abort.
    """

    def __init__(self, plan: WritePlan) -> None:
        self.plan = plan

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from spark_kafka_sink.datasource.plan.planned_task import PlannedTask

        return PlannedTask(self.plan).run(iterator)

    @without_traceback
    def commit(self, messages: Messages) -> None:
        from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch

        PlannedBatch(self.plan).commit(messages)

    def abort(self, messages: Messages) -> None:
        from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch

        PlannedBatch(self.plan).abort(messages)


class _StreamDriver(DataSourceStreamWriter):
    """The commit and the abort of a micro-batch, shared by the two classes of stream writers."""

    plan: WritePlan

    @without_traceback
    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch

        PlannedBatch(self.plan).commit(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803 - Spark's name
        from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch

        PlannedBatch(self.plan).abort(messages, batchId)


class KprodRowStreamWriter(_StreamDriver):
    """The stream writer for pyspark 4.0, which passes Row objects to a task."""

    def __init__(self, plan: WritePlan, schema: StructType) -> None:
        self.plan = plan
        self._schema = schema

    @without_traceback
    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        from spark_kafka_sink.datasource.write.row_adapter import RowAdapter

        adapter = RowAdapter(self._schema, self.plan.columns)
        from spark_kafka_sink.datasource.plan.planned_task import PlannedTask

        return PlannedTask(self.plan).run(adapter.batches(iterator), adapter.plan)


if hasattr(spark_datasource, "DataSourceStreamArrowWriter"):

    class KprodStreamWriter(_StreamDriver, spark_datasource.DataSourceStreamArrowWriter):
        """The stream writer for pyspark 4.1 and later, which pass Arrow batches to a task."""

        def __init__(self, plan: WritePlan) -> None:
            self.plan = plan

        @without_traceback
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            from spark_kafka_sink.datasource.plan.planned_task import PlannedTask

            return PlannedTask(self.plan).run(iterator)


def _ends_a_block(config: SinkConfig) -> bool:
    """Whether the write has no rows, and commits or aborts a ``transaction`` block."""
    if config.txn_context is None:
        return False
    from spark_kafka_sink.datasource.write.write_context import WriteContext

    return WriteContext.of_option(config.txn_context).ends_block


def _without_columns_at_the_end(config: SinkConfig) -> SinkConfig:
    """Removes the column options from the config of the write that ends a ``transaction`` block.
    This write has no rows, so the columns do not exist. Other configs are returned unchanged.
    """
    if not _ends_a_block(config):
        return config
    from spark_kafka_sink.config.named_columns import NamedColumns

    return replace(config, named_columns=NamedColumns(), schemas=None, changes=None)


def _overwrite_refused(*, streaming: bool) -> ConfigError:
    if streaming:
        return ConfigError(
            "kprod does not support complete output mode: a topic can't be replaced",
            hint='to append the whole result in every micro-batch, use foreachBatch with .mode("'
            'append"); otherwise use outputMode("append")',
            kind=Kind.UNSUPPORTED_WRITE,
        )
    return ConfigError(
        "Save mode Overwrite not allowed for Kafka: a topic can't be replaced, and kprod does not "
        "support truncate",
        hint='use .mode("append"), or INSERT INTO in place of INSERT OVERWRITE',
        kind=Kind.UNSUPPORTED_WRITE,
    )
