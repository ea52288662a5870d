"""``transaction``: what the writes of a block get, and what a block refuses. No Spark."""

from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.base.errors import CommitError, ConfigError, IllegalStateError
from spark_kafka_sink.datasource.foreach_batch import transaction
from spark_kafka_sink.datasource.write.write_context import WriteContext
from tests.datasource.saved_frames import OPTIONS, Frame, Session


def test_the_last_write_of_a_transaction_decides_them():
    session = Session({"sql.streaming.queryId": "query-1"})
    with transaction("both", 3, **OPTIONS) as t:
        t.write(Frame(session), topic="a")
        t.write(Frame(session), topic="b")
        assert len(session.saved) == 2, "nothing is decided before the block ends"
    contexts = [frame.context for frame in session.saved]
    ((run, token),) = {(c.run, c.token) for c in contexts}
    part = WriteContext(run, "query-1", token, known=True)
    second, last = replace(part, write=1), replace(part, writes=2)
    assert contexts == [part, second, last]
    assert [frame.told["topic"] for frame in session.saved] == ["a", "b", "t"]
    assert [frame.rows for frame in session.saved] == [3, 3, 0]
    for frame in session.saved:
        assert (frame.told["txnAppId"], frame.told["txnVersion"]) == ("both", 3)
        assert frame.told["deliveryGuarantee"] == "exactly-once"


def test_each_block_has_a_token_of_its_own():
    """By which the commit log knows the writes of a dead block from those of its successor."""
    session = Session()
    for _ in range(2):
        with transaction("again", 0, **OPTIONS) as t:
            t.write(Frame(session))
    tokens = [frame.context.token for frame in session.saved]
    assert tokens[0] == tokens[1] != tokens[2] == tokens[3]


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_failed_write_fails_the_block_even_when_swallowed(swallowed):
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
    contexts = [frame.context for frame in session.saved]
    assert [(c.writes, c.abort) for c in contexts] == [(None, False), (None, False), (2, True)]
    assert not contexts[-1].tasks_may_run, "Spark has ended those of the write that failed"


def raises_in_its_block(session):
    with transaction("raised", 0, **OPTIONS) as t:
        t.write(Frame(session))
        raise KeyError("theirs")


class Broken(Session):
    def range(self, rows):
        return Frame(self, fails=True, rows=rows)


@pytest.mark.parametrize("session", [Session(), Broken()], ids=["aborted", "the abort fails, too"])
def test_a_block_that_raises_aborts_what_it_wrote(session):
    """An abort that fails hides no error."""
    with pytest.raises(KeyError, match="theirs"):
        raises_in_its_block(session)
    assert [frame.context.abort for frame in session.saved] == [False, True]


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
    ends = [(c.writes, c.abort, c.tasks_may_run) for c in (f.context for f in session.saved)]
    assert ends == [(None, False, False), (2, True, True), (None, False, False)]


def test_writes_of_threads_are_parts_of_one_transaction():
    session = Session()
    with transaction("pool", 0, **OPTIONS) as t:
        threads = [threading.Thread(target=t.write, args=(Frame(session),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    *parts, last = (frame.context for frame in session.saved)
    assert {(c.token, c.writes) for c in parts} == {(last.token, None)}
    assert (len(parts), last.writes) == (8, 8)


def test_a_block_without_a_write_is_empty_and_keeps_its_run():
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
def test_options_that_a_transaction_sets_are_refused_for_a_write(key):
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


@pytest.mark.parametrize("name", ["", "a b", "a~b", "x" * 101])
def test_an_illegal_name_of_a_block_is_refused(name):
    with (
        pytest.raises(ConfigError, match="the name given to transaction is"),
        transaction(name, 0, **OPTIONS),
    ):
        pass


# --- one block at a time -----------------------------------------------------------------------


def test_a_nested_block_of_one_name_is_refused_before_it_writes():
    session = Session()
    with transaction("nested", 0, **OPTIONS) as t:
        t.write(Frame(session))
        with (
            pytest.raises(ConfigError, match="they have one name") as raised,
            transaction("nested", 0, **OPTIONS),
        ):
            pytest.fail("its block must not begin")
    places = re.findall(rf"transaction\('nested'\) at {__file__}:(\d+)", raised.value.message)
    assert len(set(places)) == 2, "both lines are named"
    assert [frame.context.writes for frame in session.saved] == [None, 1], "the first one goes on"
    with transaction("nested", 1, **OPTIONS):
        pass


def test_a_block_of_one_name_in_another_thread_is_refused():
    entered, leave, errors = threading.Event(), threading.Event(), []

    def block():
        with transaction("threads", 0, **OPTIONS):
            entered.set()
            assert leave.wait(30)

    first = threading.Thread(target=block, name="first")
    first.start()
    assert entered.wait(30)
    try:
        with transaction("threads", 0, **OPTIONS):
            pytest.fail("its block must not begin")
    except ConfigError as error:
        errors.append(error.message)
    leave.set()
    first.join(30)
    assert "in thread first" in errors[0]
    assert "in thread MainThread" in errors[0]


def test_foreach_batch_within_a_block_of_its_name_is_refused():
    session = Session()
    with transaction("mixed", 0, **OPTIONS) as t:
        t.write(Frame(session))
        with pytest.raises(ConfigError, match="they have one name"):
            foreach_batch("mixed", **OPTIONS)(Frame(session), 0)
    assert len(session.saved) == 2


@pytest.mark.parametrize(
    "other", [{"transactionalIdPrefix": "other"}, {"kafka.bootstrap.servers": "elsewhere:9092"}]
)
def test_blocks_that_are_decided_elsewhere_do_not_meet(other):
    with transaction("apart", 0, **OPTIONS), transaction("apart", 0, **(OPTIONS | other)):
        pass


def test_a_block_that_failed_does_not_keep_its_name():
    for _ in range(2):
        with pytest.raises(KeyError, match="theirs"):
            raises_in_its_block(Session())


# --- a number that another block has done ------------------------------------------------------


def of_query(plans, name="compared", number=0, run="run-1"):
    """A block of a query that writes DataFrames with these plans; gives its session."""
    session = Session({}, ("query-1", run))
    with transaction(name, number, **OPTIONS) as t:
        for plan in plans:
            t.write(Frame(session, plan=plan))
    return session


def test_the_same_frames_in_any_order_are_a_replay():
    """Threads can't promise an order."""
    of_query([1, 2, 2], "any-order")
    assert len(of_query([2, 1, 2], "any-order").saved) == 4


@pytest.mark.parametrize("plans", [[3], [1, 3], [1, 1], [1], []])
def test_other_frames_under_a_number_that_is_done_are_refused(plans):
    """In a stream the second block of one name would count as done, and its rows be lost."""
    name = f"other {'-'.join(map(str, plans))}".replace(" ", ".")
    of_query([1, 2], name)
    if plans:
        with pytest.raises(ConfigError, match="wrote another DataFrame in micro-batch 0"):
            of_query(plans, name)
    else:
        of_query(plans, name)  # it says nothing of rows
    of_query([3], name, number=1)
    of_query([4], name, number=1, run="run-2")  # a restart: the log compares rows


def test_nothing_of_a_refused_frame_is_written():
    of_query([1], "early")
    session = Session({}, ("query-1", "run-1"))
    with (
        pytest.raises(ConfigError, match="wrote another DataFrame"),
        transaction("early", 0, **OPTIONS) as t,
    ):
        t.write(Frame(session, plan=2))
    assert [frame.context.abort for frame in session.saved] == [True]


# --- what one write may have of its own --------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        {"kafka.bootstrap.servers": "elsewhere:9092"},
        {"transactionalIdPrefix": "other"},
        {"commitLogTopic": "__other"},
        {"kafka.transaction.timeout.ms": 20_000},
        {"verifyReplays": "false"},
        {"offsetsGroup": "group"},
        {"configFile": "/etc/kafka.properties"},
        {"KAFKA.LINGER.MS": 8},
    ],
    ids=lambda option: next(iter(option)),
)
def test_an_option_that_would_lead_a_write_elsewhere_is_refused(option):
    """Its transactions would be prepared where the block is not decided, and stay open."""
    session = Session()
    with (
        pytest.raises(ConfigError, match="may differ in topic, columns and formats only"),
        transaction("strict", 0, **OPTIONS) as t,
    ):
        t.write(Frame(session), **option)
    assert session.saved == []


def test_topic_columns_and_formats_of_one_write_are_taken():
    session = Session()
    mine = {"Topic": "a", "valueColumns": "*", "valueFormat": "json", "onNullValue": "skip"}
    with transaction("free", 0, **OPTIONS) as t:
        t.write(Frame(session), **mine, **{"kafka.linger.ms": "7"})
    assert session.saved[0].told.items() >= mine.items()


# --- after its end -----------------------------------------------------------------------------


def test_a_write_after_the_end_sends_nothing_and_says_why():
    session = Session()
    with transaction("late", 0, **OPTIONS) as t:
        t.write(Frame(session))
    with pytest.raises(IllegalStateError, match="is committed already: a write comes after"):
        t.write(Frame(session))
    with pytest.raises(IllegalStateError, match="is committed already: it can't be committed"):
        t.commit()
    t.abort()
    assert len(session.saved) == 2
    with pytest.raises(KeyError, match="theirs"), transaction("late", 1, **OPTIONS) as t:
        raise KeyError("theirs")
    for late in (t.commit, lambda: t.write(Frame(session))):
        with pytest.raises(IllegalStateError, match="is aborted"):
            late()
    assert len(session.saved) == 2


def test_a_write_after_a_failed_one_sends_nothing():
    """All of its rows would be sent, only to be aborted."""
    session = Session()

    def block():
        with transaction("f", 0, **OPTIONS) as t:
            with pytest.raises(OSError, match="the write broke"):
                t.write(Frame(session, fails=True))
            with pytest.raises(CommitError, match="a write failed; this one sends nothing"):
                t.write(Frame(session))

    with pytest.raises(CommitError, match="is aborted: a write failed"):
        block()
    assert [frame.rows for frame in session.saved] == [3, 0]


def test_a_commit_within_the_block_is_its_only_one():
    session = Session()
    with transaction("own", 0, **OPTIONS) as t:
        t.write(Frame(session))
        t.commit()
    assert [frame.context.writes for frame in session.saved] == [None, 1]


def test_an_abort_says_whether_the_commit_of_its_block_was_begun():
    """Then the block may be committed: the commit of a write that raises may have succeeded."""
    for fails, wanted in ((True, False), (False, True)):
        session = Broken() if wanted else Session()

        def block(session=session, fails=fails):
            with transaction("begun", int(fails), **OPTIONS) as t:
                t.write(Frame(session, fails=fails))

        with pytest.raises(OSError, match="the write broke"):
            block()
        last = session.saved[-1].context
        assert (last.abort, last.may_be_decided) == (True, wanted)


def test_an_abort_within_the_block_is_no_success():
    session = Session()

    def block():
        with transaction("given-up", 0, **OPTIONS) as t:
            t.write(Frame(session))
            t.abort()

    with pytest.raises(IllegalStateError, match="is aborted"):
        block()
    assert [frame.context.abort for frame in session.saved] == [False, True]


def test_an_interrupted_write_may_still_have_tasks():
    """Spark's job goes on when Python is interrupted: the abort must look twice."""
    session = Session()

    class Interrupted(Frame):
        def save(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), transaction("interrupted", 0, **OPTIONS) as t:
        t.write(Interrupted(session))
    assert [frame.context.tasks_may_run for frame in session.saved] == [True]
