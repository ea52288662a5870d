"""Wraps methods of pyspark with a function, once, and removes the wrapper again.

Owns: the wrapping itself. Never: what a wrapper does (``default_mode``, ``continuous_trigger``).
Two things can't be done from inside a Python data source (each of these modules explains why).
Wrappers are minimal: they may set an attribute on the object, and call the method unchanged.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence

from spark_kafka_sink.datasource.source import FORMAT

#: Gets the wrapped method, the object, and the arguments; must call the method.
Around = Callable[..., object]

_MARK = "_kprod_wraps"
_FORMAT_SEEN = "_kprod_format"


class Patches:
    """``arounds``, by the method's name, of the class ``name`` of each of those ``modules`` that
    this process has imported.

    Spark Connect has other writer classes, and importing them needs grpc; a process that has
    a Connect session has imported them.
    """

    def __init__(self, name: str, modules: Sequence[str], arounds: Mapping[str, Around]) -> None:
        self._name = name
        self._modules = modules
        self._arounds = {"format": _note_format, **arounds}

    def _classes(self) -> list[type]:
        found = [getattr(sys.modules.get(m), self._name, None) for m in self._modules]
        return [cls for cls in found if isinstance(cls, type)]

    def install(self) -> None:
        """Idempotent; covers classic sessions, and Connect when this process has such a session."""
        for cls in self._classes():
            for name, around in self._arounds.items():
                wrap(cls, name, around)

    def uninstall(self) -> None:
        """Restores Spark's methods."""
        for cls in self._classes():
            for name in self._arounds:
                unwrap(cls, name)


def _note_format(method: Callable[..., object], writer: object, source: str) -> object:
    setattr(writer, _FORMAT_SEEN, source)
    return method(writer, source)


def writes_kprod(writer: object, source: object) -> bool:
    """Whether the writer, or ``source`` unless it is None, names this format."""
    source = getattr(writer, _FORMAT_SEEN, None) if source is None else source
    return isinstance(source, str) and source.lower() == FORMAT


def wrap(cls: type, name: str, around: Around) -> None:
    """``cls.name(...)`` becomes ``around(method, self, ...)``. Idempotent.

    Does nothing when the class does not define that method (another Spark version).
    """
    method = cls.__dict__.get(name)
    if method is None or hasattr(method, _MARK):
        return

    @functools.wraps(method)
    def wrapped(self: object, *args: object, **kwargs: object) -> object:
        return around(method, self, *args, **kwargs)

    setattr(wrapped, _MARK, method)
    setattr(cls, name, wrapped)


def unwrap(cls: type, name: str) -> None:
    """Restores pyspark's method."""
    method = getattr(cls.__dict__.get(name), _MARK, None)
    if method is not None:
        setattr(cls, name, method)
