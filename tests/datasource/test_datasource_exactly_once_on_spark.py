"""Exactly-once from Spark into a real Kafka, read back by confluent-kafka with read_committed."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.functions import col, raise_error, when
from pyspark.sql.types import StringType, StructField, StructType

import spark_kafka_sink
from spark_kafka_sink import foreach_batch
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.exactly_once import transaction_commit
from spark_kafka_sink.datasource.exactly_once.transaction_plan import plan_transactions
from spark_kafka_sink.datasource.exactly_once.transactional_producers import (
    process_worker,
    producers_of_task,
)
from spark_kafka_sink.datasource.foreach_batch import transaction
from spark_kafka_sink.datasource.source import KprodDataSource
from spark_kafka_sink.datasource.write.write_task import TaskIdentity, WriteTask
from spark_kafka_sink.errors import SupersededError
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.transactions.exactly_once import close_shared_drivers
from tests.fakes.producer_world import rows

COMMITTED = "read_committed"


@pytest.fixture(autouse=True)
def _registered(spark):
    spark_kafka_sink.register(spark)


@pytest.fixture
def topic(kafka):
    return kafka.unique_topic("exactly-once", partitions=2)


@pytest.fixture
def prefix():
    return f"test.{uuid.uuid4().hex[:12]}"


@pytest.fixture
def options(kafka, topic, prefix, tmp_path):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap,
        "topic": topic,
        "deliveryGuarantee": "exactly-once",
        "transactionalIdPrefix": prefix,
        "kafka.transaction.timeout.ms": "60000",
        "reportPath": str(tmp_path / "report.jsonl"),
    }


@pytest.fixture
def reports(tmp_path):
    def read():
        path = tmp_path / "report.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read


@pytest.fixture
def source(spark, tmp_path):
    """A file stream of one micro-batch a file, and a function that adds a file."""
    directory = tmp_path / "source"
    directory.mkdir()

    def add(values):
        part = tmp_path / f"part-{uuid.uuid4().hex}"
        part.write_text("".join(json.dumps({"value": value}) + "\n" for value in values))
        part.rename(directory / f"{part.name}.json")

    frame = (
        spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).json(str(directory))
    )
    return frame, add


def save(df, options, **more):
    df.write.format("kprod").mode("append").options(**(options | more)).save()


def run(df, options, tmp_path, **more):
    """Runs a stream over all that is there, from its checkpoint."""
    query = (
        df.writeStream.format("kprod")
        .options(**(options | more))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def run_with(frame, function, tmp_path, checkpoint="checkpoint"):
    """The same, with a function for foreachBatch."""
    query = (
        frame.writeStream.foreachBatch(function)
        .option("checkpointLocation", str(tmp_path / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def numbers(spark, start, end, partitions=2):
    return spark.range(start, end, 1, partitions).selectExpr("cast(id AS string) AS value")


def seen(consume, topic, expected):
    """What a read_committed reader sees once the markers are there (milliseconds later)."""
    deadline = time.monotonic() + 60
    while True:
        found = sorted(consume(topic, isolation=COMMITTED).values)
        if found == sorted(str(v).encode() for v in expected) or time.monotonic() > deadline:
            return found == sorted(str(v).encode() for v in expected), found


def fails_at(df, value):
    """``df``, with a row that fails its task after others were written."""
    return df.select(
        when(col("value") == str(value), raise_error("told to fail"))
        .otherwise(col("value"))
        .alias("value")
    )


def test_a_batch_job_is_visible_once_and_its_report_says_so(
    spark, options, topic, consume, reports
):
    save(numbers(spark, 0, 1000), options)
    same, found = seen(consume, topic, range(1000))
    assert same, found
    (report,) = reports()
    assert report["deliveryGuarantee"] == "exactly-once"
    assert (report["transactions"], report["outcome"], report["rows"]) == (2, "committed", 1000)


def test_of_a_failed_job_nothing_is_visible_and_it_can_be_written_again(
    spark, options, topic, consume
):
    app = {"txnAppId": "retried", "txnVersion": 7}
    with pytest.raises(Exception, match="told to fail"):
        save(fails_at(numbers(spark, 0, 60_000), 45_000), options, **app)
    save(numbers(spark, 0, 10), options, **app)
    same, found = seen(consume, topic, range(10))
    assert same, found
    assert len(consume(topic)) > 10, "rows of the failed job are in the log, aborted"


def test_a_job_of_no_rows_is_fine(spark, options, topic, consume, reports):
    save(numbers(spark, 0, 0), options)
    assert reports()[0]["outcome"] == "no rows"
    assert len(consume(topic)) == 0


def test_a_version_that_is_done_writes_nothing(spark, options, topic, consume, reports):
    app = {"txnAppId": "nightly"}
    save(numbers(spark, 0, 10), options, txnVersion=1, **app)
    save(numbers(spark, 0, 10), options, txnVersion=1, **app)
    save(numbers(spark, 10, 20), options, txnVersion=2, **app)
    save(numbers(spark, 0, 10), options, txnVersion=0, **app)
    same, found = seen(consume, topic, range(20))
    assert same, found
    assert len(consume(topic)) == 20, "nothing was written and aborted either"
    assert [(r["outcome"], r["rows"]) for r in reports()] == [
        ("committed", 10),
        ("done before", 0),
        ("committed", 10),
        ("done before", 0),
    ]


def test_a_version_without_rows_does_not_count_as_written(spark, options, topic, consume, reports):
    """Its rows may not have been there yet."""
    app = {"txnAppId": "early", "txnVersion": 1}
    save(numbers(spark, 0, 0), options, **app)
    save(numbers(spark, 0, 10), options, **app)
    same, found = seen(consume, topic, range(10))
    assert same, found
    assert [r["outcome"] for r in reports()] == ["no rows", "committed"]


def test_other_rows_under_a_version_that_is_done_are_an_error_unless_they_may_be_dropped(
    spark, options, topic, consume, reports
):
    app = {"txnAppId": "other", "txnVersion": 1}
    save(numbers(spark, 0, 10), options, **app)
    with pytest.raises(Exception, match="done with 10 rows of 10 bytes to ") as raised:
        save(numbers(spark, 0, 20), options, **app)
    assert "20 rows of 30 bytes" in str(raised.value)
    assert "verifyReplays=false" in str(raised.value)
    save(numbers(spark, 0, 10, partitions=1), options, **app)
    save(numbers(spark, 0, 20), options, **app, verifyReplays="false")
    same, found = seen(consume, topic, range(10))
    assert same, found
    assert len(consume(topic)) == 10, "nothing was written and aborted either"
    assert [r["outcome"] for r in reports()] == [
        *("committed", "failed", "done before", "done before"),
    ]


def test_a_version_between_two_that_was_never_written_is_an_error_and_not_dropped(
    spark, options, topic, consume
):
    app = {"txnAppId": "backfill"}
    save(numbers(spark, 0, 10), options, txnVersion=1, **app)
    save(numbers(spark, 10, 20), options, txnVersion=3, **app)
    with pytest.raises(Exception, match=r"version 2 of .* was never written") as raised:
        save(numbers(spark, 20, 30), options, txnVersion=2, **app)
    assert "Failed to initialize Python data source writer" in str(raised.value)
    same, found = seen(consume, topic, range(20))
    assert same, found


def test_an_sql_insert_is_exactly_once_with_the_same_options(
    spark, options, topic, consume, reports
):
    table = f"t_{uuid.uuid4().hex}"
    spark.sql(f"CREATE TABLE {table} (value string) USING kprod")
    given = ", ".join(
        f"'{name}' = '{value}'"
        for name, value in (options | {"txnAppId": "sql", "txnVersion": "3"}).items()
    )
    try:
        for _ in range(2):  # the second one is a version that is done
            spark.sql(
                f"INSERT INTO {table} WITH ({given}) SELECT cast(id AS string) FROM range(50)"
            )
    finally:
        spark.sql(f"DROP TABLE {table}")
    same, found = seen(consume, topic, range(50))
    assert same, found
    assert [(r["outcome"], r["rows"]) for r in reports()] == [("committed", 50), ("done before", 0)]


def test_a_stream_that_is_restarted_goes_on_and_every_row_is_visible_once(
    source, options, topic, consume, tmp_path, reports
):
    frame, add = source
    for n in range(3):
        add([f"{n}{x}" for x in "abc"])
    run(frame, options, tmp_path)
    add(["3a", "3b"])
    run(frame, options, tmp_path)
    expected = [f"{n}{x}" for n in range(3) for x in "abc"] + ["3a", "3b"]
    same, found = seen(consume, topic, expected)
    assert same, found
    assert [(r["batchId"], r["outcome"]) for r in reports()] == [(n, "committed") for n in range(4)]


def test_a_micro_batch_whose_commit_record_is_lost_is_dropped_when_it_comes_again(
    source, options, topic, consume, tmp_path, reports
):
    """The driver dies between our DONE and Spark's own commit record: Spark runs it again."""
    frame, add = source
    add(["0a", "0b"])
    add(["1a"])
    run(frame, options, tmp_path)
    for record in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        record.unlink()
    add(["2a"])
    run(frame, options, tmp_path)
    same, found = seen(consume, topic, ["0a", "0b", "1a", "2a"])
    assert same, found
    assert len(consume(topic)) == 4, "the tasks of the second run wrote nothing"
    assert [(r["batchId"], r["outcome"]) for r in reports()] == [
        (0, "committed"), (1, "committed"), (1, "done before"), (2, "committed"),
    ]  # fmt: skip


def test_a_deleted_checkpoint_is_an_error_that_names_both_queries(
    source, options, topic, consume, tmp_path
):
    frame, add = source
    add(["a"])
    add(["b"])
    run(frame, options, tmp_path)
    (tmp_path / "checkpoint").rename(tmp_path / "gone")
    with pytest.raises(StreamingQueryException) as raised:
        run(frame, options, tmp_path)
    text = str(raised.value)
    assert "is at batch 1 of query" in text
    assert "is about to write batch 0" in text
    assert "two queries share a transactionalIdPrefix" in text, "that looks the same from here"
    assert f"kprod txn reset {options['transactionalIdPrefix']}" in text
    same, found = seen(consume, topic, ["a", "b"])
    assert same, found
    assert len(consume(topic)) == 2, "raised before anything was written"


def test_a_stream_without_a_prefix_or_with_a_version_is_refused(source, options, tmp_path):
    frame, add = source
    add(["a"])
    bare = {k: v for k, v in options.items() if k != "transactionalIdPrefix"}
    with pytest.raises(StreamingQueryException, match="needs the option transactionalIdPrefix"):
        run(frame, bare, tmp_path)
    with pytest.raises(StreamingQueryException, match="foreach_batch"):
        run(frame, options, tmp_path, txnAppId="a", txnVersion=1)


def test_a_timeout_above_the_brokers_limit_is_refused_before_any_task(spark, options, topic):
    with pytest.raises(Exception, match=r"transaction\.max\.timeout\.ms") as raised:
        save(numbers(spark, 0, 1), options, **{"kafka.transaction.timeout.ms": str(2**31 - 1)})
    assert "Failed to initialize Python data source writer" in str(raised.value)


def test_a_writer_that_was_planned_without_the_commit_log_writes_no_row(
    spark, options, topic, consume
):
    """What a data source out of a pickle plans is for commit and abort, not for tasks. A Spark that
    plans so, too, would have the rows written without a transaction.
    """
    schema = StructType([StructField("value", StringType())])
    travelled = pickle.loads(cloudpickle.dumps(KprodDataSource(CaseInsensitiveDict(options))))
    writer = travelled.streamWriter(schema, overwrite=False)

    def write(_):
        import pyarrow as pa

        writer.write(iter([pa.RecordBatch.from_pydict({"value": ["a"]})]))

    with pytest.raises(Exception, match="planned without reading the commit log"):
        spark.sparkContext.parallelize([0], 1).foreachPartition(write)
    assert consume(topic).values == []


def test_foreach_batch_writes_each_micro_batch_once_also_when_it_runs_again(
    source, options, topic, consume, tmp_path, reports
):
    frame, add = source
    write = foreach_batch(f"orders-{uuid.uuid4().hex[:6]}", **options)

    def go():
        query = (
            frame.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    add(["a", "b"])
    add(["c"])
    go()
    for record in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        record.unlink()
    add(["d"])
    go()
    same, found = seen(consume, topic, ["a", "b", "c", "d"])
    assert same, found
    assert [r["outcome"] for r in reports()] == [
        "committed", "committed", "done before", "committed",
    ]  # fmt: skip


def test_foreach_batch_with_a_deleted_checkpoint_is_an_error_and_no_silence(
    source, options, tmp_path
):
    frame, add = source
    write = foreach_batch(f"lost-{uuid.uuid4().hex[:6]}", **options)

    def go(checkpoint):
        frame.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(tmp_path / checkpoint)
        ).trigger(availableNow=True).start().awaitTermination()

    add(["a"])
    add(["b"])
    go("one")
    with pytest.raises(StreamingQueryException, match="is at batch 1 of query") as raised:
        go("two")
    assert "a name of foreach_batch" in str(raised.value)


def test_two_writes_of_a_micro_batch_under_one_name_are_an_error_and_the_same_one_again_is_not(
    source, options, topic, kafka, consume, tmp_path, reports
):
    frame, add = source
    name = f"both-{uuid.uuid4().hex[:6]}"
    write = foreach_batch(name, **options)
    elsewhere = foreach_batch(name, **(options | {"topic": kafka.unique_topic("elsewhere")}))

    def again(batch, batch_id):
        for _ in range(2):
            write(batch.where("value > 'a'"), batch_id)

    def another(batch, batch_id):
        write(batch.where("value > 'a'"), batch_id)
        write(batch.where("value <= 'a'"), batch_id)

    def also_elsewhere(batch, batch_id):
        for one in (write, elsewhere):
            one(batch.where("value > 'a'"), batch_id)

    add(["a", "b"])
    run_with(frame, again, tmp_path)
    assert [r["outcome"] for r in reports()] == ["committed", "done before"]
    add(["a", "cc"])
    with pytest.raises(StreamingQueryException, match="wrote another DataFrame in micro-batch 1"):
        run_with(frame, another, tmp_path)
    with pytest.raises(StreamingQueryException, match="1 rows of 2 bytes to elsewhere"):
        run_with(frame, also_elsewhere, tmp_path)
    run_with(frame, again, tmp_path)  # another run: its first write is done already
    same, found = seen(consume, topic, ["b", "cc"])
    assert same, found


def test_two_queries_with_one_name_are_an_error_and_no_silence(source, options, tmp_path):
    """Both are at micro-batch 0: by their numbers, the second one's is done already."""
    frame, add = source
    write = foreach_batch(f"shared-{uuid.uuid4().hex[:6]}", **options)

    def go(checkpoint):
        frame.writeStream.foreachBatch(write).option(
            "checkpointLocation", str(tmp_path / checkpoint)
        ).trigger(availableNow=True).start().awaitTermination()

    add(["a"])
    go("one")
    with pytest.raises(StreamingQueryException, match="is at batch 0 of query") as raised:
        go("two")
    assert "share a transactionalIdPrefix or a name of foreach_batch" in str(raised.value)
    add(["b"])
    go("one")


def test_foreach_batch_serves_update_mode(source, options, topic, consume, tmp_path):
    frame, add = source
    write = foreach_batch(f"counts-{uuid.uuid4().hex[:6]}", **options)
    counts = frame.groupBy("value").count()
    add(["x", "x", "y"])
    query = (
        counts.selectExpr("concat(value, '=', count) AS value")
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    same, found = seen(consume, topic, ["x=2", "y=1"])
    assert same, found


def in_a_pool(write):
    """A foreachBatch function that writes from a thread of its own, which has none of Spark's local
    properties.
    """

    def function(batch, batch_id):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(write, batch, batch_id).result()

    return function


def test_foreach_batch_from_a_thread_pool_under_a_deleted_checkpoint_is_an_error_and_drops_nothing(
    source, options, topic, consume, tmp_path, reports
):
    frame, add = source
    write = in_a_pool(foreach_batch(f"pool-{uuid.uuid4().hex[:6]}", **options))
    add(["a"])
    add(["b"])
    run_with(frame, write, tmp_path, "one")
    with pytest.raises(StreamingQueryException, match="is at batch 1 of query unknown") as raised:
        run_with(frame, write, tmp_path, "two")
    assert "its checkpoint was deleted" in str(raised.value)
    same, found = seen(consume, topic, ["a", "b"])
    assert same, found
    assert [r["outcome"] for r in reports()] == ["committed", "committed"], "none was dropped"


def test_foreach_batch_from_a_thread_pool_with_other_rows_under_the_same_number_is_an_error(
    source, options, topic, consume, tmp_path, reports
):
    """By its number it is the batch that is done, and nobody knows the query."""
    frame, add = source
    write = in_a_pool(foreach_batch(f"rows-{uuid.uuid4().hex[:6]}", **options))
    add(["a"])
    run_with(frame, write, tmp_path, "one")
    with pytest.raises(StreamingQueryException, match="other rows, which would be dropped"):
        run_with(frame.selectExpr("value || '!' AS value"), write, tmp_path, "two")
    same, found = seen(consume, topic, ["a"])
    assert same, found
    assert [r["outcome"] for r in reports()] == ["committed", "failed"]


# --- several writes decided together ------------------------------------------------------------


@pytest.fixture
def second(kafka):
    return kafka.unique_topic("exactly-once-second", partitions=1)


@pytest.mark.parametrize("threads", [False, True], ids=["in turn", "from threads"])
def test_two_writes_of_a_transaction_become_visible_together(
    source, options, topic, second, consume, tmp_path, reports, threads
):
    frame, add = source
    name = f"together-{uuid.uuid4().hex[:6]}"
    before = []

    def write(batch, batch_id):
        parts = [
            (batch.where("value LIKE 'o%'"), {}),
            (batch.where("value LIKE 'p%'"), {"topic": second}),
        ]
        with transaction(name, batch_id, **options) as t:
            if threads:
                with ThreadPoolExecutor(2) as pool:
                    for future in [pool.submit(t.write, df, **to) for df, to in parts]:
                        future.result()
            else:
                for df, to in parts:
                    t.write(df, **to)
            before.append([len(consume(x, isolation=COMMITTED).values) for x in (topic, second)])

    add(["o1", "o2", "p1"])
    run_with(frame, write, tmp_path)
    for to, expected in ((topic, ["o1", "o2"]), (second, ["p1"])):
        same, found = seen(consume, to, expected)
        assert same, found
    for record in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        record.unlink()
    add(["o3"])
    run_with(frame, write, tmp_path)  # the first one comes again; and one whose second is empty
    for to, expected in ((topic, ["o1", "o2", "o3"]), (second, ["p1"])):
        same, found = seen(consume, to, expected)
        assert same, found
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
        same, found = seen(consume, to, [])
        assert same, found
    assert sorted(consume(topic).values) == [b"a", b"b"], "they are in the log, aborted"
    fails = False
    run_with(frame, write, tmp_path)
    for to in (topic, second):
        same, found = seen(consume, to, ["a", "b"])
        assert same, found


def test_a_block_that_raises_after_its_writes_leaves_nothing_visible(
    spark, options, topic, second, consume
):
    """Outside of any query, too."""

    def whole(fails):
        with transaction("by-hand", 0, **options) as t:
            t.write(numbers(spark, 0, 10))
            t.write(numbers(spark, 10, 20), topic=second)
            if fails:
                raise KeyError("theirs")

    with pytest.raises(KeyError, match="theirs"):
        whole(fails=True)
    for to in (topic, second):
        same, found = seen(consume, to, [])
        assert same, found
    whole(fails=False)
    for to, expected in ((topic, range(10)), (second, range(10, 20))):
        same, found = seen(consume, to, expected)
        assert same, found


# --- without Spark: what an abort knows ---------------------------------------------------------


def stream_task(config, plan, batch_id, values, run_id="run-1"):
    """A task of this process, as a Spark worker would run it; its commit message."""
    identity = TaskIdentity(query_id="query-1", run_id=run_id, batch_id=batch_id)
    producers = producers_of_task(plan, config.producer, None, identity)
    columns = ColumnPlan(topic=config.topic, value_column=0)
    task = WriteTask(columns, producers, identity, transaction_time=plan.time)
    return task.run(iter([rows(*values)]))


#: Another worker process: runs one task, prints its message, ends as interpreters do.
_WORKER = """
import base64, pickle, sys
sys.path[:0] = sys.argv[2:]
from test_datasource_exactly_once_on_spark import stream_task
config, plan = pickle.loads(base64.b64decode(sys.argv[1]))
print(base64.b64encode(pickle.dumps(stream_task(config, plan, 0, ["a", "b"]))).decode())
"""


@pytest.fixture
def config(options):
    yield SinkConfig.parse(options)
    process_worker().warm.close()
    close_shared_drivers()


def test_an_abort_without_messages_sweeps_what_its_own_driver_left_open(config, topic, consume):
    mine, other = "abcdef01", "abcdef02"
    first = plan_transactions(config, streaming=True, driver=mine)
    transaction_commit.commit(config, None, [stream_task(config, first, 0, ["a"])], 0)
    second = plan_transactions(config, streaming=True, driver=mine)
    state = second.state
    assert (state.last_done, state.query_id, state.generation) == (0, "query-1", 1)
    message = stream_task(config, second, 1, ["killed before its message arrived"])
    assert message.transaction[0].endswith("~0"), "the id is used again"

    def abort(driver):
        return transaction_commit.abort(
            config, None, [], 1, tasks_may_run=True, driver_token=driver
        )

    assert abort(other) == (), "another query of the prefix is left alone"
    assert plan_transactions(config, streaming=True).state.run_id == "run-1"
    assert abort(mine) == (message.transaction[0],)
    third = plan_transactions(config, streaming=True, driver=mine)
    assert third.state.superseded == ("run-1",), "Spark ends the run whose batch it aborts"
    transaction_commit.commit(config, None, [stream_task(config, third, 1, ["b"], "run-2")], 1)
    same, found = seen(consume, topic, ["a", "b"])
    assert same, found


def test_a_worker_that_ends_with_a_prepared_transaction_leaves_it_to_the_driver(
    config, topic, consume
):
    """Spark stops idle workers: the warm producer goes with the interpreter, and says nothing."""
    plan = plan_transactions(config, streaming=True)
    here = Path(__file__).parent
    given = base64.b64encode(pickle.dumps((config, plan))).decode()
    ended = subprocess.run(
        [sys.executable, "-c", _WORKER, given, str(here), str(here.parent.parent)],
        check=True,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    message = pickle.loads(base64.b64decode(ended.stdout))
    assert message.run_id == "run-1"
    assert consume(topic, isolation=COMMITTED).values == []
    transaction_commit.commit(config, None, [message], 0)
    same, found = seen(consume, topic, ["a", "b"])
    assert same, found


def test_an_abort_after_a_commit_undoes_nothing(config, topic, consume):
    plan = plan_transactions(config, streaming=True)
    message = stream_task(config, plan, 0, ["a"])
    transaction_commit.commit(config, None, [message], 0)
    assert transaction_commit.abort(config, None, [message], 0, tasks_may_run=False) == ()
    same, found = seen(consume, topic, ["a"])
    assert same, found


def test_a_micro_batch_that_is_planned_again_after_its_commit_is_known_as_done(config):
    plan = plan_transactions(config, streaming=True)
    transaction_commit.commit(config, None, [stream_task(config, plan, 5, ["a"])], 5)
    again = plan_transactions(config, streaming=True)
    identity = TaskIdentity(query_id="query-1", run_id="run-2", batch_id=5)
    assert again.is_done(identity) is True


def test_a_run_that_was_taken_over_fails_at_its_next_task_before_it_writes(config, topic, consume):
    plan = plan_transactions(config, streaming=True)
    transaction_commit.commit(config, None, [stream_task(config, plan, 0, ["a"])], 0)
    plan = plan_transactions(config, streaming=True)
    other = stream_task(config, plan, 1, ["b"], run_id="run-2")
    transaction_commit.commit(config, None, [other], 1)
    plan = plan_transactions(config, streaming=True)
    assert plan.state.superseded == ("run-1",)
    with pytest.raises(SupersededError, match="run run-1"):
        plan.is_done(TaskIdentity(query_id="query-1", run_id="run-1", batch_id=2))
    same, found = seen(consume, topic, ["a", "b"])
    assert same, found
