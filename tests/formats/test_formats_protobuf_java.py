"""Our Protobuf as Java reads it: by protobuf-java, whose jars the registry brings.

Hypothesis makes up the rows; all of them are written before Java reads, because it costs more to
start than a row to write.
"""

from __future__ import annotations

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, message_factory, text_format
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.local_kafka.java import find_java
from spark_kafka_sink.local_kafka.registry.schema_registry import prepare_registry
from spark_kafka_sink.records.formats.binary.encoder import payloads_of
from spark_kafka_sink.records.formats.protobuf_format import (
    ProtobufFormat,
    file_descriptor,
    message_of,
)
from tests.formats.test_formats_protobuf import (
    CHOICE,
    FIELDS,
    SCHEMA,
    TEXT,
    WITHOUT_PRESENCE,
    fill,
    numbers,
    struct_of,
)
from tests.java_programs import run_java

#: Rows, at least, of each schema.
ROWS, EXAMPLES = 500, 125
#: In proto2 lists are packed only where it is said, and a field may be required.
PROTO2 = SCHEMA.replace("proto3", "proto2").replace("numbers = 19", "numbers = 19 [packed = true]")
#: By their ids.
SCHEMAS = [
    SCHEMA,
    WITHOUT_PRESENCE,
    PROTO2,
    PROTO2.replace("[packed = false]", "").replace("optional string text", "required string text"),
    SCHEMA.replace("message Order {", "message Around { message Order {") + "}",
]
REQUIRED = 3
#: The indexes on the way to the message.
WAYS = [b"\x02\x04"] * 4 + [b"\x04\x04\x00"]
VALUES = {name: of[2] for name, of in FIELDS.items()} | {"left": TEXT, "right": numbers(63)}
ARROW = {name: of[1] for name, of in (FIELDS | CHOICE).items()}
ENTRIES = ("named", "flags")


#: What a field without presence leaves out, and what stays.
ZEROS = {
    "i32": 0, "f64": 0, "flag": False, "single": 0.0, "both": -0.0, "text": "", "data": b"",
    "size": "NONE", "part": {"d": 0.0, "tags": [""]}, "numbers": [0], "left": "",
}  # fmt: skip


@st.composite
def tables(draw):
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, unique=True))
    if {"left", "right"} <= set(names):
        names.remove("left")  # a row has one of a oneof
    row = st.fixed_dictionaries({name: st.none() | VALUES[name] for name in names})
    return draw(st.lists(row, min_size=ROWS // EXAMPLES, max_size=9))


def written(which, table):
    """The rows as they are written with this schema, and their values."""
    if which == REQUIRED:
        table = [row | {"text": row.get("text") or ""} for row in table]
    names = list(table[0])
    form = ProtobufFormat(message_of(SCHEMAS[which], "Order")[0].full_name)
    prefix = b"\0" + which.to_bytes(4, "big") + form.indexes(SCHEMAS[which])
    assert prefix[5:] == WAYS[which]
    columns = [pa.array([row[name] for row in table], ARROW[name]) for name in names]
    plan = form.plan(SCHEMAS[which], prefix, struct_of(names))
    made = payloads_of(plan, pa.StructArray.from_arrays(columns, names), "")
    assert not made.refusals
    return [(which, row, value) for row, value in zip(table, made.array.to_pylist(), strict=True)]


def descriptors(schema):
    """The set of a file and of what it imports, which comes first."""
    found = descriptor_pb2.FileDescriptorSet()
    file = file_descriptor(schema)
    for one in (*file.dependencies, file):
        one.CopyToProto(found.file.add())
    return found.SerializeToString()


def has_zero_entries(row):
    """A dynamic message of Java has no rule for entries of maps, which keep zeros."""
    named, flags = (row.get(name) or {} for name in ENTRIES)
    return "" in named or 0 in flags or False in flags.values()


@pytest.mark.long
def test_java_reads_each_row_and_writes_the_same_bytes(tmp_path):
    values = []

    @given(tables())
    @example([ZEROS])
    @settings(max_examples=EXAMPLES, database=None)
    def make(table):
        for which in range(len(SCHEMAS)):
            values.extend(written(which, table))

    make()
    assert len(values) > ROWS * len(SCHEMAS)
    for which, schema in enumerate(SCHEMAS):
        (tmp_path / str(which)).write_bytes(descriptors(schema))
    jars = prepare_registry(find_java()) / "lib" / "*"
    lines = "\n".join(value.hex() for _, _, value in values)
    printed = run_java("ProtobufReader", [str(tmp_path)], lines, class_path=str(jars)).splitlines()
    types = [message_factory.GetMessageClass(message_of(one, "Order")[0]) for one in SCHEMAS]
    for (which, row, value), line in zip(values, printed, strict=True):
        again, unknown, text = line.split("\t")
        assert unknown == "0"
        assert text_format.Parse(text, types[which]()) == fill(types[which](), row)
        if not has_zero_entries(row):
            assert again == value[5 + len(WAYS[which]) :].hex()
