"""Several writes decided together by ``transaction``, into a real Kafka."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.errors import StreamingQueryException

from spark_kafka_sink.datasource.foreach_batch import transaction
from tests.datasource.exactly_once.queries import (
    COMMITTED,
    fails_at,
    lose_commit,
    numbers,
    run_with,
    shows,
)


@pytest.fixture
def second(kafka):
    return kafka.unique_topic("exactly-once-second", partitions=1)


def test_writes_from_threads_become_visible_together(
    source, options, topic, second, consume, tmp_path, reports
):
    """Writes one behind the other: simulation/test_edges_several_sinks.py, and below."""
    frame, add = source
    name = f"together-{uuid.uuid4().hex[:6]}"
    before = []

    def write(batch, batch_id):
        parts = [
            (batch.where("value LIKE 'o%'"), {}),
            (batch.where("value LIKE 'p%'"), {"topic": second}),
        ]
        with transaction(name, batch_id, **options) as t:
            with ThreadPoolExecutor(2) as pool:
                for future in [pool.submit(t.write, df, **to) for df, to in parts]:
                    future.result()
            before.append([len(consume(x, isolation=COMMITTED).values) for x in (topic, second)])

    add(["o1", "o2", "p1"])
    run_with(frame, write, tmp_path)
    for to, expected in ((topic, ["o1", "o2"]), (second, ["p1"])):
        shows(consume, to, expected)
    lose_commit(tmp_path, 0)
    add(["o3"])
    run_with(frame, write, tmp_path)  # the first one comes again; and one whose second is empty
    for to, expected in ((topic, ["o1", "o2", "o3"]), (second, ["p1"])):
        shows(consume, to, expected)
    assert before[0] == [0, 0]
    assert before[-1] == [2, 1]
    prepared = "prepared, to be decided with other writes"
    dropped = "done before"
    assert [r["outcome"] for r in reports()] == [
        prepared, prepared, "committed", dropped, dropped, dropped, prepared, prepared, "committed",
    ]  # fmt: skip


def test_a_second_write_that_fails_makes_the_first_one_invisible(
    source, options, topic, second, consume, tmp_path
):
    frame, add = source
    name = f"failing-{uuid.uuid4().hex[:6]}"
    fails = True

    def write(batch, batch_id):
        with transaction(name, batch_id, **options) as t:
            t.write(batch)
            t.write(fails_at(batch, "b") if fails else batch, topic=second)

    add(["a", "b"])
    with pytest.raises(StreamingQueryException, match="told to fail"):
        run_with(frame, write, tmp_path)
    for to in (topic, second):
        shows(consume, to, [])
    assert sorted(consume(topic).values) == [b"a", b"b"], "they are in the log, aborted"
    fails = False
    run_with(frame, write, tmp_path)
    for to in (topic, second):
        shows(consume, to, ["a", "b"])


def test_the_topic_of_a_block_may_be_compacted(spark, kafka, options, consume):
    """The write that ends the block has no rows, and asks for keys as every other."""
    topic = kafka.unique_topic("compacted", configs={"cleanup.policy": "compact"})
    with transaction("by-key", 0, **(options | {"topic": topic})) as t:
        t.write(numbers(spark, 0, 10).selectExpr("value AS key", "value"))
    shows(consume, topic, range(10))
