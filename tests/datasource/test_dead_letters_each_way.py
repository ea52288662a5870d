"""Each reason of a dead letter by each way of writing, and on the oldest broker that is tested."""

from __future__ import annotations

import uuid

import pytest

from spark_kafka_sink import foreach_batch, transaction
from tests.datasource.test_dead_letters_on_kafka import (
    CASES,
    SCHEMA,
    check,
    frame_of,
    names,
    options_of,
)

__all__ = ["names"]

pytestmark = pytest.mark.long


def stream(spark, frame, folder, options):
    """The frame as a micro-batch, number 0."""
    frame.write.parquet(str(folder / "rows"))
    rows = spark.readStream.schema(SCHEMA).parquet(str(folder / "rows"))
    if options["deliveryGuarantee"] == "exactly-once":
        options = options | {"transactionalIdPrefix": f"p-{uuid.uuid4().hex}"}
    writer = rows.writeStream.format("kprod").options(**options).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    assert query.awaitTermination(120)


def each_batch(frame, options):
    foreach_batch(f"fb-{uuid.uuid4().hex}", **options)(frame, 0)


def block(frame, options):
    with transaction(f"block-{uuid.uuid4().hex}", 0, **options) as of:
        of.write(frame.where("id < 2"))
        of.write(frame.where("id = 2"))


@pytest.mark.parametrize("way", ["at-least-once", "exactly-once", "foreach_batch", "block"])
@pytest.mark.parametrize("name", CASES)
def test_each_bad_row_is_a_letter_by_each_way(spark, kafka, names, consume, tmp_path, name, way):
    case = CASES[name]
    topic, queue = names(case)
    guarantee = "at-least-once" if way == "at-least-once" else "exactly-once"
    options = options_of(kafka, case, topic, queue, guarantee)
    frame = frame_of(spark, case, topic)
    if way == "foreach_batch":
        each_batch(frame, options)
    elif way == "block":
        block(frame, options)
    else:
        stream(spark, frame, tmp_path, options)
    found, letters = (consume(one, isolation="read_committed") for one in (topic, queue))
    check(case, found, letters, topic, batch_id=0)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("name", CASES)
def test_kafka_3_9_gets_the_same_letters(spark, kafka_3_9, consume, name, guarantee):
    case = CASES[name]
    topic = kafka_3_9.unique_topic("rows", partitions=2, configs=case.configs)
    queue = f"dlq.{uuid.uuid4().hex}"
    options = options_of(kafka_3_9, case, topic, queue, guarantee)
    frame_of(spark, case, topic).write.format("kprod").options(**options).save()
    found, letters = (
        consume(one, bootstrap=kafka_3_9.bootstrap, isolation="read_committed")
        for one in (topic, queue)
    )
    check(case, found, letters, topic)
