"""Timestamps in JSON beside Spark's own to_json, in twenty time zones."""

from __future__ import annotations

import json
import random

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from spark_kafka_sink.records.json.json_text import json_value

#: Spark compiles twenty expressions.
pytestmark = [pytest.mark.spark, pytest.mark.long]

#: Whose past is the same in each edition of the data base.
ZONES = (
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Moscow", "America/New_York",
    "America/Los_Angeles", "America/Sao_Paulo", "America/St_Johns", "Australia/Sydney",
    "Australia/Lord_Howe", "Pacific/Auckland", "Asia/Kolkata", "Asia/Tokyo", "Asia/Kathmandu",
    "Antarctica/Troll", "+05", "UTC+1", "GMT+05:30", "PST",
)  # fmt: skip
_1800, _1970, _9999 = -5_364_662_400, 0, 253_402_300_799


def test_timestamps_are_texts_of_to_json_in_twenty_zones(spark):
    """Rows of 1800 to 9999, and the first and the last instant."""
    chosen = random.Random(48)
    seconds = [chosen.randint(_1800, _9999) for _ in range(500)]
    seconds += [chosen.randint(_1970, _9999 // 50) for _ in range(500)]
    micros = [one * 10**6 + chosen.randrange(10**6) for one in seconds] + [2**63 - 1, -(2**63)]
    texts = [
        f.to_json(f.struct(f.timestamp_micros("micros").alias("at")), {"timeZone": zone})
        for zone in ZONES
    ]
    frame = spark.createDataFrame([(one,) for one in micros], "micros bigint").coalesce(1)
    rows = frame.select("micros", *texts).collect()
    assert len(rows) == len(micros)
    for number, zone in enumerate(ZONES, 1):
        column = pa.array([row[0] for row in rows], pa.int64()).view(pa.timestamp("us", zone))
        found = [json.loads(text) for text in json_value(column).to_pylist()]
        assert found == [json.loads(row[number])["at"] for row in rows], zone
