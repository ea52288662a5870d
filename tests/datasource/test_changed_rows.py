"""A change feed in one task: which records its rows become, on a stand-in producer."""

from __future__ import annotations

import json
from random import Random

import pyarrow as pa
import pytest
from change_feeds import (
    Change,
    as_json,
    changes_of,
    compacted,
    debezium_rows,
    delta_rows,
    flink_rows,
)
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StructField, StructType
from recording_producer import OneProducer, RecordingProducer

from spark_kafka_sink.base.errors import DataError
from spark_kafka_sink.config.parsing import parse_producer_config, parse_sink_config
from spark_kafka_sink.datasource.write.schema import plan_columns
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_task import WriteTask
from tests.fakes.dead_letter_options import dead_letters

NAMED = {"keyColumns": "id", "keyFormat": "string", "valueColumns": "*"}
ROW = pa.struct([("id", pa.int64()), ("text", pa.string())])
TEXT, LONG = pa.string(), pa.int64()
SOURCE = pa.struct([("lsn", LONG)])
SCHEMAS = {
    "delta-cdf": pa.schema(
        [("id", LONG), ("text", TEXT), ("_change_type", TEXT), ("_commit_version", LONG)]
    ),
    "flink": pa.schema([("id", LONG), ("text", TEXT), ("rowkind", TEXT), ("seq", LONG)]),
    "debezium": pa.schema(
        [("op", TEXT), ("before", ROW), ("after", ROW), ("source", SOURCE), ("ts_ms", LONG)]
    ),
}
ROWS = {"delta-cdf": delta_rows, "flink": flink_rows, "debezium": debezium_rows}
BROKER = {"kafka.bootstrap.servers": "b:1", "topic": "t"}


def spark_schema(schema):
    return StructType([StructField(f.name, from_arrow_type(f.type)) for f in schema])


def plan_of(schema, **options):
    config = parse_sink_config(BROKER | {name.replace("_", "."): o for name, o in options.items()})
    return plan_columns(
        spark_schema(schema), config.topic, config.named_columns, changes=config.changes
    )


def written(rows, schema, cuts=(), letters=None, arrow=None, **options):
    """The records of one task, and its commit message. ``arrow`` are Arrow's own types of
    ``schema``.
    """
    table = pa.Table.from_pylist(rows, schema=schema).combine_chunks()
    whole = pa.RecordBatch.from_arrays([c.combine_chunks() for c in table.columns], schema=schema)
    whole = whole if arrow is None else whole.cast(arrow)
    bounds = [0, *sorted(cuts), whole.num_rows]
    batches = [whole.slice(a, b - a) for a, b in zip(bounds, bounds[1:], strict=False)]
    producer = RecordingProducer()
    task = WriteTask(
        plan_of(schema, **options),
        OneProducer(producer),
        TaskIdentity(partition_id=7),
        dead_letters=letters,
        wall_ms=lambda: 1_700_000_000_000,
        monotonic_ms=lambda: 0,
    )
    try:
        message = task.run(iter(batches))
    except Exception as error:
        if letters is None or "dead letters" not in str(error):
            raise
        message = None  # the stand-in does not count by partition
    records = [
        (columns.topic, key, value)
        for columns in producer.sent
        for key, value in zip(
            [None] * columns.rows if columns.key is None else columns.key.to_pylist(),
            [None] * columns.rows if columns.value is None else columns.value.to_pylist(),
            strict=True,
        )
    ]
    return records, message


def records_of(rows, feed="delta-cdf", cuts=(), **options):
    records, message = written(rows, SCHEMAS[feed], cuts, changelog=feed, **NAMED | options)
    return [one[1:] for one in records], message


def delta(*changes):
    """Rows of (type, id, text, version)."""
    names = ("_change_type", "id", "text", "_commit_version")
    return [dict(zip(names, one, strict=True)) for one in changes]


def test_each_change_type_of_delta_becomes_its_record():
    rows = delta(
        ("insert", 1, "a", 1),
        ("update_preimage", 1, "a", 2),
        ("update_postimage", 1, "b", 2),
        ("delete", 1, "b", 3),
    )
    found, message = records_of(rows)
    assert found == [
        (b"1", b'{"id":1,"text":"a"}'),
        (b"1", b'{"id":1,"text":"b"}'),
        (b"1", None),
    ]
    counts = message.counts
    assert (counts.rows_in, counts.skipped_rows, counts.added_rows) == (4, 1, 0)


@pytest.mark.parametrize("feed", SCHEMAS)
def test_a_changed_key_is_a_tombstone_and_the_new_row(feed):
    changes, _ = changes_of(Random(1), 0, 1)
    changes = [*changes, *moves(1, 2)]
    found, message = records_of(ROWS[feed](changes), feed)
    values = [(key, None if value is None else json.loads(value)["text"]) for key, value in found]
    assert values == [(b"1", "old"), (b"1", None), (b"2", "new")]
    assert message.counts.added_rows == (1 if feed == "debezium" else 0)


def moves(old, new):
    from change_feeds import Change

    before, after = {"id": old, "text": "old"}, {"id": new, "text": "new"}
    return [Change(1, None, before), Change(2, before, after)]


@pytest.mark.parametrize("feed", SCHEMAS)
@given(seed=st.integers(0, 2**32), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_the_last_record_of_each_key_is_the_table(feed, seed, cuts):
    """Arrow batches end anywhere, also between the rows before and after an update."""
    changes, table = changes_of(Random(seed), 30, 8)
    rows = ROWS[feed](changes)
    cuts = [min(cut, len(rows)) for cut in cuts]
    columns = NAMED | ({"valueColumns": "id, text"} if feed == "flink" else {})
    found, message = records_of(rows, feed, cuts, **columns)
    assert compacted(found) == as_json(table.values())
    counts = message.counts
    assert counts.rows_in == message.rows + counts.skipped_rows - counts.added_rows == len(rows)


@pytest.mark.parametrize(
    ("rows", "code", "said"),
    [
        ([("moved", 1, "a", 1)], "KP0217", "column '_change_type', row 0"),
        ([(None, 1, "a", 1)], "KP0217", "column '_change_type', row 0"),
        ([("insert", 1, "a", 1), ("update_preimage", 1, "a", 2)], "KP0218", "the row before"),
        ([("update_preimage", 1, "a", 2), ("insert", 1, "a", 2)], "KP0218", "row 0 of"),
        ([("insert", 1, "b", 2), ("insert", 1, "a", 1)], "KP0219", "row 1 of"),
        ([("insert", 1, "b", 2), ("delete", 1, "b", 2)], "KP0219", "an older change"),
        ([("insert", None, "b", 2)], "KP0215", "column 'key', row 0"),
        ([("kprod:several-last-changes", 1, "a", 1)], "KP0219", "same position"),
        ([("kprod:no-order", 1, "a", 1)], "KP0219", "position in the order is null"),
    ],
)
def test_a_change_that_can_not_be_is_one_error(rows, code, said):
    with pytest.raises(DataError) as raised:
        records_of(delta(*rows))
    assert raised.value.kind == code
    assert said in str(raised.value)


def test_changes_that_can_not_be_are_dead_letters():
    """And tombstones, good rows and moved keys beside them are written."""
    rows = delta(
        ("insert", 1, "a", 1),
        ("truncate", 7, "x", 1),
        ("update_preimage", 1, "a", 2),
        ("update_postimage", 2, "b", 2),
        ("update_preimage", 5, "y", 2),
        ("delete", 2, "b", 3),
        ("insert", 2, "late", 2),
        ("update_preimage", 6, "z", 3),
    )
    letters = dead_letters("dlq", parse_producer_config({"bootstrap.servers": "b:1"}))
    options = {"changelog": "delta-cdf"} | NAMED
    records, _ = written(rows, SCHEMAS["delta-cdf"], letters=letters, **options)
    assert [one[1:] for one in records if one[0] == "t"] == [
        (b"1", b'{"id":1,"text":"a"}'),
        (b"1", None),
        (b"2", b'{"id":2,"text":"b"}'),
        (b"2", None),
    ]
    assert [(key, json.loads(value)["text"]) for t, key, value in records if t == "dlq"] == [
        (b"7", "x"),
        (b"5", "y"),
        (b"2", "late"),
        (b"6", "z"),
    ]
    rows_of = {count.code: [one.row for one in count.samples] for count in letters.counts}
    assert rows_of == {"KP0217": [1], "KP0218": [4, 7], "KP0219": [6]}


def test_keys_in_ascending_order_may_come_often():
    rows = delta(*(("insert", key, "a", version) for version in range(3) for key in (2, 1)))
    assert len(records_of(rows)[0]) == 6


def test_other_keys_may_be_in_any_order():
    rows = delta(("insert", 1, "a", 9), ("insert", 2, "a", 3), ("delete", 3, "a", 1))
    assert [key for key, _ in records_of(rows)[0]] == [b"1", b"2", b"3"]


def test_a_replaced_row_is_a_delete_and_an_insert_of_one_version():
    rows = delta(("delete", 1, "a", 5), ("insert", 1, "b", 5))
    assert compacted(records_of(rows)[0]) == {b"1": b'{"id":1,"text":"b"}'}


@pytest.mark.parametrize("type_", ["c", "d", "u"])
def test_an_envelope_without_its_row_is_refused(type_):
    rows = [{"op": type_, "source": {"lsn": 1}}]
    with pytest.raises(DataError) as raised:
        records_of(rows, "debezium")
    assert raised.value.kind == "KP0218"


def test_a_described_feed_is_read():
    described = {
        "column": "op",
        "insert": ["I", "U"],
        "delete": "D",
        "order": ["at"],
        "metadata": ["at"],
    }
    schema = pa.schema([("id", LONG), ("op", TEXT), ("at", LONG)])
    rows = [{"id": 1, "op": "I", "at": 1}, {"id": 1, "op": "D", "at": 2}]
    records, _ = written(rows, schema, changelog=json.dumps(described), **NAMED)
    assert records == [("t", b"1", b'{"id":1}'), ("t", b"1", None)]


def test_a_column_value_of_a_delete_is_null():
    schema = pa.schema([("key", TEXT), ("value", TEXT), ("rowkind", TEXT)])
    rows = [
        {"key": "a", "value": "1", "rowkind": "+I"},
        {"key": "a", "value": "1", "rowkind": "-D"},
    ]
    records, _ = written(rows, schema, changelog="flink")
    assert records == [("t", b"a", b"1"), ("t", b"a", None)]


@pytest.mark.parametrize("feed", SCHEMAS)
def test_a_null_value_that_is_no_delete_is_one_error(feed):
    """It would be a tombstone. As JSON of all columns the row has a value."""
    rows = ROWS[feed]([Change(1, None, {"id": 1, "text": None})])
    with pytest.raises(DataError, match="would delete its key") as raised:
        records_of(rows, feed, valueColumns="text", valueFormat="string")
    assert raised.value.kind == "KP0214"
    assert records_of(rows, feed, valueColumns="text")[0] == [(b"1", b"{}")]


def test_a_null_in_a_column_value_is_a_dead_letter():
    schema = pa.schema([("key", TEXT), ("value", TEXT), ("rowkind", TEXT)])
    rows = [
        {"key": "a", "value": "1", "rowkind": "+I"},
        {"key": "b", "value": None, "rowkind": "+U"},
        {"key": "a", "value": None, "rowkind": "-D"},
    ]
    letters = dead_letters("dlq", parse_producer_config({"bootstrap.servers": "b:1"}))
    records, _ = written(rows, schema, letters=letters, changelog="flink")
    assert [one for one in records if one[0] == "t"] == [("t", b"a", b"1"), ("t", b"a", None)]
    assert [(one.code, [s.row for s in one.samples]) for one in letters.counts] == [("KP0214", [1])]


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_nested_keys_are_compared_by_their_bytes(cut):
    """An array and a struct in the key: a preimage with the same key is dropped."""
    key = pa.struct([("a", LONG), ("l", pa.list_(TEXT))])
    schema = pa.schema([("k", key), ("v", LONG), ("rowkind", TEXT)])
    same = {"a": None, "l": ["x", None]}
    rows = [
        {"k": same, "v": 1, "rowkind": "-U"},
        {"k": same, "v": 2, "rowkind": "+U"},
        {"k": same, "v": 2, "rowkind": "-U"},
        {"k": {"a": 2, "l": []}, "v": 3, "rowkind": "+U"},
    ]
    options = {"keyColumns": "k", "valueColumns": "v", "changelog": "flink"}
    records, _ = written(rows, schema, [cut], **options)
    assert [(json.loads(key)["k"]["l"], value) for _, key, value in records] == [
        (["x", None], b'{"v":2}'),
        (["x", None], None),
        ([], b'{"v":3}'),
    ]


NESTED = pa.struct([("a", LONG), ("l", pa.list_(TEXT))])


def refused_rows(raised):
    assert raised.value.kind == "KP0219"
    return str(raised.value)


@pytest.mark.parametrize(
    ("type_", "keys"),
    [
        (NESTED, [{"a": 1, "l": ["x"]}, {"a": 1, "l": ["y"]}, {"a": None, "l": ["x"]}]),
        (TEXT, ["a", "b", ""]),
        (pa.list_(LONG), [[1, 2], [1], []]),
    ],
    ids=["struct", "text", "array"],
)
@pytest.mark.parametrize("second", [(), (("n", LONG),)], ids=["alone", "with a number"])
def test_an_older_change_is_found_by_any_type_of_key(type_, keys, second):
    """Keys that differ may come in any order of versions."""
    schema = pa.schema(
        [("k", type_), *second, ("_change_type", TEXT), ("_commit_version", LONG), ("v", LONG)]
    )

    def row_of(key, version):
        return {"k": key, "n": 3, "_change_type": "insert", "_commit_version": version, "v": 0}

    columns = ", ".join(["k", *(name for name, _ in second)])
    options = {"changelog": "delta-cdf", "keyColumns": columns, "valueColumns": "v"}
    falling = [row_of(key, 9 - n) for n, key in enumerate(keys)]
    records, _ = written(falling, schema, **options)
    assert len(records) == len({key for _, key, _ in records}) == len(keys)
    with pytest.raises(DataError) as raised:
        written([*falling, row_of(keys[1], 2)], schema, **options)
    assert f"row {len(keys)} of" in refused_rows(raised)


def test_keys_of_two_columns_are_compared_as_pairs():
    """Each value of a column was seen with a later version, but only one pair was."""
    schema = pa.schema(
        [("a", TEXT), ("b", LONG), ("_change_type", TEXT), ("_commit_version", LONG)]
    )

    def rows_of(*changes):
        names = ("a", "b", "_commit_version")
        return [{**dict(zip(names, one, strict=True)), "_change_type": "insert"} for one in changes]

    options = {"changelog": "delta-cdf", "keyColumns": "a, b", "valueColumns": "a"}
    apart = [("x", 1, 9), ("y", 2, 8), ("x", 2, 7), ("y", 1, 6), (None, 1, 5), ("x", None, 4)]
    assert len(written(rows_of(*apart), schema, **options)[0]) == len(apart)
    for old in (("x", 2, 3), (None, 1, 3), ("x", None, 3)):
        with pytest.raises(DataError) as raised:
            written(rows_of(*apart, old), schema, **options)
        assert f"row {len(apart)} of" in refused_rows(raised)


def test_a_nested_key_of_an_image_moves_and_is_older():
    """The key of a delete is in ``before``, every other key in ``after``."""
    row = pa.struct([("k", NESTED), ("v", LONG)])
    schema = pa.schema([("op", TEXT), ("before", row), ("after", row), ("source", SOURCE)])
    one, two = ({"k": {"a": n, "l": [None, "x"]}, "v": n} for n in (1, 2))

    def event_of(op, before, after, lsn):
        return {"op": op, "before": before, "after": after, "source": {"lsn": lsn}}

    options = {"changelog": "debezium", "keyColumns": "k", "valueColumns": "v"}
    moves_back = [event_of("u", one, two, 5), event_of("u", two, two, 6),
                  event_of("d", two, None, 7)]  # fmt: skip
    records, message = written(moves_back, schema, **options)
    assert [(json.loads(key)["k"]["a"], value) for _, key, value in records] == [
        (1, None),
        (2, b'{"v":2}'),
        (2, b'{"v":2}'),
        (2, None),
    ]
    assert message.counts.added_rows == 1
    for older in (event_of("c", None, two, 4), event_of("d", two, None, 4)):
        with pytest.raises(DataError) as raised:
            written([*moves_back[1:], older], schema, **options)
        assert "row 2 of" in refused_rows(raised)


@pytest.mark.parametrize(
    "text",
    [pa.string_view(), pa.large_string(), pa.dictionary(pa.int32(), TEXT)],
    ids=["views", "large", "dictionary"],
)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_feed_has_any_of_arrows_types_of_text(text, cut):
    """Also where an Arrow batch ends between the two rows of an update."""
    feed = SCHEMAS["flink"]
    arrow = pa.schema([(field.name, text if field.type == TEXT else field.type) for field in feed])
    rows = flink_rows([*moves(1, 2), Change(3, {"id": 2, "text": "b"}, {"id": 2, "text": "c"})])
    options = NAMED | {"valueColumns": "text", "valueFormat": "string", "changelog": "flink"}
    records, message = written(rows, feed, [cut], arrow=arrow, **options)
    assert [one[1:] for one in records] == [
        (b"1", b"old"),
        (b"1", None),
        (b"2", b"new"),
        (b"2", b"c"),
    ]
    assert (message.counts.rows_in, message.counts.skipped_rows) == (5, 1)


def test_a_version_may_be_a_timestamp():
    """Two of one second have an order, also before 1970."""
    times = pa.timestamp("us", tz="UTC")
    described = {"column": "op", "insert": "I", "delete": "D", "order": ["at"], "metadata": ["at"]}
    schema = pa.schema([("id", LONG), ("op", TEXT), ("at", times)])
    options = {"changelog": json.dumps(described)} | NAMED
    rows = [{"id": 1, "op": "I", "at": at} for at in (-2, -1, 1_000_000, 1_000_001, 1_000_001)]
    assert len(written(rows, schema, **options)[0]) == 5
    for rising, older in ((rows[:2], -2), (rows, 1_000_000)):
        with pytest.raises(DataError) as raised:
            written([*rising, {"id": 1, "op": "I", "at": older}], schema, **options)
        assert f"row {len(rising)} of" in refused_rows(raised)


def test_a_change_without_a_version_is_older_than_any_other():
    (first, second) = delta(("insert", 1, "a", None), ("insert", 1, "b", 1))
    assert [value for _, value in records_of([first, first, second])[0]] == [
        b'{"id":1,"text":"a"}',
        b'{"id":1,"text":"a"}',
        b'{"id":1,"text":"b"}',
    ]
    with pytest.raises(DataError) as raised:
        records_of([second, first])
    assert "row 1 of" in refused_rows(raised)


def event(op, before, after, lsn):
    rows = {"before": before, "after": after}
    images = {name: row and {"id": row, "text": "a"} for name, row in rows.items()}
    return {"op": op, "source": {"lsn": lsn}, **images}


@pytest.mark.parametrize("count", [0, 1])
def test_an_old_change_of_a_key_deletes_no_newer_row(count):
    """Key 1 has moved away before it came back, and the events come in another order."""
    rows = [*(event("u", 9, 9, number) for number in range(count)),
            event("u", None, 1, 6), event("u", 1, 2, 5)]  # fmt: skip
    with pytest.raises(DataError) as raised:
        records_of(rows, "debezium")
    assert raised.value.kind == "KP0219"
    assert f"row {count + 1} of" in str(raised.value)


def test_a_row_of_a_snapshot_may_be_deleted_at_its_position():
    rows = [event("r", None, 1, 5), event("d", 1, None, 5)]
    assert compacted(records_of(rows, "debezium")[0]) == {}
