"""How fast all tasks of a write may be together.

Owns: :class:`RateLimits`, the options' values. Never: the waiting
(``datasource/write/rate_limit.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.option import OptionValue

_RECORDS, _BYTES, _TASKS = "maxRecordsPerSecond", "maxBytesPerSecond", "tasksAtOnce"


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Of a whole write, per second; None where there is no limit. ``tasks_at_once``: how many of
    its tasks run at once at most, None when it is not set.
    """

    records_per_second: int | None = None
    bytes_per_second: int | None = None
    tasks_at_once: int | None = None

    @classmethod
    def of(cls, own: Mapping[str, OptionValue]) -> RateLimits:
        """From the sink's options, each of which was read. Raises ConfigError."""
        limits = cls(*(_number(own, name) for name in (_RECORDS, _BYTES, _TASKS)))
        if limits.tasks_at_once is not None and not limits.limits:
            raise ConfigError(
                f"{_TASKS} would have no effect, because there is no rate to divide",
                hint=f"set {_RECORDS} or {_BYTES}, or remove {_TASKS}",
                kind=Kind.NO_EFFECT,
            )
        return limits

    @property
    def limits(self) -> tuple[str, ...]:
        """The limits that there are, as ``name=value``."""
        named = ((_RECORDS, self.records_per_second), (_BYTES, self.bytes_per_second))
        return tuple(f"{name}={value}" for name, value in named if value is not None)


def _number(own: Mapping[str, OptionValue], name: str) -> int | None:
    value = own.get(name)
    return value if isinstance(value, int) else None
