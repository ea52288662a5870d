"""A hint of planning for exactly-once works when it is followed. No Spark, no broker."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.base.errors import (
    CommitError,
    ConfigError,
    IllegalStateError,
    SupersededError,
)
from spark_kafka_sink.config.parsing import parse_sink_config
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan, prefix_of
from spark_kafka_sink.datasource.foreach_batch import transaction
from spark_kafka_sink.datasource.report.report_file import check_report_path
from spark_kafka_sink.datasource.write.task_identity import TaskIdentity
from spark_kafka_sink.transactions.commit_state import CommitState, Done
from tests.datasource.exactly_once.transaction_plans import STATE, STREAM, config
from tests.datasource.saved_frames import OPTIONS, Frame, Session, written

STREAMED = {"transactionalIdPrefix": "p"}
OF_GROUP = OPTIONS | {"offsetsGroup": "g"}


@pytest.fixture
def name() -> str:
    """A name that no other test has: this process keeps the last write of each name."""
    return f"hints-{uuid.uuid4().hex}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Callable[[str], str]:
    """The checkpoint of a query whose batch 3 ends at offset 7 of a partition."""

    def of(query: str) -> str:
        folder = tmp_path / query
        (folder / "offsets").mkdir(parents=True)
        (folder / "offsets" / "3").write_text('v1\n{}\n{"source":{"0":7}}')
        (folder / "metadata").write_text(f'{{"id":"{query}"}}')
        return str(folder)

    return of


def test_foreach_batch_sets_the_options_that_a_stream_refuses(name: str) -> None:
    given = config(txnAppId="a", txnVersion="1", **STREAMED)
    with pytest.raises(ConfigError) as raised:
        prefix_of(given, streaming=True)
    hint = "with foreachBatch, spark_kafka_sink.foreach_batch(name, ...) sets both"
    assert raised.value.hint == hint
    options = written(foreach_batch(name, **OPTIONS), 3).told
    assert (options["txnAppId"], options["txnVersion"]) == (name, 3)


def test_the_checkpoint_as_an_option_lets_a_group_go() -> None:
    with pytest.raises(ConfigError) as raised:
        prefix_of(config(offsetsGroup="g", **STREAMED), streaming=True)
    assert raised.value.hint == "set it with .option(...) on this write"
    given = config(offsetsGroup="g", checkpointLocation="/c", **STREAMED)
    assert prefix_of(given, streaming=True) == "p"


def test_foreach_batch_with_the_querys_checkpoint_takes_a_group(
    name: str, checkpoint: Callable[[str], str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        foreach_batch(name, **OF_GROUP)(Frame(), 3)
    hint = "give foreach_batch or transaction the query's own checkpointLocation, too"
    assert raised.value.hint == hint
    write = foreach_batch(name, **OF_GROUP, checkpointLocation=checkpoint("query-1"))
    assert written(write, 3).context.offsets == {"source": {"0": 7}}


def test_the_querys_own_checkpoint_takes_the_place_of_another_one(
    name: str, checkpoint: Callable[[str], str]
) -> None:
    session = Session({}, ("query-2", "run-1"))
    with pytest.raises(ConfigError) as raised:
        foreach_batch(name, **OF_GROUP, checkpointLocation=checkpoint("query-1"))(Frame(session), 3)
    assert str(raised.value.hint).startswith("give the write its query's checkpointLocation")
    foreach_batch(name, **OF_GROUP, checkpointLocation=checkpoint("query-2"))(Frame(session), 3)
    assert len(session.saved) == 1


def test_a_checkpoint_that_is_there_takes_the_place_of_a_wrong_path(
    name: str, checkpoint: Callable[[str], str]
) -> None:
    with pytest.raises(ConfigError) as raised:
        foreach_batch(name, **OF_GROUP, checkpointLocation="/no/such/checkpoint")(Frame(), 3)
    hint = "checkpointLocation must be given as an option, and be the query's own"
    assert str(raised.value.hint).startswith(hint)
    write = foreach_batch(name, **OF_GROUP, checkpointLocation=checkpoint("query-1"))
    assert written(write, 3).context.offsets == {"source": {"0": 7}}


def test_a_superseded_query_goes_on_under_another_prefix() -> None:
    task = TaskIdentity(query_id="query-1", run_id="old-run", batch_id=7)
    with pytest.raises(SupersededError) as raised:
        STREAM.is_done(task)
    assert "use a different prefix or name for each query" in str(raised.value.hint)
    assert replace(STREAM, key="other", state=CommitState()).is_done(task) is False


@pytest.mark.parametrize(
    "follow",
    [
        lambda plan: replace(plan, key="other", state=CommitState()),
        lambda plan: replace(plan, state=plan.state.forgotten(1)),  # by kprod txn reset
    ],
    ids=["another prefix", "reset"],
)
def test_another_checkpoint_goes_on_by_both_ways(
    follow: Callable[[TransactionPlan], TransactionPlan],
) -> None:
    done = (Done(6, (), "1" * 32),)
    plan = replace(STREAM, state=replace(STATE, done=done), digest="2" * 32)
    with pytest.raises(CommitError) as raised:
        plan.check_digest()
    hint = str(raised.value.hint)
    assert "for a new checkpoint choose a new transactionalIdPrefix or name" in hint
    assert "'kprod txn reset p' removes the old state" in hint
    follow(plan).check_digest()


def by_another_name(name: str, frames: list[Frame]) -> None:
    for number, frame in enumerate(frames):
        foreach_batch(f"{name}-{number}", **OPTIONS)(frame, 0)


def by_one_transaction(name: str, frames: list[Frame]) -> None:
    with transaction(f"{name}-both", 0, **OPTIONS) as t:
        for frame in frames:
            t.write(frame)


@pytest.mark.parametrize("follow", [by_another_name, by_one_transaction])
def test_two_writes_of_a_function_go_by_both_ways(
    name: str, follow: Callable[[str, list[Frame]], None]
) -> None:
    session = Session({}, ("query-1", "run-1"))
    frames = [Frame(session, plan=plan) for plan in (1, 2)]
    write = foreach_batch(name, **OPTIONS)
    write(frames[0], 0)
    with pytest.raises(ConfigError) as raised:
        write(frames[1], 0)
    hint = "give each write in a foreachBatch function a different name, or make them one"
    assert str(raised.value.hint).startswith(hint)
    session.saved.clear()
    follow(name, frames)
    assert [frame for frame in session.saved if frame in frames] == frames


def test_a_write_within_the_block_goes(name: str) -> None:
    session = Session()
    with transaction(name, 0, **OPTIONS) as t:
        t.write(Frame(session))
    late = Frame(session)
    with pytest.raises(IllegalStateError) as raised:
        t.write(late)
    hint = "all writes of a micro-batch belong into its 'with transaction(...)' block"
    assert raised.value.hint == hint
    with transaction(f"{name}-again", 0, **OPTIONS) as t:
        t.write(late)
    assert late in session.saved


def test_a_mounted_path_or_a_topic_takes_a_report(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        check_report_path("s3://bucket/reports")
    hint = "it is a file or a directory of the driver: mount a store (/Volumes/..., /dbfs/...)"
    assert str(raised.value.hint).startswith(f"{hint}, or use reportTopic")
    check_report_path(str(tmp_path))
    parse_sink_config(OPTIONS | {"reportTopic": "reports"})
