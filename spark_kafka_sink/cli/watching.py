"""``--watch``: repeats a command until Ctrl-C.

:func:`watched` waits between two calls of a function. The function does the work of the command.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

from spark_kafka_sink.cli.show import new_console

#: Between two calls, in seconds.
_EVERY: Final = 2.0


def watched(show: Callable[[], None], *, watch: bool) -> None:
    """Calls ``show`` once. If ``watch`` is true, calls ``show`` again and again until Ctrl-C or an
    error, and clears the terminal before each call.
    """
    if not watch:
        show()
        return
    console = new_console()
    try:
        while True:
            console.clear()
            console.print(f"{time.strftime('%H:%M:%S')}, every {_EVERY:g} s. Ctrl-C ends it.")
            show()
            sys.stdout.flush()
            time.sleep(_EVERY)
    except KeyboardInterrupt:
        sys.stdout.write("\n")
