"""Calls a blocking function on a daemon thread, even while the interpreter exits."""

from __future__ import annotations

import threading
from collections.abc import Callable


def run_aside(run: Callable[[], None], name: str) -> None:
    """Calls ``run`` on a new daemon thread with the name ``name``.

    If the main thread has ended, Python 3.12 and later starts no new threads. Then this function
    calls ``run`` on the current thread and blocks until ``run`` returns. Raises RuntimeError if the
    operating system allows no more threads.
    """
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        # A producer still sends its queued records at this time (producer/exit_flush.py).
        if "interpreter shutdown" not in str(error):
            raise
        run()
