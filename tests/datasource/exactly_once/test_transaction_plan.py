"""What planning ships for exactly-once, and which task may write. No Spark, no broker."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from pyspark.cloudpickle import dumps as cloud_dumps
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.base.errors import (
    CommitError,
    ConfigError,
    IllegalStateError,
    SupersededError,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import _run, check_run, prefix_of
from spark_kafka_sink.datasource.source import KprodDataSource
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.datasource.write.write_context import WriteContext
from spark_kafka_sink.transactions.commit_state import CommitState, Done, Payload
from spark_kafka_sink.transactions.ownership import Numbering
from tests.datasource.exactly_once.transaction_plans import (
    NAMED_JOB,
    OPTIONS,
    STATE,
    STREAM,
    config,
)

SCHEMA = StructType([StructField("value", StringType())])


def task(batch_id: int, query_id: str = "query-1", run_id: str = "run-2") -> TaskIdentity:
    return TaskIdentity(query_id=query_id, run_id=run_id, batch_id=batch_id)


def test_an_offsets_group_is_refused_without_a_micro_batch():
    """A job has no sources whose offsets Spark logs, whatever checkpoint it names."""
    given = config(txnAppId="a", txnVersion="1", offsetsGroup="g", checkpointLocation="/c")
    with pytest.raises(ConfigError, match="offsetsGroup needs") as refused:
        prefix_of(given, streaming=False)
    assert "for streams, and for foreach_batch and transaction" in refused.value.hint


# --- which task may write ----------------------------------------------------------------------


NEW_KEY = replace(STREAM, state=CommitState())


@pytest.mark.parametrize(
    ("plan", "number", "done"),
    [
        (STREAM, 6, True),
        (STREAM, 7, False),
        # Left out, or not? The state may be a deposed leader's, which does not know the newest.
        (STREAM, 8, False),
        (STREAM, 1000, False),
        # Its checkpoint was written with at-least-once before.
        (NEW_KEY, 0, False),
        (NEW_KEY, 57, False),
    ],
)
def test_a_stream_writes_what_is_not_known_to_be_done(plan, number, done):
    assert plan.is_done(task(number)) is done


@pytest.mark.parametrize(
    ("number", "query"),
    [(0, "query-1"), (5, "query-1"), (0, "query-2"), (6, "query-2"), (7, "query-2")],
)
def test_another_number_or_query_is_refused_with_both(number, query):
    with pytest.raises(CommitError) as raised:
        STREAM.is_done(task(number, query))
    assert "batch 6 of query query-1" in raised.value.message
    assert f"batch {number}" in raised.value.message
    assert query in raised.value.message
    assert "two queries share a transactionalIdPrefix" in str(raised.value)
    assert "kprod txn reset p" in raised.value.hint


def test_a_run_that_was_superseded_is_refused_before_it_writes():
    with pytest.raises(SupersededError, match="run old-run must stop") as raised:
        STREAM.is_done(task(7, run_id="old-run"))
    assert "run run-2 owns the key" in raised.value.message
    assert "transactionalIdPrefix" in raised.value.hint


@pytest.mark.parametrize(
    "changes", [{"batch_id": -1}, {"run_id": ""}, {"run_id": "a job group~of somebody's"}]
)
def test_a_stream_task_without_its_query_is_refused(changes):
    with pytest.raises(IllegalStateError, match="the run and the micro-batch"):
        STREAM.is_done(replace(task(7), **changes))


@pytest.mark.parametrize(
    ("numbering", "number", "skips"),
    [
        *((Numbering.VERSIONS, n, n < 7) for n in (5, 6, 7, 900)),
        *((Numbering.MICRO_BATCHES, n, n < 7) for n in (6, 7)),
        # It is not asked for again, so whatever the log says of its key is of itself.
        *((Numbering.ONCE, n, False) for n in (5, 6, 7)),
    ],
)
def test_a_job_skips_what_is_done_under_its_number(numbering, number, skips):
    context = WriteContext("run-f", "query-1")
    plan = replace(NAMED_JOB, numbering=numbering, context=context, number=number)
    assert plan.skips is skips
    assert plan.is_done(TaskIdentity()) is skips


def test_a_done_micro_batch_that_nothing_identifies_is_an_error():
    """Another DataFrame of as many rows and bytes was dropped as a replay."""
    context = WriteContext("run-f")
    plan = replace(NAMED_JOB, numbering=Numbering.MICRO_BATCHES, context=context, number=6)
    with pytest.raises(CommitError, match="whether this is the same write again can't be") as told:
        plan.check_job()
    assert "verifyReplays=false" in told.value.hint
    replace(plan, context=replace(context, known=True)).check_job()
    replace(plan, context=replace(context, abort=True, writes=1)).check_job()
    replace(plan, verify=False).check_job()
    replace(plan, number=7).check_job()


def test_a_version_that_is_too_old_to_be_known_is_an_error():
    """It was dropped as done, and save() succeeded without having written anything."""
    for number in (0, 5):
        plan = replace(NAMED_JOB, number=number)
        with pytest.raises(CommitError, match=r"'p~app' is older than each version .* \(6 to 6\)"):
            plan.check_job()
        replace(plan, verify=False).check_job()
        assert plan.skips, "with verifyReplays=false it is dropped"
    for number in (6, 7, 900):
        replace(NAMED_JOB, number=number).check_job()


def test_a_step_is_refused_if_its_key_has_another_generation():
    NAMED_JOB.check_job(NAMED_JOB.state.generation)
    with pytest.raises(SupersededError, match=r"has taken over, .* \(generation 3, not 2\)"):
        NAMED_JOB.check_job(2)
    with pytest.raises(CommitError, match=r"\(generation 3, not 4\)"):
        NAMED_JOB.check_job(4)
    done = replace(NAMED_JOB.state, done=(Done(6, (Payload(1, 2, "t"),)),))
    replace(NAMED_JOB, number=6, state=done).check_job(2)  # so it will write nothing


def test_a_job_ignores_the_local_properties_of_its_thread():
    """A job runs inside of a foreachBatch, or beside one: its own context says who writes."""
    for identity in (TaskIdentity(), task(3, "some-query", "old-run"), task(6), task(900)):
        assert NAMED_JOB.is_done(identity) is False
        assert replace(NAMED_JOB, number=6).is_done(identity) is True


def test_an_unknown_or_owning_run_may_write_a_superseded_may_not():
    check_run("p", "run-2", STATE)
    check_run("p", "nobody-knows-it", STATE)
    check_run("p", "run-2", CommitState())
    with pytest.raises(SupersededError, match="'p'"):
        check_run("p", "old-run", STATE)


def test_an_aborted_run_is_told_so_unless_another_took_its_place():
    aborted = STATE.with_aborted_run(STATE.run_id, 1)
    with pytest.raises(CommitError, match="was aborted, and commits nothing any more") as told:
        check_run("p", STATE.run_id, aborted)
    assert type(told.value) is CommitError
    with pytest.raises(SupersededError, match="run run-9 owns the key"):
        check_run("p", STATE.run_id, aborted.taken_over("run-9", "query", 1))


@pytest.mark.parametrize("is_owned", [False, True])
def test_the_error_of_an_aborted_run_claims_no_take_over(is_owned: bool) -> None:
    """Another run was aborted after it, or the owner has been there all the time."""
    state = STATE.with_aborted_run("run-7", 1)
    if not is_owned:
        state = state.with_aborted_run("run-8", 1).with_aborted_run(STATE.run_id, 1)
    with pytest.raises(SupersededError) as told:
        check_run("p", "run-7", state)
    assert "another run has taken over 'p', or run run-7 was aborted" in told.value.message
    owner = "run run-2 owns the key" if is_owned else "no run owns the key"
    assert owner in told.value.message


def test_a_plan_travels_and_says_how_long_a_transaction_may_take():
    for plan in (STREAM, NAMED_JOB):
        copy = pickle.loads(cloud_dumps(plan))
        assert copy == plan
        time = copy.time
        assert (time.timeout_ms, time.margin_ms) == (900_000, 90_000)
        assert time.generation == 3


# --- options by mode ---------------------------------------------------------------------------


def test_a_job_has_a_default_prefix_and_a_stream_must_have_one():
    assert prefix_of(config(), streaming=False) == "kprod"
    assert prefix_of(config(transactionalIdPrefix="mine"), streaming=True) == "mine"
    with pytest.raises(ConfigError) as raised:
        prefix_of(config(), streaming=True)
    assert "needs the option transactionalIdPrefix" in raised.value.message
    assert "also after a restart" in raised.value.hint


@pytest.mark.parametrize("bad", ["a~b", "a b", "ä", "a/b", "x" * 101])
@pytest.mark.parametrize("streaming", [True, False])
def test_an_illegal_prefix_or_app_is_named(bad, streaming):
    with pytest.raises(ConfigError, match="transactionalIdPrefix is "):
        prefix_of(config(transactionalIdPrefix=bad), streaming=streaming)
    with pytest.raises(ConfigError, match="txnAppId is '"):
        prefix_of(config(txnAppId=bad, txnVersion="1"), streaming=False)


def test_a_stream_counts_by_itself_and_foreach_batch_is_named():
    with pytest.raises(ConfigError) as raised:
        prefix_of(config(txnAppId="a", txnVersion="1", transactionalIdPrefix="p"), streaming=True)
    assert "spark_kafka_sink.foreach_batch" in raised.value.hint


def data_source(**options: str) -> KprodDataSource:
    return KprodDataSource(CaseInsensitiveDict(OPTIONS | options))


def test_the_mode_is_checked_at_planning_and_before_commit_alike():
    for source in (data_source(), pickle.loads(cloud_dumps(data_source()))):
        with pytest.raises(ConfigError, match="needs the option transactionalIdPrefix"):
            source.streamWriter(SCHEMA, False)


def test_before_a_streams_commit_no_broker_is_asked():
    travelled = pickle.loads(cloud_dumps(data_source(transactionalIdPrefix="p")))
    assert travelled.streamWriter(SCHEMA, False).plan.transactions is None


# --- a batch that runs again -------------------------------------------------------------------

DONE = replace(STATE, done=(Done(6, (Payload(3, 30, "t"),), "digest-6"),))


def test_a_batch_that_is_known_by_its_digest_is_not_read_again():
    known = replace(STREAM, state=DONE, digest="digest-6")
    assert known.is_done(task(6)) is True
    assert known.counts_replays is False
    assert replace(known, digest="").counts_replays is True
    assert replace(STREAM, digest="digest-6").counts_replays is True, "0.1 noted no digest"
    assert replace(known, digest="", verify=False).counts_replays is False


@pytest.mark.parametrize("number", [6, 7])
def test_a_checkpoint_with_other_offsets_is_refused(number):
    """Also for the next batch: a copy went another way before it."""
    other = replace(STREAM, state=DONE, digest="other")
    with pytest.raises(CommitError, match="other rows under a done number") as raised:
        other.is_done(task(number))
    assert "batch 6 of 'p'" in raised.value.message
    assert "kprod txn reset p" in raised.value.hint


# --- the run of a version ----------------------------------------------------------------------


def test_the_versions_of_one_driver_are_one_run():
    """So that its workers reuse their ids; another driver takes over, as an aborted run does."""
    nobody = CommitState()
    first = _run(Numbering.VERSIONS, "j0a", nobody, "driver1")
    assert first == "driver1-j0a"
    owned = CommitState(generation=1, run_id=first)
    assert _run(Numbering.VERSIONS, "j0b", owned, "driver1") == first
    assert _run(Numbering.VERSIONS, "j0b", owned, "driver2") == "driver2-j0b"
    aborted = owned.with_aborted_run(first, 1)
    assert _run(Numbering.VERSIONS, "j0b", aborted, "driver1") == "driver1-j0b"


def test_a_job_without_a_known_driver_is_a_run_of_its_own():
    owned = CommitState(generation=1, run_id="driver1-j0a")
    assert _run(Numbering.ONCE, "j0b", owned, "driver1") == "j0b"
    assert _run(Numbering.VERSIONS, "j0b", owned, "") == "j0b"
