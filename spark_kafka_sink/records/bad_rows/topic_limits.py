"""The limits that a topic's configs set for records.

``letters/row_limits`` compares the sizes and timestamps of rows with these limits. This module does
not import Arrow, because the driver needs the module at planning.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LARGEST: Final = "max.message.bytes"
TIMESTAMPS: Final = "message.timestamp.type"
AFTER: Final = "message.timestamp.after.max.ms"
BEFORE: Final = "message.timestamp.before.max.ms"
#: The message.timestamp.type of topics that set the broker's time in each record.
BROKERS_TIME: Final = "LogAppendTime"
CLEANUP: Final = "cleanup.policy"
#: The cleanup.policy of topics that reject records without a key. The policy can also have
#: ``delete``.
COMPACT: Final = "compact"
_NONE: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TopicLimits:
    """A topic's limits for the size of record batches and for timestamps. Picklable.

    * ``max_bytes``: the largest size of a record batch (max.message.bytes).
    * ``before_ms``: a broker accepts a timestamp that is at most this long before the broker's
      time.
    * ``after_ms``: a broker accepts a timestamp that is at most this long after the broker's time.
    * ``compacted``: true if brokers reject records without a key.

    A limit that is unknown or not set is the largest 64-bit number.
    """

    max_bytes: int = _NONE
    before_ms: int = _NONE
    after_ms: int = _NONE
    #: Brokers reject records without a key.
    compacted: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, str | None]) -> TopicLimits:
        """Reads the limits from ``settings``, a topic's configs. A config that is missing sets no
        limit. If the records of the topic get the broker's time, there is no limit for timestamps.
        """
        size, before, after = (_number(settings.get(name)) for name in (LARGEST, BEFORE, AFTER))
        if settings.get(TIMESTAMPS) == BROKERS_TIME:
            before = after = _NONE
        return cls(size, before, after, COMPACT in (settings.get(CLEANUP) or ""))


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isdecimal() else _NONE
