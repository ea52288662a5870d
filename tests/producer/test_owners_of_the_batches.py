"""Fields of the accumulator and of its batches are changed by their owners' methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import (
    IncompleteBatches,
    RecordAccumulator,
)

ROOM = Path(__file__).parents[2] / "spark_kafka_sink" / "producer"
#: The loops over slices and records, which have the body of ``ProducerBatch.append`` in place of a
#: call for each of them.
INLINE = {
    "accumulator/batch_filler.py": {
        "largest_record",
        "max_timestamp",
        "pool_size",
        "raw_size",
        "record_count",
    },
    "accumulator/record_accumulator.py": {"pool_size"},
    "send/record_future.py": {"largest_record", "max_timestamp", "raw_size", "record_count"},
}
#: The name of the variable that holds an object of the class, and the class's own file.
OWNERS = {
    "accumulator": (RecordAccumulator, "accumulator/record_accumulator.py"),
    "incomplete": (IncompleteBatches, "accumulator/record_accumulator.py"),
    "batch": (ProducerBatch, "accumulator/producer_batch.py"),
    "half": (ProducerBatch, "accumulator/producer_batch.py"),
    "split_batch": (ProducerBatch, "accumulator/producer_batch.py"),
}


def _assigned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The variable and the attribute of each assignment to an attribute."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            owner = node.value
            name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
            yield name.removeprefix("_"), node.attr


@pytest.mark.parametrize("file", [str(f.relative_to(ROOM)) for f in sorted(ROOM.rglob("*.py"))])
def test_a_field_is_assigned_by_its_class_only(file: str) -> None:
    foreign = {
        attribute
        for name, attribute in _assigned(ast.parse((ROOM / file).read_text(encoding="utf-8")))
        if name in OWNERS and attribute in OWNERS[name][0].__slots__ and file != OWNERS[name][1]
    }
    assert foreign == INLINE.get(file, set())
