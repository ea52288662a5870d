"""foreach_batch and transaction: what they set for each write, and what they refuse. No Spark, no
broker.
"""

from __future__ import annotations

import os
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.cloudpickle import dumps as cloud_dumps

import spark_kafka_sink
from spark_kafka_sink import foreach_batch
from spark_kafka_sink.datasource.foreach_batch import transaction
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.errors import CommitError, ConfigError
from tests.programs import run_python

OPTIONS = {"kafka.bootstrap.servers": "h:9092", "topic": "t", "kafka.linger.ms": 7}


class Session:
    """A SparkSession as far as it is used. ``properties`` are the calling thread's, None with Spark
    Connect; ``saved`` collects what is written.
    """

    def __init__(self, properties=None):
        self._properties = properties
        self.saved = []

    @property
    def sparkContext(self):
        if self._properties is None:
            raise AttributeError("[JVM_ATTRIBUTE_NOT_SUPPORTED]")
        return self

    def getLocalProperty(self, name):
        return self._properties.get(name)

    def range(self, rows):
        return Frame(self, fails=False, rows=rows)

    @property
    def read(self):
        return self

    def text(self, path, *, wholetext):
        assert wholetext
        rows = [(Path(path).read_text(),)]
        return SimpleNamespace(collect=lambda: rows)


class Frame:
    """What a foreachBatch function is given, as far as it is used."""

    def __init__(self, session=None, *, fails=False, rows=3):
        self.sparkSession = Session() if session is None else session
        self.told = {}
        self.rows = rows
        self._fails = fails

    def selectExpr(self, *_):
        return self

    @property
    def write(self):
        return self

    def format(self, name):
        self.told["format"] = name
        return self

    def options(self, **options):
        self.told |= options
        return self

    def option(self, key, value):
        self.told[key] = value
        return self

    def mode(self, mode):
        self.told["mode"] = mode
        return self

    def save(self):
        self.sparkSession.saved.append(self)
        if self._fails:
            raise OSError("the write broke")

    @property
    def context(self):
        return WriteContext.of_option(self.told["txnContext"])


def written(write, batch_id=0, properties=None, *, fails=False):
    """The frame that ``write`` was given, as it was saved."""
    frame = Frame(Session(properties), fails=fails)
    if fails:
        with pytest.raises(OSError, match="the write broke"):
            write(frame, batch_id)
    else:
        write(frame, batch_id)
    assert frame.sparkSession.saved == [frame]
    return frame


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


def test_its_run_is_kept_over_micro_batches_and_another_one_has_its_own():
    write, other = (foreach_batch("kept", **OPTIONS) for _ in range(2))
    runs = [written(write, n).context.run for n in range(3)]
    assert len(set(runs)) == 1
    assert written(other).context.run not in runs


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
def test_a_query_id_that_is_none_is_not_told(query):
    frame = written(foreach_batch("odd", **OPTIONS), 0, {"sql.streaming.queryId": query})
    assert frame.context.query_id == ""


def test_it_shows_no_option_and_no_nonce():
    write = foreach_batch("shown", **OPTIONS, **{"kafka.sasl.jaas.config": "a-secret"})
    for text in (repr(write), str(write), f"{write}"):
        assert text.startswith("foreach_batch('shown', with the options ")
        assert "a-secret" not in text
        assert write.nonce not in text


def test_it_survives_a_pickle():
    write = foreach_batch("pickled", **OPTIONS)
    assert pickle.loads(cloud_dumps(write)) == write


# --- several writes decided together -----------------------------------------------------------


def test_the_writes_of_a_transaction_are_its_parts_and_the_last_one_decides_them():
    session = Session({"sql.streaming.queryId": "query-1"})
    with transaction("both", 3, **OPTIONS) as t:
        t.write(Frame(session), topic="a")
        t.write(Frame(session), topic="b")
        assert len(session.saved) == 2, "nothing is decided before the block ends"
    contexts = [frame.context for frame in session.saved]
    ((run, token),) = {(c.run, c.token) for c in contexts}
    assert contexts == [
        WriteContext(run, "query-1", part=0, token=token),
        WriteContext(run, "query-1", part=1, token=token),
        WriteContext(run, "query-1", parts=2, token=token),
    ]
    assert [frame.told["topic"] for frame in session.saved] == ["a", "b", "t"]
    assert [frame.rows for frame in session.saved] == [3, 3, 0]
    for frame in session.saved:
        assert (frame.told["txnAppId"], frame.told["txnVersion"]) == ("both", 3)
        assert frame.told["deliveryGuarantee"] == "exactly-once"


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_write_that_fails_fails_all_also_when_its_error_is_swallowed(swallowed):
    session = Session()

    def block():
        with transaction("broken", 0, **OPTIONS) as t:
            t.write(Frame(session))
            try:
                t.write(Frame(session, fails=True))
            except OSError:
                if not swallowed:
                    raise

    wanted = (CommitError, "a write failed") if swallowed else (OSError, "the write broke")
    with pytest.raises(wanted[0], match=wanted[1]):
        block()
    *parts, last = (frame.context for frame in session.saved)
    assert [(c.part, c.parts, c.abort) for c in parts] == [(0, None, False), (1, None, False)]
    assert (last.part, last.parts, last.abort) == (None, 2, True)


def raises_in_its_block(session):
    with transaction("raised", 0, **OPTIONS) as t:
        t.write(Frame(session))
        raise KeyError("theirs")


def test_a_block_that_raises_aborts_what_it_wrote():
    session = Session()
    with pytest.raises(KeyError, match="theirs"):
        raises_in_its_block(session)
    assert [frame.context.abort for frame in session.saved] == [False, True]


def test_an_abort_that_fails_hides_no_error():
    class Broken(Session):
        def range(self, rows):
            return Frame(self, fails=True, rows=rows)

    session = Broken()
    with pytest.raises(KeyError, match="theirs"):
        raises_in_its_block(session)
    assert [frame.context.abort for frame in session.saved] == [False, True], "it was tried"


def test_a_write_that_is_still_running_fails_the_transaction():
    session, entered, leave, threads = Session(), threading.Event(), threading.Event(), []

    class Slow(Frame):
        def save(self):
            entered.set()
            assert leave.wait(30)
            super().save()

    def block():
        with transaction("slow", 0, **OPTIONS) as t:
            t.write(Frame(session))
            threads.append(threading.Thread(target=t.write, args=(Slow(session),)))
            threads[0].start()
            assert entered.wait(30)

    with pytest.raises(CommitError, match="1 of its writes are still running"):
        block()
    leave.set()
    threads[0].join(30)
    assert [(f.context.parts, f.context.abort) for f in session.saved] == [
        (None, False), (2, True), (None, False),
    ]  # fmt: skip


def test_writes_of_threads_are_parts_of_one_transaction():
    session = Session()
    with transaction("pool", 0, **OPTIONS) as t:
        threads = [threading.Thread(target=t.write, args=(Frame(session),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    *parts, last = (frame.context for frame in session.saved)
    assert sorted(c.part for c in parts) == list(range(8))
    assert last.parts == 8


def test_a_transaction_without_a_write_writes_nothing_and_its_run_is_kept_like_the_others():
    with transaction("unused", 0, **OPTIONS):
        pass
    runs = []
    for batch_id, fails in ((0, False), (1, False), (2, True), (2, False)):
        session = Session()
        try:
            with transaction("unused", batch_id, **OPTIONS) as t:
                t.write(Frame(session, fails=fails))
        except OSError:
            assert fails
        runs.append({frame.context.run for frame in session.saved})
    assert all(len(one) == 1 for one in runs)
    assert runs[0] == runs[1] == runs[2] != runs[3]


@pytest.mark.parametrize("key", ["txnAppId", "txnversion", "txnContext"])
def test_what_a_transaction_sets_itself_is_refused_also_for_one_write(key):
    with (
        pytest.raises(ConfigError, match=f"transaction sets {key} itself"),
        transaction("refused", 0, **OPTIONS, **{key: "1"}),
    ):
        pass
    session = Session()
    with (
        pytest.raises(ConfigError, match=f"transaction sets {key} itself"),
        transaction("refused", 0, **OPTIONS) as t,
    ):
        t.write(Frame(session), **{key: "1"})
    assert session.saved == []


# --- offsets of the query's sources ------------------------------------------------------------


@pytest.fixture
def checkpoint(tmp_path):
    """Of a query whose batch 3 ends at offset 7 of a partition."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text('v1\n{"batchWatermarkMs":0}\n{"source":{"0":7}}')
    return str(tmp_path)


@pytest.fixture(params=["option", "file"])
def with_group(request, tmp_path):
    """``offsetsGroup``, given as an option or as a line of a configFile."""
    if request.param == "option":
        return {"offsetsgroup": "mine"}
    (tmp_path / "kafka.properties").write_text("offsetsGroup=mine\n")
    return {"configFile": str(tmp_path / "kafka.properties")}


def test_foreach_batch_tells_the_offsets_of_its_batch(checkpoint, with_group):
    write = foreach_batch("offsets", **OPTIONS, **with_group, checkpointLocation=checkpoint)
    assert written(write, 3).context.offsets == {"source": {"0": 7}}


def test_a_transaction_tells_the_offsets_of_its_batch_where_it_is_decided(checkpoint, with_group):
    session = Session()
    given = OPTIONS | with_group
    with transaction("offsets", 3, **given, checkpointLocation=checkpoint) as t:
        t.write(Frame(session), **with_group)
    assert [f.context.offsets for f in session.saved] == [None, {"source": {"0": 7}}]


def test_a_group_without_the_checkpoint_is_an_error(with_group):
    with pytest.raises(ConfigError, match="offsetsGroup needs the option checkpointLocation"):
        foreach_batch("offsets", **OPTIONS, **with_group)(Frame(), 3)


def test_a_group_of_one_write_of_a_transaction_is_an_error(with_group):
    session = Session()
    with (
        pytest.raises(ConfigError, match="committed with the whole transaction"),
        transaction("offsets", 3, **OPTIONS) as t,
    ):
        t.write(Frame(session), **with_group)
    assert session.saved == []


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "a b", "a~b", "x" * 101])
def test_an_illegal_name_is_refused(name):
    with pytest.raises(ConfigError, match="the name given to foreach_batch is"):
        foreach_batch(name, **OPTIONS)
    with (
        pytest.raises(ConfigError, match="the name given to transaction is"),
        transaction(name, 0, **OPTIONS),
    ):
        pass


@pytest.mark.parametrize("key", ["txnAppId", "txnversion", "TXNVERSION", "txnContext"])
def test_what_it_sets_itself_is_refused(key):
    with pytest.raises(ConfigError, match=f"foreach_batch sets {key} itself"):
        foreach_batch("refused", **OPTIONS, **{key: "1"})


def test_another_guarantee_is_refused_and_its_own_is_taken():
    with pytest.raises(ConfigError, match="deliveryGuarantee is at-least-once"):
        foreach_batch("refused", **OPTIONS, deliveryGuarantee="at-least-once")
    foreach_batch("taken", **OPTIONS, deliveryguarantee="Exactly-Once")


def test_it_is_public_and_stays_a_function_when_its_module_is_imported():
    assert "foreach_batch" in spark_kafka_sink.__all__
    code = (
        "import spark_kafka_sink.datasource.foreach_batch, sys, spark_kafka_sink; "
        "assert callable(spark_kafka_sink.foreach_batch); "
        "assert 'pyspark' not in sys.modules and 'pyarrow' not in sys.modules"
    )
    run_python("-c", code)
