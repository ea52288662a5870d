"""Logs retries of batches. For each error code of this package, such as KP0301, logs at most one
line in half a minute. (Java's ``Sender`` logs a line for each retry.)
"""

from __future__ import annotations

import logging
from typing import Final

from spark_kafka_sink.base.errors import KafkaError, safe_text, warn

_log = logging.getLogger(__name__)

#: The minimum time in ms between two lines about the same error code.
QUIET_MS: Final = 30_000


class RetryLines:
    """Logs the first retry with an error code, such as KP0301. After that, logs at most one line in
    half a minute for this code. Each line has the number of retries that were not logged since the
    previous line. Only one thread may use an instance.
    """

    # Without the limit, a dead broker that leads 1000 partitions would cause 1000 lines.
    __slots__ = ("_last_ms", "_unlogged")

    def __init__(self) -> None:
        self._last_ms: dict[str, int] = {}
        self._unlogged: dict[str, int] = {}

    def log(self, error: KafkaError, what: str, now: int) -> None:
        """Counts a retry because of ``error``. Logs a line if no line with this error code was
        logged in the last half minute. ``what`` is the text of the line, with partition and broker.
        """
        code = error.kind.kp_code
        last, others = self._last_ms.get(code), self._unlogged.get(code, 0)
        if last is not None and now - last < QUIET_MS:
            self._unlogged[code] = others + 1
            return
        self._last_ms[code], self._unlogged[code] = now, 0
        more = f"; {others} more retries with this cause since the last line" if others else ""
        warn(_log, code, "retrying %s%s", safe_text(what), more)
