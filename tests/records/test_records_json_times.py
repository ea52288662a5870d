"""Timestamps as JSON: the offsets of time zones, beside Python's zoneinfo and Java's texts."""

from __future__ import annotations

import datetime as dt
import struct
import zoneinfo

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.base.time_zones import time_zone
from spark_kafka_sink.records.json.json_times import json_timestamps
from spark_kafka_sink.records.json.zone_offsets import offsets_at

#: With a rule, without one, on both sides of the equator, half hours, and no summer time at all.
ZONES = (
    "Europe/Berlin", "America/New_York", "Australia/Sydney", "Australia/Lord_Howe",
    "Africa/Cairo", "Asia/Kolkata", "Asia/Manila", "America/Sao_Paulo", "Antarctica/Troll",
)  # fmt: skip
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
LAST, FIRST = 2**63 - 1, -(2**63)


def texts(micros, zone):
    return json_timestamps(pa.array(micros, pa.int64()).view(pa.timestamp("us", zone))).to_pylist()


def seconds_of(text):
    return int((dt.datetime.fromisoformat(text) - EPOCH).total_seconds())


def offset(info, second):
    return dt.datetime.fromtimestamp(int(second), info).utcoffset().total_seconds()


@given(st.sampled_from(ZONES), st.lists(st.integers(-60_000_000_000, 250_000_000_000), min_size=1))
def test_offsets_are_those_of_zoneinfo(zone, seconds):
    """Of the years 69 to 9892."""
    info = zoneinfo.ZoneInfo(zone)
    found = offsets_at(time_zone(zone), np.array(seconds, np.int64) * 1000).of_rows()
    wanted = [offset(info, second) for second in seconds]
    assert np.broadcast_to(found, len(seconds)).tolist() == wanted


@pytest.mark.parametrize("zone", ZONES)
def test_offsets_change_in_the_second_that_zoneinfo_knows(zone):
    """Hour by hour through years of all kinds, and second by second around each change."""
    info = zoneinfo.ZoneInfo(zone)
    for year in (1940, 1999, 2024, 2037, 2050, 2101, 2499, 2500, 2501, 9000):
        begin = seconds_of(f"{year}-01-01T00:00:00Z")
        hours = begin + 3600 * np.arange(366 * 24)
        found = np.broadcast_to(offsets_at(info, hours * 1000).of_rows(), len(hours))
        for hour in np.flatnonzero(np.diff(found)):
            around = np.arange(hours[hour], hours[hour + 1] + 1)
            at = offsets_at(info, around * 1000).of_rows()
            assert at.tolist() == [offset(info, second) for second in around]
        few = hours[::97]
        assert found[::97].tolist() == [offset(info, second) for second in few]


@pytest.mark.parametrize(
    ("zone", "instant", "text"),
    [
        ("Europe/Berlin", "2050-06-30T22:00:00Z", "2050-07-01T00:00:00.000+02:00"),
        ("Europe/Berlin", "2050-12-31T23:00:00Z", "2051-01-01T00:00:00.000+01:00"),
        ("Australia/Sydney", "2050-06-30T14:00:00Z", "2050-07-01T00:00:00.000+10:00"),
        ("Europe/Berlin", "1850-01-01T00:00:00Z", "1850-01-01T00:53:28.000+00:53:28"),
        ("America/New_York", "1800-01-01T00:00:00Z", "1799-12-31T19:03:58.000-04:56:02"),
        ("America/New_York", "9999-07-01T00:00:00Z", "9999-06-30T20:00:00.000-04:00"),
    ],
)
def test_the_rule_that_follows_the_last_transition_counts(zone, instant, text):
    """Each text is that of to_json."""
    assert texts([seconds_of(instant) * 10**6], zone) == [text]
    assert texts([0, seconds_of(instant) * 10**6], zone)[1] == text


@pytest.mark.parametrize(
    ("zone", "micros", "text"),
    [
        ("Asia/Kolkata", LAST, "+294247-01-10T09:30:54.775+05:30"),
        ("+05:30", LAST, "+294247-01-10T09:30:54.775+05:30"),
        ("Asia/Kolkata", FIRST, "-290308-12-22T01:52:33.224+05:53:28"),
        ("America/New_York", FIRST, "-290308-12-21T15:03:03.224-04:56:02"),
        ("-18:00", FIRST, "-290308-12-21T01:59:05.224-18:00"),
    ],
)
def test_the_ends_of_time_do_not_wrap_in_a_zone(zone, micros, text):
    """Each text is that of to_json."""
    assert texts([micros], zone) == [text]
    assert texts([0, None, micros], zone)[1:] == [None, text]


@pytest.mark.parametrize("name", ["Europe/Berlin", "Australia/Sydney"])
def test_a_slim_file_of_a_zone_gives_the_same_texts(name, tmp_path, monkeypatch):
    """It lists no transitions where the rule in its last line gives them (RFC 8536)."""
    footer, standard, summer = {
        "Europe/Berlin": ("CET-1CEST,M3.5.0,M10.5.0/3", 3600, 7200),
        "Australia/Sydney": ("AEST-10AEDT,M10.1.0,M4.1.0/3", 36000, 39600),
    }[name]
    micros = [seconds_of(f"{year}-{month:02}-15T12:00:00Z") * 10**6
              for year in (2026, 2037, 2038, 2050, 9999) for month in range(1, 13)]  # fmt: skip
    wanted = texts(micros, name)
    header = b"TZif2" + bytes(15)
    kinds = struct.pack(">iBB", standard, 0, 0) + struct.pack(">iBB", summer, 1, 1)
    counts = struct.pack(">6I", 0, 0, 0, 0, 2, 2)
    body = header + counts + kinds + b"A\x00"
    file = tmp_path / name
    file.parent.mkdir()
    file.write_bytes(body + body + f"\n{footer}\n".encode())
    try:
        zoneinfo.reset_tzpath([str(tmp_path)])
        zoneinfo.ZoneInfo.clear_cache()
        time_zone.cache_clear()
        assert texts(micros, name) == wanted
    finally:
        zoneinfo.reset_tzpath()
        zoneinfo.ZoneInfo.clear_cache()
        time_zone.cache_clear()


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("+05", "+05:00"), ("+5", "+05:00"), ("+5:30", "+05:30"), ("+05:3", "+05:03"),
        ("+0530", "+05:30"), ("-05:30:15", "-05:30:15"), ("UTC+1", "+01:00"), ("GMT-3", "-03:00"),
        ("UT+1", "+01:00"), ("GMT+05:30", "+05:30"), ("UTC+5:30", "+05:30"), ("UTC", "Z"),
        ("Z", "Z"), ("GMT", "Z"), ("UT", "Z"), ("GMT0", "Z"), ("Zulu", "Z"), ("IST", "+05:30"),
        ("EST", "-05:00"), ("HST", "-10:00"), ("MST", "-07:00"), ("PLT", "+05:00"),
        ("PST", "-08:00"), ("Etc/GMT+12", "-12:00"), ("-18:00", "-18:00"),
    ],
)  # fmt: skip
def test_a_zone_has_each_name_that_spark_takes(name, offset):
    """Each offset is that of to_json."""
    instant = seconds_of("2026-01-15T12:00:00Z") * 10**6
    assert texts([instant], name)[0].partition(".000")[2] == offset


@pytest.mark.parametrize("name", ["Mars/Olympus", "+19:00", "UTC+19", "../etc/passwd", "+99:99"])
def test_a_time_zone_that_is_not_known_is_named(name):
    with pytest.raises(ConfigError, match="time zone '") as raised:
        texts([0], name)
    assert name in str(raised.value)
    assert "spark.sql.session.timeZone" in raised.value.hint
