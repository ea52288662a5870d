"""Every generated message in every version, against kio and kafka-python, and against liars.

What a broker's answer must say for sense is tested beside the modules that ask for it. Here the
bytes alone count: the ones we write are kio's and kafka-python's, the ones they write we read, and
arrays without end make no decoder do more than refuse them. (Random changes: ``tests/fuzz``.)
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import importlib
import io
import runpy
import uuid
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from hostile import allocated, parses_or_refuses, work
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import Records

from spark_kafka_sink.base.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.messages.flexible_versions import FIRST_FLEXIBLE_VERSION
from spark_kafka_sink.protocol.request import ApiKey, VersionRange
from spark_kafka_sink.protocol.wire import decoding, error_of

ROOT = Path(__file__).parents[2]
GENERATOR = runpy.run_path(str(ROOT / "tools" / "generate_messages.py"))
ALL = [
    (api, version)
    for api, (low, high) in GENERATOR["VERSIONS"].items()
    for version in range(low, high + 1)
]
IDS = [f"{api} v{version}" for api, version in ALL]
#: The lowest, the first flexible and the highest version of each: every layout that a decoder has.
EDGES = [
    (api, version)
    for api, version in ALL
    if version in GENERATOR["VERSIONS"][api]
    or version == FIRST_FLEXIBLE_VERSION.get(ApiKey[GENERATOR["snake"](api).upper()])
]
EDGE_IDS = [f"{api} v{version}" for api, version in EDGES]
QUICK = settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
st.register_type_strategy(Records, st.binary(max_size=40).map(Records))
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def snake(api: str) -> str:
    return str(GENERATOR["snake"](api))


def ours(api: str) -> Any:
    return importlib.import_module(f"spark_kafka_sink.protocol.messages.{snake(api)}")


def kios(api: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{snake(api)}.v{version}.{kind.lower()}")
    return getattr(module, f"{api}{kind}")


def by_kafka_python(api: str, version: int, kind: str, data: bytes) -> bytes:
    """What kafka-python makes of ``data``, in its own bytes."""
    rooms = (kafka.protocol.admin, kafka.protocol.consumer, kafka.protocol.metadata)
    for room in (*rooms, kafka.protocol.producer, kafka.protocol.sasl):
        if hasattr(room, f"{api}{kind}"):
            message = getattr(room, f"{api}{kind}").decode(data, version=version)
            message._header = None  # what its encoder asks for, and its decoder does not set
            return bytes(message.encode(version=version))
    raise AssertionError(f"kafka-python has no {api}{kind}")


def schema(api: str, version: int, kind: str) -> Any:
    """The fields of exactly this version."""
    return GENERATOR["message"](f"{api}{kind}", GENERATOR["Versions"](version, version))


def by_kio(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def read_all(value: Any) -> Any:
    """``value`` with every item of every array made."""
    if dataclasses.is_dataclass(value):
        return {
            field.name: read_all(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview | array):
        return [read_all(item) for item in value]
    return value


def consume(value: Any) -> None:
    """Make every item of every array, and keep none."""
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            consume(getattr(value, field.name))
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | memoryview | array):
        for item in value:
            consume(item)


def decode(api: str, version: int, data: bytes, then: Any) -> Any:
    key = ApiKey[snake(api).upper()]
    response = getattr(ours(api), f"{api}Response")
    return decoding(
        key,
        version,
        data,
        lambda reader, version: then(response.read(reader, version)),
        flexible=version >= FIRST_FLEXIBLE_VERSION.get(key, 99),
    )


def plain(value: Any) -> Any:
    """One of kio's values, or of ours, as what stands on the wire."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, dt.timedelta):
        return value // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // dt.timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, memoryview):
        return bytes(value)
    return value


def fields_of(struct: Any, entity: Any) -> Iterator[tuple[Any, Any]]:
    """Our schema's fields beside kio's values, which stand in the same order."""
    values = [getattr(entity, field.name) for field in dataclasses.fields(entity)]
    assert len(values) == len(struct.fields)
    return zip(struct.fields, values, strict=True)


def same(struct: Any, entity: Any, mine: Any) -> None:
    """``mine`` (of :func:`read_all`) says what kio's ``entity`` says."""
    for field, value in fields_of(struct, entity):
        found = mine[field.name]
        if field.array:
            assert len(found) == len(value or ())
            if field.struct is None:
                assert [plain(one) for one in found] == [plain(one) for one in value or ()]
            else:
                for one, its in zip(value or (), found, strict=True):
                    same(field.struct, one, its)
        elif field.struct is not None:
            if found is not None:  # a tagged field of nothing but defaults is left out
                same(field.struct, value, found)
        elif value is None and field.type in ("uuid", "bytes", "records"):
            assert not any(bytes(found))
        else:
            known = error_of(plain(value)) if field.is_code else plain(value)
            assert plain(found) == plain(known), field.name


def mine_of(struct: Any, entity: Any, module: Any) -> Any:
    """kio's entity as our request."""
    given: dict[str, Any] = {}
    for field, value in fields_of(struct, entity):
        if field.tag is not None:
            continue
        if field.struct is not None:
            made = None if value is None else [mine_of(field.struct, v, module) for v in value]
            given[field.name] = made
        elif field.array:
            given[field.name] = None if value is None else [plain(one) for one in value]
        else:
            given[field.name] = (
                bytes(16) if field.type == "uuid" and value is None else plain(value)
            )
    if struct.name.endswith("Request") and hasattr(getattr(module, struct.name), "api_key"):
        given["versions"] = VersionRange(0, 99)
    return getattr(module, struct.name)(**given)


def entity(api: str, version: int, kind: str) -> st.SearchStrategy[Any]:
    return st.from_type(kios(api, version, kind))


@pytest.mark.parametrize(("api", "version"), ALL, ids=IDS)
@given(data=st.data())
@QUICK
def test_a_request_is_byte_for_byte_what_the_others_write(
    api: str, version: int, data: st.DataObject
) -> None:
    kind = kios(api, version, "Request")
    asked = data.draw(entity(api, version, "Request"))
    struct = schema(api, version, "Request")
    tagged = [field.name for field in struct.fields if field.tag is not None]
    asked = dataclasses.replace(asked, **dict.fromkeys(tagged))  # never set by us; all default null
    written = mine_of(struct, asked, ours(api)).encode(version)[0]
    assert written == by_kio(asked)
    read, size = entity_reader(kind)(written, 0)
    assert (read, size) == (asked, len(written))
    assert by_kafka_python(api, version, "Request", written) == written


@pytest.mark.parametrize(("api", "version"), ALL, ids=IDS)
@given(data=st.data())
@QUICK
def test_a_response_of_the_others_is_read_as_they_meant_it(
    api: str, version: int, data: st.DataObject
) -> None:
    told = data.draw(entity(api, version, "Response"))
    written = by_kio(told)
    found = decode(api, version, written, read_all)
    same(schema(api, version, "Response"), told, found)
    if api == "ApiVersions" and told.error_code.value:
        return  # kafka-python reads every such answer as version 0
    again = by_kafka_python(api, version, "Response", written)
    assert decode(api, version, again, read_all) == found


def memory_allowed(data: bytes) -> int:
    return 4 * len(data) + 64 * 1024


def work_allowed(data: bytes) -> int:
    return 20 * len(data) + 1000


def survives(api: str, version: int, data: bytes) -> None:
    """Taken or refused, by our own error alone, at a price that the size of ``data`` bounds."""
    whole = lambda: decode(api, version, data, consume)  # noqa: E731
    parses_or_refuses(whole)
    assert allocated(whole) <= memory_allowed(data)
    assert work(lambda: parses_or_refuses(whole)) <= work_allowed(data)


BOMBS = (
    bytes(20_000),  # nothing, or items that are all empty
    bytes(4) + b"\x7f\xff\xff\xff" * 3,  # counts alone
    bytes(4) + b"\xff\xff\xff\xff\x07" * 3,
    bytes(4) + b"\xff\x7f" + b"\x01" * 17_000,  # 16 383 empty items, behind a throttle time,
    bytes(6) + b"\xff\x7f" + b"\x01" * 17_000,  # behind an error code, too,
    bytes(6) + b"\x40\x00" + b"\x00\x01" * 17_000,  # and in versions that are not flexible
    b"\x01" * 20_000,
    b"\xff" * 10_000,
)


@pytest.mark.parametrize(("api", "version"), EDGES, ids=EDGE_IDS)
def test_arrays_without_end_take_no_more_than_their_bytes(api: str, version: int) -> None:
    for bomb in BOMBS:
        survives(api, version, bomb)


def test_a_field_that_a_version_does_not_have_may_not_be_set() -> None:
    init = ours("InitProducerId").InitProducerIdRequest(
        transactional_id=None, transaction_timeout_ms=1, producer_id=4
    )
    with pytest.raises(UnsupportedVersionError, match="InitProducerIdRequest v2 has no place for"):
        init.encode(2)
    assert init.encode(3)


def test_the_messages_in_the_repository_are_fresh() -> None:
    assert not list(GENERATOR["stale"](GENERATOR["pages"]()))
