"""Each thread finds the format, with an active session or without. A real Spark, no broker."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark import InheritableThread

import spark_kafka_sink
from spark_kafka_sink.datasource.process.active_session import active_session

pytestmark = pytest.mark.spark

OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "preflight": "off",
    "kafka.max.block.ms": "300",
    "topic": "t",
}


def active(spark):
    """The JVM's active session of this thread."""
    return spark._get_j_spark_session_class(spark._jvm).getActiveSession()


def in_a_pool(run):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result(120)


def in_an_inheritable_thread(run):
    found = []
    thread = InheritableThread(target=lambda: found.append(run()))
    thread.start()
    thread.join(120)
    (one,) = found
    return one


@pytest.fixture(params=[in_a_pool, in_an_inheritable_thread])
def elsewhere(request):
    return request.param


@pytest.fixture
def table(spark):
    name = f"t_{uuid.uuid4().hex}"
    spark.sql(f"CREATE TABLE {name} (value string) USING kprod")
    yield name
    spark.sql(f"DROP TABLE IF EXISTS {name}")


def writes(spark, table, home):
    """Each way to write nothing, or to begin to."""
    rows = spark.createDataFrame([], "value string")
    stream = spark.readStream.schema("value string").json(str(home))
    with_options = ", ".join(f"'{name}' = '{value}'" for name, value in OPTIONS.items())

    def into(start):
        def run():
            checkpoint = str(home / uuid.uuid4().hex)
            writer = stream.writeStream.options(**OPTIONS).trigger(availableNow=True)
            start(writer.option("checkpointLocation", checkpoint)).awaitTermination(120)

        return run

    return {
        "save": rows.write.format("kprod").options(**OPTIONS).save,
        "save with its format": lambda: rows.write.options(**OPTIONS).save(format="kprod"),
        "append to a table": lambda: rows.writeTo(table).options(**OPTIONS).append(),
        "insert": lambda: spark.sql(
            f"INSERT INTO {table} WITH ({with_options}) SELECT 'v' LIMIT 0"
        ),
        "create": lambda: spark.sql(f"CREATE TABLE {table}_2 (value string) USING kprod"),
        "drop": lambda: spark.sql(f"DROP TABLE {table}_2"),
        "start": into(lambda writer: writer.format("kprod").start()),
        "start with its format": into(lambda writer: writer.start(format="kprod")),
        "toTable": into(lambda writer: writer.toTable(table)),
        "last report": lambda: spark_kafka_sink.last_report(spark),
    }


def test_a_thread_without_an_active_session_writes(spark, elsewhere, table, tmp_path):
    (tmp_path / "in").mkdir()
    for name, write in writes(spark, table, tmp_path / "in").items():

        def run(write=write):
            write()
            return active(spark).isDefined()

        assert elsewhere(run) is False, f"{name}: the thread has the session that it had"


def test_the_session_from_before_is_restored(spark):
    other = spark.newSession()
    before = active(spark).get()
    with active_session(other):
        assert active(spark).get().equals(other._jsparkSession)
        with pytest.raises(ValueError, match="an error"), active_session(spark):
            raise ValueError("an error")
        assert active(spark).get().equals(other._jsparkSession)
    assert active(spark).get().equals(before)


def test_a_session_of_connect_needs_nothing_and_adds_no_context():
    with pytest.raises(ValueError, match="an error") as raised, active_session(object()):
        raise ValueError("an error")
    assert raised.value.__context__ is None
