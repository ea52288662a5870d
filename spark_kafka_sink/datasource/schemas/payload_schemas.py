"""Chooses the schemas of keys and values, and their ids, when the driver plans a write.

:func:`with_encoders` finds or registers the schemas in the registry, and adds the encoders to the
plan. A task gets the finished encoders, and never connects to a registry.

Responses of a registry are cached in this process. They are also cached in files, for the time when
the registry is down (``schema_cache``).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from spark_kafka_sink.base.clock import SystemClock
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    ConfigError,
    NoRegistryAnswerError,
    SchemaError,
    SchemaRegistryError,
    safe_text,
)
from spark_kafka_sink.base.security.allow_lists import check_file
from spark_kafka_sink.base.security.local_files import UnusableFileError, decoded, read_file
from spark_kafka_sink.config.named_columns import (
    ColumnFormat,
    NamedColumns,
    OnNullKey,
    OnNullValue,
    SubjectStrategy,
)
from spark_kafka_sink.config.option_table import TIMEOUT
from spark_kafka_sink.config.schema_options import PayloadOptions, SchemaOptions
from spark_kafka_sink.config.sink_checks import NULL_VALUE_HINT
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.schemas.column_types import column_type
from spark_kafka_sink.datasource.schemas.schema_cache import SchemaCache
from spark_kafka_sink.network.schema_registry import ConfluentRegistry, RegisteredSchema
from spark_kafka_sink.records.column_plan import ColumnPlan, ComposedColumns
from spark_kafka_sink.records.formats.binary.matching import misfit, unusable
from spark_kafka_sink.records.formats.column_type import ColumnType
from spark_kafka_sink.records.formats.schema_format import SchemaFormat

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_log = logging.getLogger(__name__)

#: The time in ms for which a planning process does not repeat a request. An older response is only
#: used while the registry does not respond, so that a stream continues.
KEPT_MS: Final = 300_000
#: The largest number of responses that a process keeps in memory.
_KEPT_ANSWERS: Final = 64
#: The largest number of characters of a schema in an error.
_MOST_SHOWN: Final = 2_000
_clock = SystemClock()
_kept: dict[tuple[object, ...], tuple[int, RegisteredSchema]] = {}


class Registry(Protocol):
    """The interface of a client of a schema registry. ``str()`` returns the registry's name for
    messages.

    * ``addresses`` is a part of the key under which responses are cached.
    * ``by_id`` returns the schema with an id.
    * ``latest`` returns the newest schema of a subject. None if the registry does not have the
      subject.
    * ``id_of`` returns the id of the schema ``text`` in a subject. If the subject does not have
      this schema, ``register`` decides: True registers the schema and returns its new id, False
      returns None.
    """

    addresses: tuple[str, ...]

    def by_id(self, schema_id: int) -> RegisteredSchema: ...

    def latest(self, subject: str) -> RegisteredSchema | None: ...

    def id_of(self, subject: str, text: str, kind: str, *, register: bool) -> int | None: ...


_Ask = Callable[[Registry], RegisteredSchema]


def registry_of(options: SchemaOptions, limit_ms: int) -> Registry:
    """Creates a client for the schema registry of a write with these options. All requests of the
    client together may take at most ``limit_ms``. A client for another kind of registry, such as
    Glue or Azure, would be chosen here.
    """
    return ConfluentRegistry(dict(options.registry), limit_ms)


def schema_format(payload: PayloadOptions) -> SchemaFormat:
    """The format of a key or value with a schema. The module of a format is imported at first use,
    because two formats import numpy.
    """
    if payload.format is ColumnFormat.AVRO:
        from spark_kafka_sink.records.formats.avro_format import AvroFormat

        return AvroFormat()
    if payload.format is ColumnFormat.PROTOBUF:
        from spark_kafka_sink.records.formats.protobuf_format import ProtobufFormat

        return ProtobufFormat(payload.name)
    from spark_kafka_sink.records.formats.json_schema import JsonSchemaFormat

    return JsonSchemaFormat()


def with_encoders(plan: ColumnPlan, schema: StructType, config: SinkConfig) -> ColumnPlan:
    """Adds an encoder to each key and value of ``plan`` that is written with a schema. Finds the
    schemas in the registry. If auto.register.schemas is true, registers a missing schema.

    ``schema`` is the schema of the Arrow batches in a task. Errors:

    * ConfigError for options that don't fit together, or a schema file that can't be read.
    * SchemaError if a schema is missing, or does not fit the columns.
    * SchemaRegistryError for an error of the registry.
    """
    assert config.schemas is not None
    for payload in config.schemas.payloads:
        part: ComposedColumns = getattr(plan, payload.part)
        made = _encoded(config, payload, part, _columns(part, schema))
        plan = replace(plan, key=made) if part is plan.key else replace(plan, value=made)
    _refuse_rules_without_effect(plan, config.named_columns)
    return plan


def _refuse_rules_without_effect(plan: ColumnPlan, named: NamedColumns) -> None:
    """Raises ConfigError if the option onNullValue or onNullKey has no effect with the schema.

    * onNullValue has no effect if the value is a record with a field for each column. Such a record
      is never null.
    * onNullKey=write has no effect if the key is the content of a single column. A null of this
      column can't be written as a key.
    """
    if named.on_null_value is not OnNullValue.TOMBSTONE and _is_bare(plan.value) is False:
        raise ConfigError(
            "onNullValue would have no effect, because the schema of valueColumns has a field for"
            " each column, and its records are never null",
            hint=NULL_VALUE_HINT,
            kind=Kind.NO_EFFECT,
        )
    if named.on_null_key is OnNullKey.WRITE and _is_bare(plan.key):
        raise ConfigError(
            "onNullKey would have no effect, because the schema of keyColumns is that of a single"
            " value, and a null of its column is no key",
            hint="remove onNullKey, or set keySchema to the schema of a record",
            kind=Kind.NO_EFFECT,
        )


def _is_bare(part: ComposedColumns | None) -> bool | None:
    """True if the key or value is the content of a single column, and False if it is a record with
    a field for each column.

    None if it has no schema. Also None if it is a record in some topics, and not in others.
    """
    if part is None or (part.encoding is None and not part.by_topic):
        return None
    found = {one.is_bare for _, one in part.by_topic} or {part.is_bare}
    return found.pop() if len(found) == 1 else None


def _encoded(
    config: SinkConfig, payload: PayloadOptions, part: ComposedColumns, columns: ColumnType
) -> ComposedColumns:
    """Adds the encoder to a key or value. If each topic has its own subject, adds one encoder per
    topic.
    """
    assert config.schemas is not None
    limit_ms, topics = config.producer.max_block_ms, config.schemas.topics
    if config.topic is not None or not topics or not payload.is_of_topic:
        return _Way(config, payload, limit_ms, config.topic).encoded(part, columns)
    made = [(one, _Way(config, payload, limit_ms, one).encoded(part, columns)) for one in topics]
    return replace(part, by_topic=tuple(made))


def described(config: SinkConfig, timeout_ms: int) -> Iterator[str]:
    """Finds the schemas of keys and values in the schema registry, for ``kprod check``. Yields a
    text for each schema. Registers no schema.

    If a schema is missing in the registry and a write would register it, the text says that the
    schema is missing. If a write would not register a missing schema, raises SchemaError. Also
    raises SchemaError for a schema that can't be used.
    """
    options = config.schemas
    assert options is not None
    registry = registry_of(options, timeout_ms)
    may_be_missing = options.auto_register and not options.use_latest
    asked = [
        (payload, topic)
        for payload in options.payloads
        for topic in (options.topics if payload.is_of_topic else ()) or (config.topic,)
    ]
    for payload, topic in asked:
        way = _Way(config, payload, timeout_ms, topic)
        if payload.use_id is not None:
            found: RegisteredSchema | None = registry.by_id(payload.use_id)
            what = f"id {payload.use_id}"
        else:
            what = way.subject(way.name())
            found = registry.latest(what) if may_be_missing else _latest(registry, what)
        if found is None:
            yield f"{payload.part}: {what} is not there at {registry}"
        else:
            yield f"{payload.part}: {what} has the schema of id {way.usable(found).id}"


class _Way:
    """Finds or registers the schema of a key or value for one topic, and creates the encoder."""

    def __init__(
        self, config: SinkConfig, payload: PayloadOptions, limit_ms: int, topic: str | None
    ) -> None:
        assert config.schemas is not None
        self._options, self._payload, self._topic = config.schemas, payload, topic
        self._limit_ms = limit_ms
        self._format = schema_format(payload)

    def encoded(self, part: ComposedColumns, columns: ColumnType) -> ComposedColumns:
        """Adds the encoder to a key or value. If an option requires it, also adds the header that
        names the schema.
        """
        payload = self._payload
        if self._topic is None and payload.is_of_topic:
            raise ConfigError(
                f"{payload.part}.subject.name.strategy is {payload.strategy}, and the topic is a"
                " column: there is no one subject",
                hint="list the topics in schemaTopics, set the option topic, or"
                f" {payload.part}.subject.name.strategy={SubjectStrategy.RECORD} with"
                f" {payload.part}Schema",
            )
        # One column may be a payload by itself.
        one = columns.children[0] if len(part.columns) == 1 and not part.is_struct else None
        registered = self.usable(self._registered(columns, one))
        schema = (registered.text, registered.references)
        indexes = self._format.indexes(*schema)
        # Confluent's: a zero and the id, or in a header a one and the GUID.
        prefix, header = b"\x00" + registered.id.to_bytes(4, "big") + indexes, None
        if payload.in_header:
            assert registered.guid is not None
            value = b"\x01" + registered.guid.bytes + indexes
            prefix, header = b"", (f"__{payload.part}_schema_id", value)
        bare = self._format.is_bare(*schema)
        if bare and one is None and not part.is_struct:
            raise misfit(
                "several columns are a record, and the schema has none",
                "name one column, or a schema of a record",
            )
        column = one if bare and one is not None else columns
        encoding = self._format.plan(registered.text, prefix, column, registered.references)
        return replace(part, encoding=encoding, is_bare=bare or part.is_struct, header=header)

    def _registered(self, columns: ColumnType, one: ColumnType | None) -> RegisteredSchema:
        payload, options = self._payload, self._options
        if payload.use_id is not None:
            schema_id = payload.use_id
            return self._kept(("id", schema_id), lambda r: r.by_id(schema_id))
        if payload.schema is None and options.use_latest:
            subject = self.subject(self.name())
            return self._kept(("latest", subject), lambda r: _latest(r, subject))
        text = self._derived(columns, one) if payload.schema is None else given_schema(payload)
        subject = self.subject(self._format.name_of(text))
        found = self._kept(("schema", subject, text), lambda r: self._looked_up(r, subject, text))
        self._refuse_another(found, subject, text)
        return found

    def _derived(self, columns: ColumnType, one: ColumnType | None) -> str:
        if self._payload.part == "key" and one is not None and self._format.has_bare:
            bare = self._format.derive(one, self.name())
            if self._format.is_bare(bare):
                return bare
        return self._format.derive(columns, self.name())

    def _looked_up(self, registry: Registry, subject: str, text: str) -> RegisteredSchema:
        kind = self._format.schema_type
        schema_id = registry.id_of(subject, text, kind, register=False)
        if schema_id is None and self._options.auto_register:
            schema_id = registry.id_of(subject, text, kind, register=True)
        if schema_id is None:
            part = self._payload.part
            raise SchemaError(
                f"subject {safe_text(subject)} at {registry} does not have the schema of"
                f" {part}Columns, and auto.register.schemas is false",
                hint="register the schema, or set use.latest.version=true to write with the"
                " subject's latest version, or auto.register.schemas=true; the schema is"
                f" {safe_text(text, _MOST_SHOWN)}",
                kind=Kind.SCHEMA_NOT_REGISTERED,
            )
        return registry.by_id(schema_id)

    def _refuse_another(self, found: RegisteredSchema, subject: str, text: str) -> None:
        name_of = self._format.name_of
        name = name_of(found.text, found.references)
        if found.type != self._format.schema_type or name != name_of(text):
            raise SchemaRegistryError(
                f"the schema registry gave id {found.id} to the schema of {safe_text(subject)}, and"
                " has another schema under this id",
                hint="readers would not understand the records; compare it with "
                f"/schemas/ids/{found.id} of the registry",
            )

    def _kept(self, question: tuple[object, ...], ask: _Ask) -> RegisteredSchema:
        """Returns the registry's response to a request. A recent response is taken from memory. If
        the registry does not respond, an earlier response is used, from memory or from a file.
        """
        key = (self._options.registry, self._payload.format, *question)
        until_ms, answer = _kept.get(key, (0, None))
        if answer is not None and _clock.now_ms() < until_ms:
            return answer
        registry = registry_of(self._options, self._limit_ms)
        cache = SchemaCache((registry.addresses, self._payload.format, *question))
        known = answer or cache.read()
        if known is not None:
            # An earlier response can be used, so the time of one request is long enough to wait.
            request_ms = int(str(dict(self._options.registry)[TIMEOUT]))
            registry = registry_of(self._options, min(self._limit_ms, request_ms))
        try:
            found = ask(registry)
        except NoRegistryAnswerError as error:
            if known is None:
                raise
            if cache.is_first_use():
                _log.warning("continuing with schema id %d: %s", known.id, error.one_line())
            found = known
        else:
            cache.write(found)
        _kept.pop(key, None)
        _kept[key] = (_clock.now_ms() + KEPT_MS, found)
        while len(_kept) > _KEPT_ANSWERS:
            del _kept[next(iter(_kept))]
        return found

    def usable(self, found: RegisteredSchema) -> RegisteredSchema:
        """Checks a schema that the registry has returned, and returns the schema. Raises
        SchemaError if rows can't be written with this schema.
        """
        payload, problem, hint = self._payload, found.unusable, "write with another schema"
        if found.type != self._format.schema_type:
            problem = f"is {safe_text(found.type)}, and {payload.part}Format is {payload.format}"
        if problem is None and payload.in_header and found.guid is None:
            option = f"{payload.part}.schema.id.serializer"
            problem = f"has no GUID in the registry, and {option} writes it to a header"
            hint = f"remove {option}, or take a registry with GUIDs (Confluent's since version 8)"
        if problem is not None:
            raise unusable(f"the schema of id {found.id} {problem}", hint)
        return found

    def name(self) -> str:
        """The record name of a schema that is derived from columns. It comes from an option, or is
        made from the topic.
        """
        payload, topic = self._payload, self._topic
        if payload.name is not None:
            return payload.name
        if topic is None:
            raise ConfigError(
                f"the topic is a column, so the schema of {payload.part}s has no name",
                hint=f"set {payload.part}Schema, or {payload.part}SchemaName",
            )
        name = re.sub(r"[^A-Za-z0-9_]", "_", topic) + ("_key" if payload.part == "key" else "")
        return f"_{name}" if name[0].isdigit() else name

    def subject(self, name: str) -> str:
        """The registry's subject for a schema with the record name ``name``."""
        payload = self._payload
        if payload.strategy is SubjectStrategy.TOPIC:
            return f"{self._topic}-{payload.part}"
        if not name:
            raise ConfigError(
                f"{payload.part}.subject.name.strategy is {payload.strategy}, and the schema is no"
                " record, so there is no name",
                hint=f"set {payload.part}Schema to the schema of a record, or"
                f" {payload.part}.subject.name.strategy={SubjectStrategy.TOPIC}",
            )
        in_topic = payload.strategy is SubjectStrategy.TOPIC_RECORD
        return f"{self._topic}-{name}" if in_topic else name


def _columns(part: ComposedColumns, schema: StructType) -> ColumnType:
    """The type of a key or value: a struct with a field for each of its columns. If the key or
    value is made from the fields of one struct column, the result is the type of that column.
    """
    from pyspark.sql.types import StructType

    columns = StructType()
    for one in part.columns:
        columns.add(one.name, schema[one.index].dataType, schema[one.index].nullable)
    whole = column_type(columns, "", nullable=False)
    return whole.children[0] if part.is_struct else whole


def _latest(registry: Registry, subject: str) -> RegisteredSchema:
    found = registry.latest(subject)
    if found is None:
        raise SchemaError(
            f"subject {safe_text(subject)} is not there at {registry}",
            hint="register the schema there (without use.latest.version,"
            " auto.register.schemas=true does)",
            kind=Kind.SCHEMA_NOT_REGISTERED,
        )
    return found


def given_schema(payload: PayloadOptions) -> str:
    """The text of the schema from the option ``keySchema`` or ``valueSchema``. The option contains
    the text itself, or the path of a file with the text. Raises ConfigError if the file can't be
    read.
    """
    text = payload.schema or ""
    option = f"{payload.part}Schema"
    path = text.removeprefix("file:").removeprefix("//") if text.startswith("file:") else text
    if not path.startswith("/") or text.startswith(("//", "/*")):  # a comment of Protobuf
        return text
    what = f"{option}={safe_text(path)}"
    try:
        text = decoded(read_file(path, option, check=lambda it: check_file(it, what)))
        return text.removeprefix("\ufeff")  # Windows' editors begin a file so
    except UnusableFileError as error:
        raise ConfigError(
            f"{option}: {safe_text(path)} can't be read: {error}",
            hint="the file must be on the driver",
        ) from None
