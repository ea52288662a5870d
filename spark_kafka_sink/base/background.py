"""Calls a blocking function on a daemon thread, even while the interpreter exits."""

from __future__ import annotations

import threading
from collections.abc import Callable


def run_aside(run: Callable[[], None], name: str) -> None:
    """Calls ``run`` on a new daemon thread with the name ``name``. Raises RuntimeError if the
    operating system allows no more threads.

    Since Python 3.12, no thread can be started after the main thread has ended. A producer sends
    its queued records even then (``producer/exit_flush.py``). So after the end of the main thread,
    this function calls ``run`` on the current thread and blocks.
    """
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        if "interpreter shutdown" not in str(error):
            raise
        run()
