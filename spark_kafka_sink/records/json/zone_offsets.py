"""Finds the offsets of a time zone from UTC, for many instants at once.

The offsets come from Python's zoneinfo, because Arrow's offsets are wrong for late instants.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

#: No zone has a transition before this year. The first transitions are in 1835.
_FIRST_YEAR: Final = 1800
#: From here on all zones follow a rule, and the calendar repeats itself after 400 years, with its
#: days of the week. Morocco has the last transitions without a rule, in 2087.
_RULES_FROM, _PERIOD_YEARS = 2101, 400
#: The step of the search for transitions, in seconds. No zone has two transitions within one step:
#: the closest transitions are four days apart (Freetown, 1939).
_STEP: Final = 2 * 86_400
_UNIX_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
#: If a column covers more years than this number, only the years that occur in the column get a
#: table. Often some rows are in the year 9999, and the others in this year.
_NEAR_YEARS: Final = 30


def _ms_of(year: int) -> int:
    return (dt.date(year, 1, 1).toordinal() - _UNIX_EPOCH) * 86_400_000


_RULES_FROM_MS: Final = _ms_of(_RULES_FROM)
_PERIOD_MS: Final = _ms_of(_RULES_FROM + _PERIOD_YEARS) - _RULES_FROM_MS


@dataclass(frozen=True, slots=True)
class Offsets:
    """The offsets of rows from UTC, in seconds: row ``i`` has the offset ``seconds[which[i]]``. If
    ``which`` is None, all rows have the offset ``seconds[0]``.
    """

    seconds: Int64s
    which: npt.NDArray[np.intp] | None

    def of_rows(self) -> Int64s:
        """The offset of each row in seconds. If all rows have the same offset, the array has only
        this one offset.
        """
        return self.seconds[:1] if self.which is None else self.seconds[self.which]


def offsets_at(zone: dt.tzinfo, millis: Int64s) -> Offsets:
    """The offsets of ``zone`` at the instants ``millis``, in milliseconds since the epoch (UTC).
    ``millis`` must not be empty.
    """
    if isinstance(zone, dt.timezone):
        fixed = zone.utcoffset(None).total_seconds()
        return Offsets(np.array([int(fixed)], np.int64), None)
    least, most = int(millis.min()), int(millis.max())
    if most >= _RULES_FROM_MS:
        periods = np.maximum(millis - _RULES_FROM_MS, 0) // _PERIOD_MS
        millis = millis - periods * _PERIOD_MS
        least = min(least, _RULES_FROM_MS)
        most = min(most, _RULES_FROM_MS + _PERIOD_MS - 1)
    years: Sequence[int] = range(_year(least), _year(most) + 1)
    if len(years) > _NEAR_YEARS:
        found = millis.view("M8[ms]").astype("M8[Y]").view(np.int64) + 1970
        first_year, last_year = years[0], years[-1]
        used = np.bincount(found.clip(first_year, last_year) - first_year)
        years = [first_year + int(after) for after in used.nonzero()[0]]
    # zoneinfo is asked once per process for each year, because ``_table`` is cached.
    tables = [_table(zone, year) for year in years]
    starts = np.concatenate([start for start, _ in tables])
    seconds = np.concatenate([offsets for _, offsets in tables])
    first, last = np.searchsorted(starts, [least, most], side="right").clip(1) - 1
    if (seconds[first : last + 1] == seconds[first]).all():
        return Offsets(seconds[first:], None)
    return Offsets(seconds, np.searchsorted(starts, millis, side="right").clip(1) - 1)


def _year(millis: int) -> int:
    """The year of the instant ``millis`` (in ms since 1970), but at least 1800."""
    year = int(np.datetime64(millis, "ms").astype("M8[Y]").astype(np.int64)) + 1970
    return max(year, _FIRST_YEAR)


@lru_cache(maxsize=8192)
def _table(zone: dt.tzinfo, year: int) -> tuple[Int64s, Int64s]:
    """The offsets of ``zone`` in ``year``: the instants at which an offset begins (in ms since
    1970), and the offsets in seconds.
    """
    at, end = _ms_of(year) // 1000, _ms_of(year + 1) // 1000 - 1
    offset = _offset(zone, at)
    starts, offsets = [at], [offset]
    while at < end:
        before, at = at, min(at + _STEP, end)
        if _offset(zone, at) != offset:
            starts.append(_transition(zone, before, at))
            offset = _offset(zone, at)
            offsets.append(offset)
    return np.array(starts, np.int64) * 1000, np.array(offsets, np.int64)


def _transition(zone: dt.tzinfo, before: int, after: int) -> int:
    """Finds the second at which the zone's offset changes, between the seconds ``before`` and
    ``after``. The offset must change exactly once between them.
    """
    offset = _offset(zone, before)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


# Arrow would be wrong here. A zone's file in the time zone database has a list of transitions, and
# a rule for all instants after the list (RFC 8536, section 3.3). Arrow ignores this rule. In older
# files, the list ends in 2037. In newer files, it ends when the rule begins (New York: 2007).
def _offset(zone: dt.tzinfo, seconds: int) -> int:
    offset = dt.datetime.fromtimestamp(seconds, zone).utcoffset()
    assert offset is not None, "zoneinfo knows the offset of every instant"
    return int(offset.total_seconds())
