"""Shows the progress of a command that takes longer than a second, by a bar on standard error.

No bar is drawn into a file or a pipe, or with ``--json``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from spark_kafka_sink.admin.request_loop import RequestLoop

#: Seconds after which there is a bar.
_AFTER_S: Final = 1.0


class Bar:
    """A progress bar. It is called with the number of finished steps and the number of all steps,
    such as ``bar(3, 12)``. A step is, for example, a request.

    The bar disappears when all steps are finished. It changes only while it is called: no thread
    draws it. So it never changes while the command prints a line.
    """

    def __init__(
        self, console: Console, what: str, monotonic_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._what = what
        self._monotonic_s = monotonic_s
        self._began: float | None = None
        self._shown: Progress | None = None

    def __call__(self, done: int, total: int) -> None:
        if self._began is None:
            self._began = self._monotonic_s()
        if done >= total:
            self.close()
        elif self._shown is not None or self._monotonic_s() - self._began >= _AFTER_S:
            self._draw(done, total)

    def _draw(self, done: int, total: int) -> None:
        if self._shown is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._shown = Progress(
                *columns, TimeElapsedColumn(), console=self._console, transient=True,
                auto_refresh=False,
            )  # fmt: skip
            self._shown.add_task(self._what)
            self._shown.start()
        self._shown.update(self._shown.task_ids[0], completed=done, total=total, refresh=True)

    def close(self) -> None:
        """Removes the bar from the screen. If the object is called again, it begins a new bar."""
        shown, self._shown, self._began = self._shown, None, None
        if shown is not None:
            shown.stop()


def bar(what: str, *, as_json: bool) -> Callable[[int, int], None]:
    """A progress bar with the text ``what``. If standard error is not a terminal, the result is a
    function that does nothing.
    """
    console = Console(file=sys.stderr)
    if as_json or not console.is_terminal:
        return lambda _done, _total: None
    return Bar(console, what)


@contextmanager
def shown(loop: RequestLoop, *, as_json: bool) -> Iterator[None]:
    """Shows a progress bar for the requests of ``loop`` while the ``with`` block runs."""
    update = bar("querying brokers", as_json=as_json)
    loop.on_progress = update
    try:
        yield
    finally:
        loop.on_progress = None
        update(0, 0)


@contextmanager
def spinner(what: str, *, as_json: bool) -> Iterator[None]:
    """Shows a spinner with the text ``what`` while the ``with`` block runs. Commands use the
    spinner if the number of steps is not known.
    """
    console = Console(file=sys.stderr)
    if as_json or not console.is_terminal:
        yield
        return
    with console.status(what):
        yield
