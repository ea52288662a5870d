"""foreach_batch: what it sets for each write, and what it refuses. No Spark, no broker."""

from __future__ import annotations

import os
import pickle
import threading

import pytest
from pyspark.cloudpickle import dumps as cloud_dumps

import spark_kafka_sink
from spark_kafka_sink import foreach_batch
from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.datasource.write.write_context import WriteContext
from tests.datasource.saved_frames import OPTIONS, Frame, Session, written
from tests.programs import run_python


def test_a_micro_batch_is_written_under_its_name_and_number():
    frame = written(foreach_batch("orders", **OPTIONS), 12)
    context = frame.told.pop("txnContext")
    assert WriteContext.of_option(context) == WriteContext(frame_run(context))
    assert frame.told == OPTIONS | {
        "format": "kprod",
        "mode": "append",
        "deliveryGuarantee": "exactly-once",
        "txnAppId": "orders",
        "txnVersion": 12,
    }


def frame_run(option):
    run = WriteContext.of_option(option).run
    assert len(run) == 32
    return run


# --- who writes --------------------------------------------------------------------------------


def test_its_run_is_kept_over_micro_batches():
    write, other = foreach_batch("kept", **OPTIONS), foreach_batch("another", **OPTIONS)
    runs = [written(write, n).context.run for n in range(3)]
    assert len(set(runs)) == 1
    assert written(other).context.run not in runs


def test_an_object_made_in_each_call_has_the_run_of_the_last():
    """Else each micro-batch would take ids of its own, and their number would have no bound."""
    runs = [written(foreach_batch("in-the-function", **OPTIONS), n).context.run for n in range(3)]
    assert len(set(runs)) == 1


def test_each_run_of_a_query_has_a_run_of_its_own():
    """In threads, too: the session of its DataFrames is the query's."""
    write = foreach_batch("two-queries", **OPTIONS)
    runs = []
    for query in (("query-1", "run-1"), ("query-2", "run-2"), ("query-1", "run-3")):
        for number in (0, 1):
            frame = Frame(Session({}, query))
            write(frame, number)
            assert frame.context.query_id == query[0]
            runs.append(frame.context.run)
    assert runs[::2] == runs[1::2]
    assert len(set(runs)) == 3


def test_a_pool_of_threads_does_not_name_its_makers_query():
    """Its threads inherit the local properties of the query that made the pool."""
    inherited = {"sql.streaming.queryId": "query-1"}
    frame = Frame(Session(inherited, ("query-2", "run-2")))
    foreach_batch("pooled", **OPTIONS)(frame, 0)
    assert frame.context.query_id == "query-2"


def test_another_frame_under_a_number_that_is_done_is_refused():
    write = foreach_batch("twice", **OPTIONS)
    session = Session({}, ("query-1", "run-1"))
    write(Frame(session, plan=1), 0)
    write(Frame(session, plan=1), 0)
    with pytest.raises(ConfigError, match="'twice' wrote another DataFrame in micro-batch 0"):
        write(Frame(session, plan=2), 0)
    write(Frame(session, plan=2), 1)
    write(Frame(Session({}, ("query-1", "run-2")), plan=3), 1)  # a restart: the log compares
    assert len(session.saved) == 3


@pytest.mark.parametrize("first", [("query-1", "run-1"), ()], ids=["of the query", "of none"])
def test_another_frame_of_an_outer_session_is_refused_too(first):
    """In threads of the function each write named no query, and the second one of equal size was
    dropped as a replay of the first one.
    """
    name = f"outer-{len(first)}"
    outer = Session({}, ())
    foreach_batch(name, **OPTIONS)(Frame(Session({}, first), plan=1), 7)
    foreach_batch(name, **OPTIONS)(Frame(outer, plan=1), 7)
    with pytest.raises(ConfigError, match="wrote another DataFrame in micro-batch 7") as caught:
        foreach_batch(name, **OPTIONS)(Frame(outer, plan=2), 7)
    assert "batch_df.sparkSession" in caught.value.hint
    foreach_batch(name, **OPTIONS, verifyReplays="false")(Frame(outer, plan=2), 7)


def test_a_write_of_no_query_is_known_when_this_process_repeats_it():
    """In another process nothing says that it is the same write again."""
    write = foreach_batch("repeated", **OPTIONS)
    assert [written(write, 3).context.known for _ in range(2)] == [False, True]
    frame = Frame(Session({}, ("query-1", "run-1")))
    foreach_batch("known", **OPTIONS)(frame, 3)
    assert frame.context.known


@pytest.mark.parametrize(
    ("other", "columns", "options"),
    [
        ("names", "key", {"topic": "t"}),
        ("topic", "value", {"Topic": "u"}),
        ("option", "value", {"topic": "t", "valueColumns": "v"}),
        ("file", "value", {"topic": "t", "CONFIGFILE": "other.properties"}),
    ],
)
def test_one_frame_with_other_columns_is_another_write(
    tmp_path, monkeypatch, other, columns, options
):
    """Or to another topic: Spark's hash of a plan knows neither. The digest of a checkpoint is the
    micro-batch's, so it would count as the write that is done.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.properties").write_text("kafka.acks=all")
    session, name = Session({}, ("query-1", "run-1")), f"other-{other}"
    cluster = {"kafka.bootstrap.servers": "h:9092"}
    foreach_batch(name, **cluster, topic="t")(Frame(session), 0)
    foreach_batch(name, **cluster, TOPIC="t", **{"kafka.linger.ms": 1})(Frame(session), 0)
    with pytest.raises(ConfigError, match="or this DataFrame with other options"):
        foreach_batch(name, **cluster, **options)(Frame(session, columns=columns), 0)
    assert len(session.saved) == 2


def test_a_frame_without_a_schema_is_known_by_its_plan():
    """What Spark can't say must not make two writes one."""
    write, session = foreach_batch("no-schema", **OPTIONS), Session({}, ("query-1", "run-1"))
    frames = [Frame(session, plan=plan) for plan in (1, 2)]
    for frame in frames:
        del frame.schema
    write(frames[0], 0)
    with pytest.raises(ConfigError, match="wrote another DataFrame in micro-batch 0"):
        write(frames[1], 0)


def test_after_a_failure_its_run_is_another_one():
    """The abort has given up the former: it commits nothing any more."""
    write = foreach_batch("failing", **OPTIONS)
    before = written(write, 0).context.run
    assert written(write, 1, fails=True).context.run == before
    after = [written(write, n).context.run for n in (1, 2)]
    assert after[0] == after[1] != before


def test_its_run_survives_a_pickle_in_one_process():
    """Spark Connect sends the function, and its worker unpickles it once for a query's life."""
    write = foreach_batch("pickled", **OPTIONS)
    run = written(write).context.run
    copies = [pickle.loads(cloud_dumps(write)) for _ in range(2)]
    assert copies == [write, write]
    assert [written(copy, n).context.run for n, copy in enumerate(copies, 1)] == [run, run]


def test_another_process_writes_as_another_run():
    """A driver that is restarted unpickles, or makes, the same function."""
    write = foreach_batch("restarted", **OPTIONS)
    run = written(write).context.run
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, written(write).context.run.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as told:
        assert len(found := told.read()) == 32
        assert found != run
    assert written(write).context.run == run


def test_its_run_does_not_come_from_sparks_local_properties():
    """A thread of one's own has none, and one of a pool has those of the query before."""
    write = foreach_batch("threads", **OPTIONS)
    told = {"sql.streaming.queryId": "query-1", "spark.jobGroup.id": "run-1"}
    contexts = [written(write, n, p).context for n, p in enumerate((told, None, {}, told))]
    found = []
    thread = threading.Thread(target=lambda: found.append(written(write, 4, {}).context))
    thread.start()
    thread.join()
    assert len({c.run for c in contexts + found}) == 1
    assert contexts[0].run != "run-1"
    assert [c.query_id for c in contexts + found] == ["query-1", "", "", "query-1", ""]


@pytest.mark.parametrize("query", ["", "a query~of somebody's", 7, "x" * 101, "a\nb"])
def test_an_invalid_query_id_is_left_out(query):
    frame = written(foreach_batch("odd", **OPTIONS), 0, {"sql.streaming.queryId": query})
    assert frame.context.query_id == ""


def test_it_shows_no_option():
    write = foreach_batch("shown", **OPTIONS, **{"kafka.sasl.jaas.config": "a-secret"})
    for text in (repr(write), str(write), f"{write}"):
        assert text.startswith("foreach_batch('shown', with the options ")
        assert "a-secret" not in text


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a b", "a~b", "x" * 101])
def test_an_illegal_name_is_refused(name):
    with pytest.raises(ConfigError, match="the name given to foreach_batch is"):
        foreach_batch(name, **OPTIONS)


@pytest.mark.parametrize("key", ["txnAppId", "txnversion", "TXNVERSION", "txnContext"])
def test_what_it_sets_itself_is_refused(key):
    with pytest.raises(ConfigError, match=f"foreach_batch sets {key} itself"):
        foreach_batch("refused", **OPTIONS, **{key: "1"})


def test_another_guarantee_is_refused_and_its_own_is_taken():
    with pytest.raises(ConfigError, match="deliveryGuarantee is at-least-once"):
        foreach_batch("refused", **OPTIONS, deliveryGuarantee="at-least-once")
    foreach_batch("taken", **OPTIONS, deliveryguarantee="Exactly-Once")


def test_the_name_stays_a_function_when_its_module_is_imported():
    assert "foreach_batch" in spark_kafka_sink.__all__
    code = (
        "import spark_kafka_sink.datasource.foreach_batch, sys, spark_kafka_sink; "
        "assert callable(spark_kafka_sink.foreach_batch); "
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    run_python("-c", code)
