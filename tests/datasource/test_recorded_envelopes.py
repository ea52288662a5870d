"""Events that Debezium's own engine has read from a PostgreSQL (``make debezium`` records them)
become what Debezium's own ExtractNewRecordState makes of them.
"""

from __future__ import annotations

import json
from random import Random

import pyarrow as pa
import pytest
from test_changed_rows import written

from spark_kafka_sink import upserts
from tests.changelogs.debezium import (
    RECORDED,
    TABLES,
    by_key,
    envelopes,
    frame_of,
    last,
    read_events,
    unwrapped,
)

EVENTS = read_events(RECORDED)
EACH_TABLE = pytest.mark.parametrize("table", TABLES.values(), ids=[*TABLES])
ROWS = {
    "orders": [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("amount", pa.string()),
        ("note", pa.string()),
        ("at", pa.string()),
        ("open", pa.bool_()),
    ],
    "items": [
        ("id", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("data", pa.string()),
        ("ratio", pa.float64()),
        ("day", pa.string()),
        ("note", pa.string()),
    ],
}


def schema_of(table):
    row = pa.struct(ROWS[table.name])
    source = pa.struct([("lsn", pa.int64())])
    return pa.schema([("op", pa.string()), ("before", row), ("after", row), ("source", source)])


def records_of(table, **options):
    rows = envelopes(EVENTS, table.name)
    given = {"keyColumns": ", ".join(table.keys), "valueColumns": "*"}
    given |= {"changelog": "debezium", "jsonIgnoreNullFields": "false"}
    records, _ = written(rows, schema_of(table), **given | options)
    return [(key, value) for _, key, value in records]


def test_the_events_are_of_every_kind():
    """Rows of a snapshot, creates, updates, deletes with their tombstones; a large text that an
    update has left; and an update of a key, which is a delete and a create at one position.
    """
    events = [one.value for one in EVENTS if one.value is not None]
    assert {one["op"] for one in events} == set("rcud")
    assert any(one.value is None for one in EVENTS)
    assert "__debezium_unavailable_value" in RECORDED.read_text()
    positions = [(one["source"]["lsn"], one["op"]) for one in events]
    assert any((lsn, "d") in positions and (lsn, "c") in positions for lsn, _ in positions)


@EACH_TABLE
def test_events_in_order_are_the_records_of_the_transformation(table):
    """With its keys byte for byte."""
    found = records_of(table)
    assert by_key(found) == unwrapped(EVENTS, table.name)
    keys = {json.dumps(one.key, separators=(",", ":")).encode() for one in EVENTS}
    assert {key for key, _ in found} <= keys


@EACH_TABLE
def test_envelopes_are_passed_on_with_a_tombstone_after_each_delete(table):
    """As the connector's own records: a value without an envelope is a tombstone."""
    found = records_of(table, **{"changelog.mode": "debezium"})
    wanted = [(one.key, one.value) for one in EVENTS if one.table == table.name]
    names = ("before", "after", "op")
    assert [
        (json.loads(key), value and {name: json.loads(value)[name] for name in names})
        for key, value in found
    ] == [(key, value and {name: value[name] for name in names}) for key, value in wanted]


@EACH_TABLE
@pytest.mark.parametrize("order_by", [[], ["offset"]], ids=["position", "offset"])
def test_upserts_keeps_the_last_record_of_the_transformation(spark, table, order_by):
    rows = envelopes(EVENTS, table.name)
    shuffled = frame_of(spark, Random(3).sample(rows, len(rows)), table).repartition(3)
    kept = [row.asDict(recursive=True) for row in upserts(
        shuffled, list(table.keys), "debezium", order_by
    ).collect()]  # fmt: skip
    images = [row["before" if row["op"] == "d" else "after"] for row in kept]
    keys = [
        json.dumps({name: image[name] for name in table.keys}, sort_keys=True) for image in images
    ]
    assert len(set(keys)) == len(keys)
    found = {key: row["after"] for key, row in zip(keys, kept, strict=True) if row["op"] != "d"}
    assert found == last(unwrapped(EVENTS, table.name))
