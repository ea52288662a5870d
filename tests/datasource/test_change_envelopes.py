"""changelog.mode=debezium: changes as envelopes, on a stand-in producer."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from change_feeds import Change, debezium_rows, delta_rows
from test_changed_rows import LONG, NAMED, SCHEMAS, TEXT, plan_of, written

from spark_kafka_sink.base.version import __version__

OLD, NEW, OTHER = ({"id": n, "text": t} for n, t in ((1, "old"), (1, "new"), (2, "other")))
#: An insert, an update, an update of the key, a delete.
CHANGES = [
    Change(1, None, OLD),
    Change(2, OLD, NEW),
    Change(3, NEW, OTHER),
    Change(4, OTHER, None),
]
ENVELOPES = {"changelog.mode": "debezium"} | NAMED


def envelopes(rows, schema, **options):
    records, message = written(rows, schema, **ENVELOPES | options)
    return [(int(k), None if v is None else json.loads(v)) for _, k, v in records], message


WANTED = [
    (1, {"before": None, "after": OLD, "op": "c"}),
    (1, {"before": OLD, "after": NEW, "op": "u"}),
    (1, {"before": NEW, "after": None, "op": "d"}),
    (1, None),
    (2, {"before": None, "after": OTHER, "op": "c"}),
    (2, {"before": OTHER, "after": None, "op": "d"}),
    (2, None),
]


def of_rows(found):
    names = ("before", "after", "op")
    return [(k, v if v is None else {name: v[name] for name in names}) for k, v in found]


def test_an_envelope_has_the_row_before_and_after_each_change():
    """A tombstone follows a delete, and an update of the key is a delete and a create, as from
    Debezium's connectors.
    """
    found, message = envelopes(delta_rows(CHANGES), SCHEMAS["delta-cdf"], changelog="delta-cdf")
    assert of_rows(found) == WANTED
    assert (message.counts.skipped_rows, message.counts.added_rows) == (1, 2)


def test_an_envelope_of_debezium_is_passed_on():
    found, _ = envelopes(debezium_rows(CHANGES), SCHEMAS["debezium"], changelog="debezium")
    assert of_rows(found) == WANTED
    assert [one["source"] for _, one in found if one] == [
        {"lsn": lsn} for lsn in (1000, 1001, 1002, 1002, 1003)
    ]
    assert [one["ts_ms"] - 1_700_000_000_000 for _, one in found if one] == [0, 1, 2, 2, 3]


def test_source_and_time_of_a_change_are_its_commit():
    schema = pa.schema([*SCHEMAS["delta-cdf"], ("_commit_timestamp", pa.timestamp("us", "UTC"))])
    rows = [row | {"_commit_timestamp": 1_700_000_000_123_456} for row in delta_rows(CHANGES[:1])]
    ((_, found),), _ = envelopes(rows, schema, changelog="delta-cdf")
    assert found["ts_ms"] == 1_700_000_000_123
    assert found["source"] == {
        "version": __version__,
        "connector": "spark_kafka_sink",
        "name": "t",
        "ts_ms": 1_700_000_000_123,
        "sequence": "1",
    }


def test_a_null_field_is_written_unless_an_option_leaves_it_out():
    schema = pa.schema([("id", LONG), ("text", TEXT), ("rowkind", TEXT)])
    rows = [{"id": 1, "rowkind": "+I"}]
    ((_, found),), _ = envelopes(rows, schema, changelog="flink")
    assert found["after"] == {"id": 1, "text": None}
    ((_, found),), _ = envelopes(rows, schema, changelog="flink", jsonIgnoreNullFields="true")
    assert (found["after"], "before" in found) == ({"id": 1}, False)


@pytest.mark.parametrize("cut", range(1, 6))
def test_the_row_before_comes_from_the_arrow_batch_before(cut):
    rows, schema = delta_rows(CHANGES), SCHEMAS["delta-cdf"]
    records, _ = written(rows, schema, [cut], changelog="delta-cdf", **ENVELOPES)
    found = [(int(k), None if v is None else json.loads(v)) for _, k, v in records]
    assert of_rows(found) == WANTED


def test_only_named_columns_are_in_an_envelope():
    plan = plan_of(SCHEMAS["debezium"], changelog="debezium", **ENVELOPES | {"valueColumns": "ID"})
    assert [one.name for one in plan.changes.envelope.columns] == ["ID"]
    rows = debezium_rows(CHANGES[:1])
    schema = SCHEMAS["debezium"]
    ((_, found),), _ = envelopes(rows, schema, changelog="debezium", valueColumns="ID")
    assert found["after"] == {"ID": 1}


#: Made by Debezium's class ``io.debezium.data.Envelope`` 3.6.1.Final and Kafka's JsonConverter.
MADE_BY_DEBEZIUM = [
    json.loads(line)
    for line in Path(__file__).with_name("debezium_envelopes.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("cut", [0, 11, 30])
def test_debeziums_own_envelopes_become_the_records_of_its_unwrapping(cut):
    """ExtractNewRecordState makes a tombstone of a delete, and the row after of any other."""
    records, _ = written(
        MADE_BY_DEBEZIUM, SCHEMAS["debezium"], [cut], changelog="debezium", **NAMED
    )
    assert [
        (int(key), None if value is None else json.loads(value)) for _, key, value in records
    ] == [((one["after"] or one["before"])["id"], one["after"]) for one in MADE_BY_DEBEZIUM]


def test_debeziums_own_envelopes_stay_what_they_were():
    found, _ = envelopes(MADE_BY_DEBEZIUM, SCHEMAS["debezium"], changelog="debezium")
    there = [value for _, value in found if value is not None]
    fields = ("before", "after", "source", "ts_ms")
    for made, one in zip(there, MADE_BY_DEBEZIUM, strict=True):
        assert {name: made[name] for name in fields} == {name: one[name] for name in fields}
        assert made["op"] == one["op"]
