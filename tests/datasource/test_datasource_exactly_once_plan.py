"""What planning ships for exactly-once, and which task may write. No Spark, no broker."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from pyspark.cloudpickle import dumps as cloud_dumps
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.config import SinkConfig
from spark_kafka_sink.datasource.source import KprodDataSource
from spark_kafka_sink.datasource.transaction_plan import TransactionPlan, prefix_of
from spark_kafka_sink.datasource.write_task import TaskIdentity
from spark_kafka_sink.errors import CommitError, ConfigError, IllegalStateError, SupersededError

SCHEMA = StructType([StructField("value", StringType())])
#: Nobody listens there.
OPTIONS = {
    "kafka.bootstrap.servers": "127.0.0.1:1",
    "topic": "t",
    "kafka.max.block.ms": "200",
    "deliveryGuarantee": "exactly-once",
    "preflight": "off",
}
STREAM = TransactionPlan(
    key="p", prefix="p", job="", generation=3, last_done=6, query_id="query-1",
    superseded=("old-run",), txn_version=None, transaction_timeout_ms=900_000, margin_ms=90_000,
    log_topic="log",
)  # fmt: skip
JOB = replace(STREAM, key="p~app", job="j0b", query_id="", superseded=(), txn_version=7)


def task(batch_id: int, query_id: str = "query-1", run_id: str = "run-2") -> TaskIdentity:
    return TaskIdentity(query_id=query_id, run_id=run_id, batch_id=batch_id)


def config(**options: str) -> SinkConfig:
    return SinkConfig.parse(OPTIONS | options)


# --- which task may write ----------------------------------------------------------------------


def test_the_next_micro_batch_is_written():
    assert STREAM.is_done(task(7)) is False


def test_a_micro_batch_that_is_done_is_not_written_again():
    assert STREAM.is_done(task(6)) is True


@pytest.mark.parametrize("number", [0, 5, 8, 1000])
def test_a_micro_batch_out_of_turn_is_refused_with_both_numbers(number):
    with pytest.raises(CommitError) as raised:
        STREAM.is_done(task(number))
    assert "batch 6 of query query-1" in raised.value.message
    assert f"batch {number}" in raised.value.message
    assert "kprod txn reset p" in raised.value.hint


@pytest.mark.parametrize("number", [0, 6, 7])
def test_another_query_is_refused_with_both_ids(number):
    with pytest.raises(CommitError) as raised:
        STREAM.is_done(task(number, query_id="query-2"))
    for told in ("query-1", "query-2", "batch 6", f"batch {number}"):
        assert told in raised.value.message
    assert "kprod txn reset p" in raised.value.hint


def test_a_run_that_was_superseded_is_refused_before_it_writes():
    with pytest.raises(SupersededError, match="run old-run of query query-1") as raised:
        STREAM.is_done(task(7, run_id="old-run"))
    assert "transactionalIdPrefix" in raised.value.hint


def test_under_a_new_key_a_stream_may_begin_anywhere():
    """A checkpoint that was written with at-least-once before goes on with exactly-once."""
    new = replace(STREAM, generation=0, query_id="", last_done=-1, superseded=())
    assert new.is_done(task(0)) is False
    assert new.is_done(task(57)) is False


@pytest.mark.parametrize(
    "changes", [{"batch_id": -1}, {"run_id": ""}, {"run_id": "a job group~of somebody's"}]
)
def test_a_stream_whose_task_is_not_told_where_it_belongs_is_refused(changes):
    with pytest.raises(IllegalStateError, match="which run and micro-batch"):
        STREAM.is_done(replace(task(7), **changes))


@pytest.mark.parametrize(("version", "skips"), [(5, True), (6, True), (7, False), (None, False)])
def test_a_version_that_is_done_is_skipped(version, skips):
    plan = replace(JOB, txn_version=version)
    assert plan.skips is skips
    assert plan.is_done(TaskIdentity()) is skips


def test_a_batch_job_inside_of_a_foreach_batch_is_a_batch_job():
    assert replace(JOB, query_id="").is_done(task(3, "some-query", "some-run")) is False


@pytest.mark.parametrize("version", [0, 5])
def test_an_older_micro_batch_in_a_foreach_batch_is_another_checkpoints(version):
    plan = replace(JOB, txn_version=version)
    with pytest.raises(CommitError) as raised:
        plan.is_done(task(version, "query-9", "run-9"))
    for told in ("'p~app' is at version 6", "query-9", f"micro-batch {version}"):
        assert told in raised.value.message
    assert "a name that was never used" in raised.value.hint


@pytest.mark.parametrize("version", [6, 7, 900])
def test_in_a_foreach_batch_another_query_is_refused_whatever_its_version(version):
    """Two queries share a name: what one has done the other has not, whatever the numbers say."""
    plan = replace(JOB, txn_version=version, query_id="query-1")
    with pytest.raises(CommitError) as raised:
        plan.is_done(task(version, "query-2"))
    for told in ("'p~app' is at version 6 of query query-1", "query-2", f"micro-batch {version}"):
        assert told in raised.value.message
    assert "a name that was never used" in raised.value.hint
    assert plan.is_done(task(version, "query-1")) is (version == 6)
    assert plan.is_done(TaskIdentity()) is (version == 6), "a job that is of no query"


def test_the_last_micro_batch_of_a_foreach_batch_comes_again_and_own_versions_may_be_any():
    assert replace(JOB, txn_version=6).is_done(task(6)) is True
    assert replace(JOB, txn_version=7).is_done(task(7)) is False
    assert replace(JOB, txn_version=5).is_done(task(900)) is True, "its user counts otherwise"


def test_a_plan_travels_and_says_how_long_a_transaction_may_take():
    copy = pickle.loads(cloud_dumps(STREAM))
    assert copy == STREAM
    assert (copy.time.timeout_ms, copy.time.margin_ms, copy.time.generation) == (900_000, 90_000, 3)


# --- options by mode ---------------------------------------------------------------------------


def test_a_batch_job_has_a_default_prefix_and_a_stream_must_name_its_own():
    assert prefix_of(config(), streaming=False) == "kprod"
    assert prefix_of(config(transactionalIdPrefix="mine"), streaming=True) == "mine"
    with pytest.raises(ConfigError) as raised:
        prefix_of(config(), streaming=True)
    assert "needs the option transactionalIdPrefix" in raised.value.message
    assert "a restarted query must find its own" in raised.value.hint


@pytest.mark.parametrize("bad", ["a~b", "a b", "ä", "a/b", "x" * 101])
@pytest.mark.parametrize("streaming", [True, False])
def test_an_illegal_prefix_is_named(bad, streaming):
    with pytest.raises(ConfigError, match="transactionalIdPrefix is "):
        prefix_of(config(transactionalIdPrefix=bad), streaming=streaming)


def test_an_illegal_app_is_named():
    with pytest.raises(ConfigError, match="txnAppId is 'a~b'"):
        prefix_of(config(txnAppId="a~b", txnVersion="1"), streaming=False)


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


def test_planning_without_a_broker_fails_before_any_task():
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        data_source().writer(SCHEMA, False)
