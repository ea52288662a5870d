"""Spark into a real Kafka: the acceptance list of Spark's own Kafka sink, and what is ours."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import pickle
import time
import uuid

import mmh3
import psutil
import pyspark
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.functions import col, lit
from pyspark.sql.types import StructType

from spark_kafka_sink.datasource.source import KprodDataSource
from spark_kafka_sink.documentation import error_url
from spark_kafka_sink.protocol.cluster import TopicPartition

ROWS = [str(n) for n in range(1, 6)]


@pytest.fixture
def topic(kafka):
    return kafka.unique_topic("datasource", partitions=2)


@pytest.fixture
def write(kafka):
    """Writes a batch frame; names with dots are options as they are."""

    def save(df, topic=None, **options):
        writer = df.write.format("kprod").option("kafka.bootstrap.servers", kafka.bootstrap)
        if topic is not None:
            writer = writer.option("topic", topic)
        writer.options(**options).save()

    return save


@pytest.fixture
def stream(kafka, tmp_path):
    """Starts a stream; the caller's trigger decides how long it lives."""

    def start(df, topic=None, *, trigger=None, mode="append", fmt="kprod", **options):
        writer = (
            df.writeStream.format(fmt)
            .outputMode(mode)
            .option("kafka.bootstrap.servers", kafka.bootstrap)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(**(trigger or {"availableNow": True}))
        )
        if topic is not None:
            writer = writer.option("topic", topic)
        return writer.options(**options).start()

    return start


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


def values(consumed):
    return sorted(value.decode() for value in consumed.values)


def frame(spark, data, schema, partitions=1):
    return spark.createDataFrame(data, schema).coalesce(partitions)


# ---- topic: column, option, both, none (acceptance list 1-3, 10, 17) -----------------------------


def test_rows_go_to_the_topic_of_their_column(spark, kafka, write, consume):
    one, two = (kafka.unique_topic("column", partitions=2) for _ in range(2))
    rows = [(one if int(v) % 2 else two, v) for v in ROWS]
    write(frame(spark, rows, "topic string, value string"))
    assert values(consume(one)) == ["1", "3", "5"]
    assert values(consume(two)) == ["2", "4"]
    assert set(consume(one).keys) == {None}


def test_the_topic_option_is_enough(spark, write, topic, consume):
    write(frame(spark, [(v,) for v in ROWS], "value string"), f"  {topic} ")
    assert values(consume(topic)) == ROWS


def test_the_topic_option_beats_the_column(spark, write, topic, consume):
    rows = [("foo-does-not-exist", v) for v in ROWS]
    write(frame(spark, rows, "topic string, value string"), topic)
    assert values(consume(topic)) == ROWS


def test_a_null_topic_fails_the_job_and_names_the_option(spark, write, topic):
    rows = [(topic, "v"), (None, "v")]
    with pytest.raises(Exception) as raised:
        write(frame(spark, rows, "topic string, value string"))
    assert "topic" in str(raised.value)
    assert "DataError" in str(raised.value)


@pytest.mark.parametrize("preflight", ["required", "off"])
def test_a_missing_topic_fails_the_job_within_max_block_ms(spark, write, preflight):
    missing = f"missing-{uuid.uuid4().hex}"
    start = time.monotonic()
    with pytest.raises(Exception) as raised:
        write(
            frame(spark, [("v",)], "value string"),
            missing,
            preflight=preflight,
            **{"kafka.max.block.ms": "1500"},
        )
    assert time.monotonic() - start < 20
    assert f"Topic {missing} not present in metadata after 1500 ms" in str(raised.value)
    at_planning = "Failed to initialize Python data source writer" in str(raised.value)
    assert at_planning == (preflight == "required")
    # However Spark wraps it, from the driver and from a task: its code and its page, each whole.
    assert f": [KP0302] Topic {missing} not present" in str(raised.value)
    assert error_url("KP0302") in str(raised.value).split()


def test_an_unreachable_broker_is_found_on_the_driver(spark):
    with pytest.raises(Exception) as raised:
        spark.range(1).selectExpr("'v' AS value").write.format("kprod").options(
            **{
                "kafka.bootstrap.servers": "127.0.0.1:1",
                "topic": "t",
                "kafka.max.block.ms": "1000",
            }
        ).save()
    first = "[KP0301] no broker answered within 1000 ms; tried 127.0.0.1:1: Connection refused ("
    assert first in str(raised.value)
    assert "Failed to initialize Python data source writer" in str(raised.value)


# ---- values, keys, headers, partitions, timestamps -----------------------------------------------


def test_values_and_keys_may_be_text_bytes_empty_or_null(spark, write, topic, consume):
    rows = [(b"k1", "ä"), (b"", ""), (None, None), (b"\x00\xff", "x")]
    write(frame(spark, rows, "key binary, value string"), topic)
    found = consume(topic)
    assert sorted(zip(found.keys, found.values, strict=True), key=str) == sorted(
        [(b"k1", "ä".encode()), (b"", b""), (None, None), (b"\x00\xff", b"x")], key=str
    )


def test_headers_keep_order_doubles_and_nulls(spark, write, topic, consume):
    lists = [
        [("a", b"b")],
        [("c", b"d"), ("e", b"f")],
        [("g", b"h"), ("g", b"i")],
        None,
        [("j", b"k"), ("j", None), ("m", b"")],
    ]
    rows = [(str(n), 0, headers) for n, headers in enumerate(lists)]
    schema = "value string, partition int, headers array<struct<key:string,value:binary>>"
    write(frame(spark, rows, schema), topic)
    found = consume(topic)
    assert found.values == [b"0", b"1", b"2", b"3", b"4"]
    assert found.headers == [headers or [] for headers in lists]


def test_headers_may_be_a_map(spark, write, topic, consume):
    rows = [("0", 0, {"a": b"1"}), ("1", 0, None), ("2", 0, {"b": None, "c": b""})]
    write(frame(spark, rows, "value string, partition int, headers map<string,binary>"), topic)
    found = consume(topic)
    assert [sorted(h) for h in found.headers] == [[("a", b"1")], [], [("b", None), ("c", b"")]]


def test_headers_may_be_a_map_of_strings(spark, write, topic, consume):
    rows = [("0", 0, {"a": "1"}), ("1", 0, {"b": None, "c": "\u00e9"})]
    write(frame(spark, rows, "value string, partition int, headers map<string,string>"), topic)
    found = consume(topic)
    assert [sorted(h) for h in found.headers] == [[("a", b"1")], [("b", None), ("c", b"\xc3\xa9")]]


def test_who_decides_about_the_partition(spark, kafka, write, consume):
    rows = [(str(n), str(n)) for n in range(5)]
    keyed = frame(spark, rows, "key string, value string")

    def partitions_of(df, **options):
        name = kafka.unique_topic("partitioner", partitions=4)
        write(df, name, **options)
        found = consume(name)
        assert len(found) == 5
        return dict(zip(found.values, found.partitions, strict=True))

    by_key = partitions_of(keyed)
    assert len(set(by_key.values())) > 1
    assert set(partitions_of(keyed.withColumn("partition", lit(2))).values()) == {2}
    nulls = keyed.withColumn("partition", lit(None).cast("int"))
    assert partitions_of(nulls) == by_key, "a null partition leaves the choice to the partitioner"


def test_a_partitioner_of_the_users_own_is_asked_and_an_explicit_partition_beats_it(
    spark, kafka, write, consume, tmp_path
):
    (tmp_path / "always_zero.py").write_text(
        "class AlwaysZero:\n"
        "    def partition(self, topic, keys, values, partition_count, available):\n"
        "        return [0] * len(values)\n"
    )
    spark.sparkContext.addPyFile(str(tmp_path / "always_zero.py"))
    keyed = frame(spark, [(str(n), str(n)) for n in range(5)], "key string, value string")
    own = {"kafka.partitioner.class": "always_zero:AlwaysZero"}
    for df, expected in ((keyed, {0}), (keyed.withColumn("partition", lit(2)), {2})):
        name = kafka.unique_topic("own", partitions=4)
        write(df, name, **own)
        assert set(consume(name).partitions) == expected
    with pytest.raises(Exception, match="always_zero:Absent can't be imported"):
        write(keyed, kafka.unique_topic("own"), **{"kafka.partitioner.class": "always_zero:Absent"})


def test_keys_go_where_javas_partitioner_sends_them(spark, kafka, write, consume):
    from confluent_kafka import Producer

    theirs, ours = (kafka.unique_topic("murmur2", partitions=7) for _ in range(2))
    keys = [f"key-{n}" for n in range(50)]
    reference = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        reference.produce(theirs, key=key, value=key)
    assert reference.flush(30) == 0
    write(frame(spark, [(k, k) for k in keys], "key string, value string"), ours)
    where = [dict(zip(f.keys, f.partitions, strict=True)) for f in (consume(theirs), consume(ours))]
    assert where[0] == where[1]


def test_a_partition_holds_the_bucket_that_iceberg_would_put_its_rows_into(
    spark, kafka, write, consume
):
    """The key as docs/options.md tells how to make it of a number."""
    numbers = [34, -1, *range(-(2**63), 2**63, 2**58)]
    rows = frame(spark, [(n,) for n in numbers], "id bigint").selectExpr(
        "unhex(lpad(hex(id), 16, '0')) AS key", "CAST(id AS STRING) AS value"
    )
    name = kafka.unique_topic("buckets", partitions=16)
    write(rows, name, **{"kafka.partitioner.class": "iceberg_bucket_long"})
    found = consume(name)
    wanted = {
        str(n).encode(): (mmh3.hash(n.to_bytes(8, "little", signed=True)) & 0x7FFFFFFF) % 16
        for n in numbers
    }
    assert dict(zip(found.values, found.partitions, strict=True)) == wanted
    assert wanted[b"34"] == 2017239379 % 16  # the number in Iceberg's specification
    with pytest.raises(Exception, match="iceberg_bucket_long takes keys that are integers"):
        write(
            rows.selectExpr("value AS key", "value"),
            name,
            **{"kafka.partitioner.class": "iceberg_bucket_long"},
        )


@pytest.mark.parametrize("partition", [7, -1])
def test_a_partition_that_is_not_there_fails_the_job(spark, write, topic, partition):
    rows = frame(spark, [("v", partition)], "value string, partition int")
    with pytest.raises(Exception) as raised:
        write(rows, topic, **{"kafka.max.block.ms": "1000"})
    assert "DataError" in str(raised.value)
    assert str(partition) in str(raised.value)


def test_a_timestamp_column_becomes_the_records_create_time(spark, write, topic, consume):
    now = int(time.time() * 1000) - 60_000
    instant = dt.datetime.fromtimestamp(now / 1000, dt.UTC)
    rows = frame(spark, [("0", instant), ("1", None)], "value string, timestamp timestamp")
    before = int(time.time() * 1000)
    write(rows.withColumn("partition", lit(0)), topic)
    write(
        frame(spark, [("2", now + 7)], "value string, timestamp long").withColumn(
            "partition", lit(0)
        ),
        topic,
    )
    ntz = rows.where("value = '0'").withColumn("timestamp", col("timestamp").cast("timestamp_ntz"))
    write(ntz.withColumn("partition", lit(0)), topic)
    found = consume(topic)
    assert (found.timestamps[0], found.timestamps[2], found.timestamps[3]) == (now, now + 7, now)
    assert before <= found.timestamps[1] <= int(time.time() * 1000), "null: the time of sending"


def test_extra_columns_are_ignored(spark, write, topic, consume):
    rows = spark.range(4).selectExpr(
        "cast(id AS string) AS value", "id", "current_date() AS day", "array(id) AS list"
    )
    write(rows, topic)
    assert values(consume(topic)) == ["0", "1", "2", "3"]


def test_a_whole_row_as_json(spark, write, topic, consume):
    rows = spark.range(1, 1000).selectExpr("to_json(struct(*)) AS value")
    write(rows, topic)
    found = consume(topic)
    assert sorted(json.loads(v)["id"] for v in found.values) == list(range(1, 1000))


def test_big_rows_pass_through_a_small_buffer(spark, kafka, write, consume):
    name = kafka.unique_topic("small-buffer", partitions=1)
    rows = spark.range(1000).selectExpr("repeat(cast(id % 10 AS string), 15000) AS value")
    options = {"kafka.buffer.memory": "16384", "kafka.block.on.buffer.full": "true"}
    write(rows.coalesce(1), name, **options)
    found = consume(name)
    assert len(found) == 1000
    assert {len(v) for v in found.values} == {15000}


def test_a_job_that_failed_says_what_stays_and_the_next_one_works(spark, write, topic, consume):
    rows = spark.range(0, 4, 1, 2).selectExpr(
        "cast(id AS string) AS value", "IF(id = 3, -5, 0) AS partition"
    )
    with pytest.raises(Exception) as raised:
        write(rows, topic)
    assert "DataError" in str(raised.value)
    assert "while sending rows 0 to 1 of partition 1 of the DataFrame" in str(raised.value)
    assert set(values(consume(topic))) <= {"0", "1"}, "nothing of the bad partition"
    write(rows.where("value < '3'"), topic)
    assert {"0", "1", "2"} <= set(values(consume(topic)))


# ---- SQL and tables ------------------------------------------------------------------------------


@pytest.fixture
def table(spark):
    name = f"t_{uuid.uuid4().hex}"
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_insert_into_with_options(spark, kafka, topic, table, consume):
    spark.sql(f"CREATE TABLE {table} (key string, value string) USING kprod")
    spark.sql(
        f"INSERT INTO {table} WITH ('kafka.bootstrap.servers' = '{kafka.bootstrap}', "
        f"'topic' = '{topic}') SELECT 'k', 'v'"
    )
    found = consume(topic)
    assert (found.keys, found.values) == ([b"k"], [b"v"])


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="an INSERT must name every column there")
def test_a_table_without_columns_has_the_canonical_ones(spark, kafka, topic, table, consume):
    spark.sql(f"CREATE TABLE {table} USING kprod")
    spark.sql(
        f"INSERT INTO {table} WITH ('kafka.bootstrap.servers' = '{kafka.bootstrap}', "
        f"'topic' = '{topic}') (value) SELECT cast('v' AS binary)"
    )
    assert consume(topic).values == [b"v"]


def test_write_to_a_table(spark, kafka, topic, table, consume):
    spark.sql(f"CREATE TABLE {table} (value string) USING kprod")
    rows = frame(spark, [(v,) for v in ROWS], "value string")
    writer = rows.writeTo(table).option("kafka.bootstrap.servers", kafka.bootstrap)
    writer.option("topic", topic).append()
    assert values(consume(topic)) == ROWS


def test_save_as_table(spark, kafka, topic, table, consume):
    rows = frame(spark, [(v,) for v in ROWS], "value string")
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    rows.write.format("kprod").options(**options).saveAsTable(table)
    assert values(consume(topic)) == ROWS


# ---- streams -------------------------------------------------------------------------------------


def test_a_stream_writes_each_micro_batch_once_and_counts_its_rows(source, stream, topic, consume):
    rows, add = source
    add(ROWS)
    add(["6", "7", "8"])
    query = stream(rows, topic)
    query.awaitTermination()
    assert values(consume(topic)) == [*ROWS, "6", "7", "8"]
    assert sorted(p.sink.numOutputRows for p in query.recentProgress if p.numInputRows) == [3, 5]


def test_a_restarted_stream_goes_on_where_it_stood(source, stream, topic, consume):
    rows, add = source
    add(ROWS)
    stream(rows, topic).awaitTermination()
    add(["6"])
    stream(rows, topic).awaitTermination()
    assert values(consume(topic)) == [*ROWS, "6"]


def test_a_stream_with_a_processing_time_trigger(source, stream, topic, consume):
    rows, add = source
    add(ROWS)
    query = stream(
        rows.select(lit(topic).alias("topic"), "value"), trigger={"processingTime": "0 seconds"}
    )
    try:
        query.processAllAvailable()
        assert values(consume(topic)) == ROWS
        add(["6"])
        query.processAllAvailable()
        assert values(consume(topic)) == [*ROWS, "6"]
    finally:
        query.stop()


def test_a_stream_from_the_rate_source(spark, stream, topic, consume):
    rate = spark.readStream.format("rate").option("rowsPerSecond", 200).load()
    query = stream(
        rate.selectExpr("cast(value AS string) AS value"),
        topic,
        trigger={"processingTime": "200 milliseconds"},
    )
    try:
        deadline = time.monotonic() + 30
        while sum(progress.numInputRows for progress in query.recentProgress) < 100:
            assert time.monotonic() < deadline
            assert query.exception() is None
            query.awaitTermination(0.1)
    finally:
        query.stop()
    # stop() comes in the middle of a micro-batch, of which some rows may be there.
    committed = sum(progress.numInputRows for progress in query.recentProgress)
    found = [int(v) for v in consume(topic).values]
    assert len(found) == len(set(found)), "no row twice"
    assert set(range(committed)) <= set(found), "no row lost"


def test_a_stream_to_a_missing_topic_fails_its_job(source, stream):
    rows, add = source
    add(ROWS)
    query = stream(rows, f"missing-{uuid.uuid4().hex}", **{"kafka.max.block.ms": "1000"})
    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination()
    # Spark's own sink ends in "Job aborted" here; of a Python sink Spark shows the cause itself.
    assert "not present in metadata after 1000 ms" in str(raised.value)


def test_a_stream_whose_preflight_is_required_fails_at_planning(source, stream):
    rows, add = source
    add(ROWS)
    options = {"preflight": "required", "kafka.max.block.ms": "1000"}
    query = stream(rows, f"missing-{uuid.uuid4().hex}", **options)
    with pytest.raises(StreamingQueryException, match="Failed to initialize Python data source"):
        query.awaitTermination()


def test_for_each_batch_writes_and_needs_no_mode_here(source, kafka, topic, tmp_path, consume):
    rows, add = source
    add(ROWS)

    def save(batch, _batch_id):
        options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
        batch.write.format("kprod").options(**options).save()

    query = (
        rows.writeStream.foreachBatch(save)
        .outputMode("update")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert values(consume(topic)) == ROWS


def test_a_stream_to_a_table(source, kafka, topic, table, tmp_path, spark, consume):
    spark.sql(f"CREATE TABLE {table} (value string) USING kprod")
    rows, add = source
    add(ROWS)
    query = (
        rows.writeStream.options(**{"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic})
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .toTable(table)
    )
    query.awaitTermination()
    assert values(consume(topic)) == ROWS


class RowSource(KprodDataSource):
    """The source as it is on pyspark 4.0, where streams have no Arrow writer."""

    @classmethod
    def name(cls):
        return "kprod_rows"

    def _has_arrow_stream_writer(self):
        return False


def test_rows_are_adapted_where_spark_has_no_arrow_stream_writer(
    spark, source, stream, topic, consume
):
    import test_datasource_kafka as this_module
    from pyspark import cloudpickle

    # Workers don't see the tests: send the class along.
    cloudpickle.register_pickle_by_value(this_module)
    try:
        spark.dataSource.register(RowSource)
    finally:
        cloudpickle.unregister_pickle_by_value(this_module)
    rows, add = source
    add(ROWS)
    instant = dt.datetime.fromtimestamp(int(time.time()) - 60, dt.UTC)
    full = rows.select(
        lit("extra").alias("extra"),
        col("value").cast("binary").alias("value"),
        col("value").alias("key"),
        lit(1).alias("partition"),
        lit(instant).alias("timestamp"),
    ).selectExpr("*", "map('h', cast(key AS binary)) AS headers")
    stream(full, topic, fmt="kprod_rows").awaitTermination()
    found = consume(topic)
    assert values(found) == ROWS
    assert found.keys == found.values
    assert set(found.partitions) == {1}
    assert set(found.timestamps) == {int(instant.timestamp()) * 1000}
    assert [h[0][1] for h in found.headers] == found.values


# ---- reports, warm producers ---------------------------------------------------------------------


def test_the_report_tells_rows_and_offsets(spark, write, topic, tmp_path, consume):
    path = tmp_path / "report.jsonl"
    rows = spark.range(100).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")
    for _ in range(2):
        write(rows.repartition(2), topic, reportPath=str(path))
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert (first["rows"], first["tasks"], first["batchId"]) == (100, 2, None)
    assert first["batches"] >= 2
    assert first["requests"] >= 1
    assert first["bytes"] > 0
    found = consume(topic)
    told = {p["partition"]: p["firstOffset"] for p in first["partitions"]}
    assert told == {0: 0, 1: 0}
    ends = {p["partition"]: p["lastOffset"] for p in second["partitions"]}
    assert ends == {
        p: max(o for o, q in zip(found.offsets, found.partitions, strict=True) if q == p)
        for p in (0, 1)
    }


def test_a_stream_reports_each_micro_batch(source, stream, topic, tmp_path):
    rows, add = source
    add(ROWS)
    add(["6"])
    path = tmp_path / "report.jsonl"
    query = stream(rows, topic, reportPath=str(path))
    query.awaitTermination()
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(t["batchId"], t["queryId"]) for t in told] == [(0, query.id), (1, query.id)]
    assert sorted(t["rows"] for t in told) == [1, 5]


def test_a_report_that_cannot_be_written_fails_nothing(spark, write, topic, consume):
    write(frame(spark, [("v",)], "value string"), topic, reportPath="/no/such/directory/r.jsonl")
    assert len(consume(topic)) == 1


@pytest.mark.long  # it waits for the line that comes after 30 s
@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark keeps no such log there")
def test_a_task_that_runs_speaks_in_sparks_log_of_python_workers(spark, write, topic):
    def slowly(batches):
        import time

        for one in batches:
            yield one
            time.sleep(35)

    rows = frame(spark, [("v",)], "value string").coalesce(1)
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        write(rows.mapInArrow(slowly, "value string"), topic)
        told = [r for r in spark.tvf.python_worker_logs().collect() if "kprod writes" in r.msg]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert "waitsFor=Spark's next rows" in told[0].msg
    assert told[0].level == "INFO"


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark keeps no such log there")
def test_the_report_is_in_sparks_log_of_python_workers(spark, write, topic):
    spark.conf.set("spark.sql.pyspark.worker.logging.enabled", "true")
    try:
        write(frame(spark, [("v",)], "value string"), topic)
        logs = spark.tvf.python_worker_logs().collect()
        told = [row for row in logs if "kprod wrote" in row.msg and topic in row.msg]
    finally:
        spark.conf.unset("spark.sql.pyspark.worker.logging.enabled")
    assert len(told) == 1
    assert (told[0].context["rows"], told[0].level) == ("1", "INFO")


def test_what_the_driver_learnt_of_the_cluster_travels_with_the_writer(kafka, topic):
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "topic": topic}
    schema = StructType().add("value", "string")
    writer = KprodDataSource(CaseInsensitiveDict(options)).writer(schema, overwrite=False)
    cluster = pickle.loads(cloudpickle.dumps(writer)).plan.cluster
    assert len(cluster.topics[topic]) == 2
    assert cluster.leader_for(TopicPartition(topic, 1)).port


def test_producers_stay_warm_between_tasks(spark, kafka, write, topic, consume):
    ports = {int(address.rsplit(":", 1)[1]) for address in kafka.bootstrap.split(",")}

    def connections():
        found = set()
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "python" in process.name():
                    found |= {
                        (process.pid, c.laddr.port)
                        for c in process.net_connections("tcp4")
                        if c.raddr and c.raddr.port in ports and c.status == "ESTABLISHED"
                    }
        return found

    rows = frame(spark, [("v",)], "value string")
    warm = {"kafka.client.id": f"warm-{uuid.uuid4().hex[:6]}"}
    for _ in range(6):  # Spark takes its idle workers in turn: now each has a producer
        write(rows, topic, **warm)
    before = connections()
    assert before
    for _ in range(4):
        write(rows, topic, **warm)
    assert connections() == before
    assert len(consume(topic)) == 10
