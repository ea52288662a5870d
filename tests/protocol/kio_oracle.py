"""kio as a second opinion: its entities, writers and readers, for golden tests of our codec."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
import io
from typing import Any

from kio.serial import entity_reader, entity_writer

from spark_kafka_sink.protocol import answers


class Module:
    """One kio module (API, version, ``request`` or ``response``).

    ``module.Entity(field=...)`` builds an entity; a field that this version does not have is left
    out, so that one test covers all versions.
    """

    def __init__(self, api: str, version: int, kind: str) -> None:
        self._module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")

    def __getattr__(self, name: str) -> Any:
        entity = getattr(self._module, name)
        known = {f.name for f in dataclasses.fields(entity)}

        def build(**fields: Any) -> Any:
            return entity(**{key: value for key, value in fields.items() if key in known})

        return build

    def has(self, entity: str, field: str | None = None) -> bool:
        found = getattr(self._module, entity, None)
        if found is None or field is None:
            return found is not None
        return field in {f.name for f in dataclasses.fields(found)}

    def read(self, entity: str, data: bytes) -> Any:
        """The entity in ``data``, every byte of it."""
        value, size = entity_reader(getattr(self._module, entity))(data, 0)
        assert size == len(data)
        return value


def write(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


#: What answers say of it, as kio takes it.
THROTTLE = dt.timedelta(milliseconds=9)


def decode(request: Any, version: int, data: bytes) -> Any:
    return answers.decode(request, version, memoryview(data))


def read_request(request: Any, version: int) -> Any:
    """As kio reads what we have written."""
    kio = Module(request.api_key.name.lower(), version, "request")
    return kio.read(type(request).__name__, b"".join(request.encode(version)))


def in_every_version(*requests: Any) -> list[tuple[Any, int]]:
    return [(r, version) for r in requests for version in range(r.versions.min, r.versions.max + 1)]
