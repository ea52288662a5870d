"""Requests read and answers written by kio: the cluster shares no codec with the producer."""

from __future__ import annotations

import dataclasses
import importlib
import io
import struct
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from types import ModuleType
from typing import Any, ClassVar, get_args

import kio.schema.describe_transactions.v0.response as _describe_transactions
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i64

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HEAD = struct.Struct(">hhi")

NAMES = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    9: "offset_fetch",
    10: "find_coordinator",
    16: "list_groups",
    17: "sasl_handshake",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    22: "init_producer_id",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    28: "txn_offset_commit",
    32: "describe_configs",
    36: "sasl_authenticate",
    60: "describe_cluster",
    61: "describe_producers",
    65: "describe_transactions",
    66: "list_transactions",
}


class UnreadableError(Exception):
    """A broker closes the connection on such bytes."""


@dataclass(frozen=True, slots=True)
class Request:
    api: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any

    @property
    def answer(self) -> Answer:
        return Answer(NAMES[self.api], self.version)


def peek(frame: bytes) -> tuple[int, int, int]:
    """API key, version and correlation id."""
    if len(frame) < _HEAD.size:
        raise UnreadableError("too short for a header")
    api, version, correlation_id = _HEAD.unpack_from(frame)
    return api, version, correlation_id


def read_request(frame: bytes) -> Request:
    api, version, correlation_id = peek(frame)
    entity = top_entity(NAMES[api], version, "request")
    try:
        header, used = entity_reader(entity.__header_schema__)(frame, 0)
        body, size = entity_reader(entity)(frame, used)
    except Exception as e:  # kio raises what it likes for bytes it can't read
        raise UnreadableError(f"{entity.__name__} v{version}: {e!r}") from e
    if used + size != len(frame):
        raise UnreadableError(f"{len(frame) - used - size} bytes follow {entity.__name__}")
    return Request(api, version, correlation_id, header.client_id, body)


def write_answer(request: Request, body: Any) -> bytes:
    head = struct.pack(">i", request.correlation_id)
    if request.api != 18 and type(body).__flexible__:
        head += b"\0"
    return head + write(body)


def write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read(entity: type, data: bytes) -> Any:
    value: Any
    value, size = entity_reader(entity)(data, 0)
    assert size == len(data), f"{len(data) - size} bytes follow {entity.__name__}"
    return value


def ms(value: timedelta) -> int:
    return value // timedelta(milliseconds=1)


class Answer:
    """A response of one version: ``answer(field=...)``; one of its structs: ``answer.Name(...)``.

    A struct may be given as a dict. Fields this version has not are left out. Error codes may be
    any int; times are milliseconds, -1 for none.
    """

    def __init__(self, name: str, version: int, kind: str = "response") -> None:
        self._module = _module(name, version, kind)
        self._whole = top_entity(name, version, kind)

    def __call__(self, **given: Any) -> Any:
        return _builder(self._whole)(**given)

    def __getattr__(self, name: str) -> Any:
        return _builder(getattr(self._module, name))


@cache
def _module(name: str, version: int, kind: str) -> ModuleType:
    if (name, kind) == ("describe_transactions", "response"):
        return _DescribeTransactions  # type: ignore[return-value]
    return importlib.import_module(f"kio.schema.{name}.v{version}.{kind}")


@cache
def top_entity(name: str, version: int, kind: str) -> Any:
    pascal = "".join(part.capitalize() for part in name.split("_"))
    return getattr(_module(name, version, kind), pascal + kind.capitalize())


def response_entity(api: int, version: int) -> Any:
    return top_entity(NAMES[api], version, "response")


@cache
def _builder(entity: Any) -> Any:
    fields = {f.name: f for f in dataclasses.fields(entity)}
    kinds = {name: f.metadata.get("kafka_type") for name, f in fields.items()}
    structs = {name: _struct_in(f.type) for name, f in fields.items()}

    def build(**given: Any) -> Any:
        return entity(
            **{
                key: _converted(kinds[key], structs[key], value)
                for key, value in given.items()
                if key in kinds
            }
        )

    return build


def _struct_in(hint: Any) -> Any:
    """The kind of struct that a field of this type holds, one or many; None for plain values."""
    if dataclasses.is_dataclass(hint):
        return hint
    return next((found for one in get_args(hint) if (found := _struct_in(one))), None)


def _converted(kind: str | None, struct: Any, value: Any) -> Any:
    if isinstance(value, dict):
        return _builder(struct)(**value)
    if isinstance(value, list):
        return tuple(_converted(kind, struct, one) for one in value)
    if kind == "error_code":
        return KioErrorCode(int(value))
    if kind in ("timedelta_i32", "timedelta_i64") and isinstance(value, int):
        return timedelta(milliseconds=value)
    if kind == "datetime_i64" and isinstance(value, int):
        return None if value < 0 else _EPOCH + timedelta(milliseconds=value)
    if isinstance(value, uuid.UUID) and value.int == 0:
        return None
    return value


def _as_int64(entity: Any, name: str) -> Any:
    """``entity`` with a field as plain int64: kio has no -1 for a date that isn't nullable."""
    fields = []
    for f in dataclasses.fields(entity):
        kind = {"kafka_type": "int64"} if f.name == name else f.metadata
        type_ = i64 if f.name == name else f.type
        fields.append((f.name, type_, dataclasses.field(metadata=kind)))
    copied = {k: v for k, v in vars(entity).items() if k in _META}
    copied["__annotations__"] = dict.fromkeys(_META, ClassVar)
    return dataclasses.make_dataclass(
        entity.__name__, fields, namespace=copied, frozen=True, kw_only=True
    )


_META = ("__type__", "__version__", "__flexible__", "__api_key__", "__header_schema__")


class _DescribeTransactions:
    TopicData = _describe_transactions.TopicData
    TransactionState: Any = _as_int64(
        _describe_transactions.TransactionState, "transaction_start_time"
    )


def _describe_response() -> Any:
    entity = _describe_transactions.DescribeTransactionsResponse
    copied = {k: v for k, v in vars(entity).items() if k in _META}
    fields: list[Any] = [
        ("throttle_time", *_field(entity, "throttle_time")),
        ("transaction_states", tuple[_DescribeTransactions.TransactionState, ...]),
    ]
    return dataclasses.make_dataclass(
        entity.__name__, fields, namespace=copied, frozen=True, kw_only=True
    )


def _field(entity: Any, name: str) -> tuple[Any, Any]:
    found = next(f for f in dataclasses.fields(entity) if f.name == name)
    return found.type, dataclasses.field(metadata=found.metadata)


_DescribeTransactions.DescribeTransactionsResponse = _describe_response()  # type: ignore[attr-defined]
