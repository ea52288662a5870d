"""Wraps methods of pyspark with a function, once, and removes the wrapper again.

Owns: the wrapping itself. Never: what a wrapper does (``default_mode``, ``continuous_trigger``).
Two things can't be done from inside a Python data source (each of these modules says why). Wrappers
are minimal: they see the call, may store a note on the object, and pass everything on.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

#: Gets the wrapped method, the object, and the arguments; must call the method.
Around = Callable[..., object]

_MARK = "_kprod_wraps"


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
    """Restores pyspark's own method."""
    method = getattr(cls.__dict__.get(name), _MARK, None)
    if method is not None:
        setattr(cls, name, method)


def loaded_classes(name: str, *modules: str) -> list[type]:
    """The classes called ``name`` of those ``modules`` that this process has imported.

    Spark Connect has writer classes of its own, and importing them needs grpc; a process that has
    a Connect session has imported them.
    """
    found = [getattr(sys.modules.get(module), name, None) for module in modules]
    return [cls for cls in found if isinstance(cls, type)]
