"""A broken protocol: a context manager that puts it in place of the right one."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

Mutant = Callable[[], AbstractContextManager[Any]]


def mutants_of(module: ModuleType) -> tuple[Mutant, ...]:
    """All functions of ``module`` that have no underscore, in their order."""
    own = (value for value in vars(module).values() if inspect.isfunction(value))
    return tuple(f for f in own if f.__module__ == module.__name__ and f.__name__[0] != "_")


def all_of(*patches: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    @contextmanager
    def together() -> Iterator[None]:
        with ExitStack() as stack:
            for one in patches:
                stack.enter_context(one)
            yield

    return together()


def with_text(owner: Any, name: str, old: str, new: str) -> AbstractContextManager[Any]:
    """``owner.name`` with one line of its source changed; AssertionError when it has no such line
    any more.
    """
    true = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(true))
    assert source.count(old) == 1, f"{name} has {source.count(old)} times: {old}"
    names = dict(vars(sys.modules[true.__module__]))
    changed = f"from __future__ import annotations\n{source.replace(old, new)}"
    exec(compile(changed, f"<{name}>", "exec"), names)
    return patch.object(owner, name, names[name])
