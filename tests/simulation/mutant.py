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

from spark_kafka_sink.transactions import table
from spark_kafka_sink.transactions.steps import CommitBatch, Goal

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


def without_rows(*names: str, goal: type[Goal] = CommitBatch) -> AbstractContextManager[Any]:
    """The table of that goal without these rows."""
    rows = table.TABLES[goal]
    found = [row.__name__ for row in rows]
    assert set(names) <= set(found), f"{names} of {found}"
    left = tuple(row for row in rows if row.__name__ not in names)
    return patch.dict(table.TABLES, {goal: left})


def with_row_text(
    name: str, old: str, new: str, goal: type[Goal] = CommitBatch
) -> AbstractContextManager[Any]:
    """As :func:`with_text`, of a row of the table of that goal."""
    changed = changed_text(getattr(table, name), old, new)
    rows = tuple(changed if row.__name__ == name else row for row in table.TABLES[goal])
    return patch.dict(table.TABLES, {goal: rows})


def with_text(owner: Any, name: str, old: str, new: str) -> AbstractContextManager[Any]:
    """``owner.name`` with one line of its source changed; AssertionError when it has no such line
    any more.
    """
    return patch.object(owner, name, changed_text(getattr(owner, name), old, new))


def changed_text(true: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """The function with one line of its source changed."""
    name = true.__name__
    source = textwrap.dedent(inspect.getsource(true))
    assert source.count(old) == 1, f"{name} has {source.count(old)} times: {old}"
    names = dict(vars(sys.modules[true.__module__]))
    changed = f"from __future__ import annotations\n{source.replace(old, new)}"
    exec(compile(changed, f"<{name}>", "exec"), names)
    found: Callable[..., Any] = names[name]
    return found
