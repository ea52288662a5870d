"""Putting a function in front of a method of pyspark, once, and taking it away again.

Owns: the wrap itself. Never: what a wrap does (``default_mode``, ``continuous_trigger``). Needed
because two things can't be done from inside a Python data source (each of these modules says why).
Wraps are minimal: they see the call, may note something on the object, and hand on everything.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

#: Gets the wrapped method, the object, and the arguments; must call the method.
Around = Callable[..., object]

_MARK = "_kprod_wraps"


def wrap(cls: type, name: str, around: Around) -> None:
    """``cls.name(...)`` becomes ``around(method, self, ...)``. Does nothing when it is so already.

    Does nothing either when the class has no such method of its own (another Spark version).
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
    """Puts pyspark's own method back."""
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
