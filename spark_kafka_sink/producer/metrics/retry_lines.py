"""Logs retried batches, with few lines for many retries. (Java's ``Sender`` logs a line for each
retry.)

Owns: :class:`RetryLines`, the choice of retries that are logged. Never: the decision to retry.
"""

from __future__ import annotations

import logging
from typing import Final

from spark_kafka_sink.base.errors import KafkaError, safe_text, warn

_log = logging.getLogger(__name__)

#: How long further retries with one cause are counted before they are logged.
QUIET_MS: Final = 30_000


class RetryLines:
    """Logs the first retry with a cause, and then one line every half minute with the number of
    other retries.

    The cause is the error code of a response. The number of lines is limited: a thousand partitions
    of a dead broker fail with the same cause, and there are only some hundred codes. Only one
    thread may use an instance.
    """

    __slots__ = ("_last_ms", "_unlogged")

    def __init__(self) -> None:
        self._last_ms: dict[str, int] = {}
        self._unlogged: dict[str, int] = {}

    def log(self, error: KafkaError, what: str, now: int) -> None:
        """Counts a batch that is retried because of ``error``, and logs a line if it is time for
        one. ``what`` names partition and broker.
        """
        code = error.kind.kp_code
        last, others = self._last_ms.get(code), self._unlogged.get(code, 0)
        if last is not None and now - last < QUIET_MS:
            self._unlogged[code] = others + 1
            return
        self._last_ms[code], self._unlogged[code] = now, 0
        more = f"; {others} more retries with this cause since the last line" if others else ""
        warn(_log, code, "retrying %s%s", safe_text(what), more)
