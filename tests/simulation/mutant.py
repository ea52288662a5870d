"""A broken protocol: a context manager that puts it in place of the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

Mutant = Callable[[], AbstractContextManager[Any]]


def all_of(*patches: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
    @contextmanager
    def together() -> Iterator[None]:
        with ExitStack() as stack:
            for one in patches:
                stack.enter_context(one)
            yield

    return together()
