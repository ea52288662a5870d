"""Finds a time zone by a name that Spark accepts for ``spark.sql.session.timeZone``.

Spark accepts the names of ``java.time.ZoneId.of(name, ZoneId.SHORT_IDS)``. It also accepts one
digit for hours or minutes: ``+5:30``, ``+05:3``.
"""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from spark_kafka_sink.base.errors import ConfigError, safe_text

#: ``ZoneId.SHORT_IDS`` of Java 17.
_SHORT_IDS: Final = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia", "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
#: Names of UTC that need no data base.
_UTC: Final = frozenset({"Z", "UTC", "GMT", "UT", "Etc/UTC"})
#: ``+5``, ``+05``, ``+5:3``, ``+0530``, ``+05:30:15``, and each of them after a prefix.
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d\d?)(?::?(\d\d?)(?::?(\d\d))?)?", re.ASCII)
_MOST_SECONDS: Final = 18 * 3600


@lru_cache(maxsize=256)
def time_zone(name: str) -> dt.tzinfo:
    """Returns the time zone with the name ``name``. Raises ConfigError if this machine does not
    have this time zone.
    """
    long_name = _SHORT_IDS.get(name, name)
    if long_name in _UTC:
        return dt.UTC
    if found := _OFFSET.fullmatch(long_name):
        sign, hours, minutes, seconds = found.groups(default="0")
        total = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        if total <= _MOST_SECONDS:
            return dt.timezone(dt.timedelta(seconds=-total if sign == "-" else total))
    try:
        return ZoneInfo(long_name)
    except (KeyError, ValueError, OSError) as error:
        raise ConfigError(
            f"time zone '{safe_text(name)}', the session's, is not known on this machine, and"
            " timestamps in JSON are written in it",
            hint="set spark.sql.session.timeZone to UTC or to a name of the IANA data base, and"
            " install the time zone data (the package tzdata) where tasks run",
        ) from error
