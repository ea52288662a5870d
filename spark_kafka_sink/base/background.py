"""Starts daemon threads that make one blocking call each, even while the interpreter exits.

Owns: :func:`run_aside`. Never: the call itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


def run_aside(run: Callable[[], None], name: str) -> None:
    """Calls ``run`` on a daemon thread with this name. Raises RuntimeError when the process may
    have no more threads.

    Since Python 3.12, no thread can be started after the main thread has ended, although producers
    still send their queues (``producer/exit_flush.py``). In that case ``run`` is called on the
    caller's thread, and blocks it.
    """
    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        if "interpreter shutdown" not in str(error):
            raise
        run()
