"""Each reason of a dead letter by each way of writing, and on the oldest broker that is tested."""

from __future__ import annotations

import uuid
from functools import partial

import pytest

from spark_kafka_sink import foreach_batch, transaction
from tests.datasource.test_dead_letters_on_kafka import SCHEMA, Mixed

pytestmark = [
    pytest.mark.long,
    pytest.mark.parametrize("column", ["option", "column"]),
]


def block(frame, options):
    """The first row is a write of its own."""
    with transaction(f"block-{uuid.uuid4().hex}", 0, **options) as of:
        of.write(frame.where("id = 0"))
        of.write(frame.where("id > 0"))


@pytest.mark.parametrize("way", ["at-least-once", "exactly-once", "foreach_batch", "block"])
def test_each_bad_row_is_a_letter_by_each_way(spark, kafka, stream, consume, tmp_path, column, way):
    mixed = Mixed(spark, kafka, column)
    guarantee = "at-least-once" if way == "at-least-once" else "exactly-once"
    options = mixed.options | {"deliveryGuarantee": guarantee}
    if way == "foreach_batch":
        foreach_batch(f"fb-{uuid.uuid4().hex}", **options)(mixed.frame, 0)
    elif way == "block":
        block(mixed.frame, options)
    else:
        mixed.frame.write.parquet(str(tmp_path / "rows"))
        rows = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "rows"))
        prefix = {"transactionalIdPrefix": mixed.queue} if guarantee == "exactly-once" else {}
        assert stream(rows, **options, **prefix).awaitTermination(120)
    mixed.check(consume, batch_id=0, first=0 if way == "block" else 1)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_kafka_3_9_gets_the_same_letters(spark, kafka_3_9, consume, column, guarantee):
    mixed = Mixed(spark, kafka_3_9, column)
    options = mixed.options | {"deliveryGuarantee": guarantee}
    mixed.frame.write.format("kprod").options(**options).save()
    mixed.check(partial(consume, bootstrap=kafka_3_9.bootstrap))
