"""Wraps methods of pyspark's classes with functions, and restores the methods.

The functions are in ``default_mode``, ``refused_streams``, ``any_thread`` and ``session_settings``.
These modules also explain why they wrap methods. A function calls the wrapped method, or raises an
error. It may also set an attribute or an option on the writer, or change an argument such as the
save mode.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence

from spark_kafka_sink.base.format_name import FORMAT

#: A wrapper. Its arguments are the wrapped method, the object, and the arguments of the call. It
#: calls the method, or raises an error.
Around = Callable[..., object]

_MARK = "_kprod_wraps"
_AROUND = "_kprod_around"
_FORMAT_SEEN = "_kprod_format"


class Patches:
    """The wrappers for methods of a pyspark class. ``arounds`` maps the name of a method to its
    wrapper.

    ``name`` is the name of the class. ``modules`` are the modules that have a class of this name.
    Only the classes of modules that this process has already imported are patched.
    """

    def __init__(self, name: str, modules: Sequence[str], arounds: Mapping[str, Around]) -> None:
        self._name = name
        # Modules of Spark Connect need grpc: only a process with a Connect session has imported
        # them.
        self._modules = modules
        self._arounds = {"format": _note_format, **arounds}

    def _classes(self) -> list[type]:
        found = [getattr(sys.modules.get(m), self._name, None) for m in self._modules]
        return [cls for cls in found if isinstance(cls, type)]

    def install(self) -> None:
        """Wraps the methods. If this process has imported Spark Connect's classes, their methods
        are also wrapped. Idempotent.
        """
        for cls in self._classes():
            for name, around in self._arounds.items():
                wrap(cls, name, around)

    def uninstall(self) -> None:
        """Removes the wrappers from Spark's methods. The wrapper of the method ``format`` stays,
        because the patches of other modules need it.
        """
        for cls in self._classes():
            for name, around in self._arounds.items():
                if around is not _note_format:
                    unwrap(cls, name, around)


def _note_format(method: Callable[..., object], writer: object, source: str) -> object:
    setattr(writer, _FORMAT_SEEN, source)
    return method(writer, source)


def note_other_format(writer: object) -> None:
    """Marks the writer of a stream that calls a user's function (foreachBatch, foreach). Such a
    stream ignores a ``format`` that was set on the writer earlier.
    """
    setattr(writer, _FORMAT_SEEN, "")


def writes_kprod(writer: object, source: object) -> bool:
    """Whether the writer writes with the format ``kprod``. ``source`` is the format in the call. If
    ``source`` is None, the format is the one that was set on ``writer`` before.
    """
    source = getattr(writer, _FORMAT_SEEN, None) if source is None else source
    return isinstance(source, str) and source.lower() == FORMAT


def wrap(cls: type, name: str, around: Around) -> None:
    """Replaces the method ``cls.name`` by a wrapper, which calls ``around(method, self, ...)``.

    Does nothing if the method has this wrapper already, or if the class does not define the method,
    as in some versions of Spark. If a method has several wrappers, the wrapper that was added last
    is called first.
    """
    method = cls.__dict__.get(name)
    if method is None or around in _arounds_of(method):
        return

    @functools.wraps(method)
    def wrapped(self: object, *args: object, **kwargs: object) -> object:
        return around(method, self, *args, **kwargs)

    setattr(wrapped, _MARK, method)
    setattr(wrapped, _AROUND, around)
    setattr(cls, name, wrapped)


def unwrap(cls: type, name: str, around: Around | None = None) -> None:
    """Removes the wrapper ``around`` from a method. If ``around`` is None, removes every
    wrapper.
    """
    method = cls.__dict__.get(name)
    others = [one for one in _arounds_of(method) if around is not None and one is not around]
    while hasattr(method, _MARK):
        method = getattr(method, _MARK)
        setattr(cls, name, method)
    for one in reversed(others):
        wrap(cls, name, one)


def _arounds_of(method: object) -> list[Around]:
    """The wrappers of a method, the outermost one first."""
    found: list[Around] = []
    while hasattr(method, _MARK):
        found.append(getattr(method, _AROUND))
        method = getattr(method, _MARK)
    return found
