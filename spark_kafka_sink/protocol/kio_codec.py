"""What every request of the control plane shares: its bytes by kio, its answer by our own reader.

Owns: the only imports of ``kio`` in the package: kio knows the layout of every request in every
version. It is imported when the first request is encoded, so that importing this module costs
nothing. Never: what a request says (the modules of messages), nor how an answer is read
(``protocol/wire.py``).
"""

from __future__ import annotations

import importlib
import io
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, TypeVar

from spark_kafka_sink.errors import ErrorCode, InvalidTopicError, UnsupportedVersionError
from spark_kafka_sink.protocol.frames import is_flexible
from spark_kafka_sink.protocol.request import ApiKey, Buffers, VersionRange
from spark_kafka_sink.protocol.wire import WireReader, decoding

T = TypeVar("T")

_importing = threading.Lock()


def write_body(
    api_key: ApiKey,
    version: int,
    entity: Callable[[Any], object],
) -> Buffers:
    """The bytes of the kio entity that ``entity`` makes of kio's request module of ``version``."""
    with _importing, _without_hypothesis():
        from kio.serial import entity_writer  # 50 ms, paid by whoever connects first

        module = _kio_request_module(api_key, version)
    value: Any = entity(module)
    buffer = io.BytesIO()
    entity_writer(type(value))(buffer, value)
    return [buffer.getvalue()]


def _kio_request_module(api_key: ApiKey, version: int) -> ModuleType:
    return importlib.import_module(f"kio.schema.{api_key.name.lower()}.v{version}.request")


@contextmanager
def _without_hypothesis() -> Iterator[None]:
    """Keep kio from importing hypothesis where that is installed: 130 ms more, for nothing.

    kio tries the import and goes on without it; None in ``sys.modules`` makes the try fail. Where
    hypothesis is loaded already it stays, and where kio is loaded there is nothing to do.
    """
    if "hypothesis" in sys.modules or "kio.static.primitive" in sys.modules:
        yield
        return
    hidden: Any = None
    sys.modules["hypothesis"] = hidden
    try:
        yield
    finally:
        del sys.modules["hypothesis"]


def topic_name(name: str) -> str:
    """``name`` if a frame can carry it. Whether it is legal is the broker's to say."""
    try:
        size = len(name.encode())
        what = f"is {size} bytes long" if size > 0x7FFF else None
    except UnicodeEncodeError:
        what = "is no text: it holds a surrogate"
    if what is not None:
        raise InvalidTopicError(
            f"a topic's name {what}",
            hint="letters, digits, '.', '_' and '-', at most 249 of them",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )
    return name


def check_version(api_key: ApiKey, version: int, ours: VersionRange) -> None:
    """Raise UnsupportedVersionError when ``version`` is none of ours."""
    if not ours.min <= version <= ours.max:
        raise UnsupportedVersionError(
            f"{api_key.name} v{version} is not spoken here; versions {ours.min} to {ours.max} are",
            code=ErrorCode.UNSUPPORTED_VERSION,
        )


def read_body(
    api_key: ApiKey, version: int, body: memoryview, parse: Callable[[WireReader, int], T]
) -> T:
    """What ``parse`` makes of the whole answer ``body``. Raises RemoteProtocolError only."""
    return decoding(
        api_key,
        version,
        body,
        lambda reader: parse(reader, version),
        flexible=is_flexible(api_key, version),
    )
