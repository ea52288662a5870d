"""The hint of a refused ``kprod txn`` command works when it is followed, on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from spark_kafka_sink.base.errors import CommitLogError
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.transactions.commit_state import CommitState, Phase
from tests.transactions.open_transactions import open_transactions, task_that_wrote
from tests.transactions.operator_stage import Stage, names

DAMAGES = {
    "another client's record": {"": b"no state"},
    "a lost piece": {"": b'{"part":0,"of":2,"revision":1}\n{'},
    "another key's transaction": {
        "": CommitState(1, "run-1").encode()[:-1]
        + b',"batch":0,"transactions":{"other~run~g1.w~":[[0,1,1,2]]}}'
    },
}


@pytest.fixture(params=DAMAGES.values(), ids=DAMAGES)
def damaged(request: pytest.FixtureRequest, stage: Stage) -> Stage:
    """The records of the key of the stage are not a state."""
    records = {stage.prefix.encode() + end.encode(): v for end, v in request.param.items()}
    session = stage.log.open(stage.prefix, stage.soon())
    session._writer.commit(lambda _: records, stage.soon(), lambda _: None)
    return stage


def refused(stage: Stage, *arguments: str, code: int = 1, log: str = "") -> str:
    """By a command that only reads."""
    return stage.run(*arguments, code=code, log=log).stderr


def test_a_reset_by_force_forgets_a_damaged_key(damaged: Stage) -> None:
    key = damaged.prefix
    command = f"kprod txn reset {key} --force"
    assert f"'{command}' forgets the key" in refused(damaged, "describe", key)
    for name in ("commit", "reset"):
        assert f"'{command}' forgets the key" in damaged.refused(name, key)
    with pytest.raises(CommitLogError):
        damaged.read()
    dry = damaged.json(*command.split()[2:], "--dry-run")
    assert (dry["changed"], dry["key"]["key"]) == (False, key)
    assert dry["key"]["error"].startswith("the commit log's ")
    shown = " ".join(damaged.run(*command.split()[2:], answer="y\n").output.split())
    assert "Whether its last batch is committed is not known." in shown
    assert f"'{key}' is forgotten." in shown
    assert damaged.read() is None
    damaged.write(damaged.state())
    assert damaged.json("describe", key)["keys"][0]["lastDone"] == 7


def test_a_reset_by_force_keeps_the_state_of_a_newer_version(stage: Stage) -> None:
    newer = stage.state().encode().replace(b'"format":1', b'"format":9')
    session = stage.log.open(stage.prefix, stage.soon())
    key = stage.prefix.encode()
    session._writer.commit(lambda _: {key: newer}, stage.soon(), lambda _: None)
    told = stage.refused("reset", stage.prefix, "--force")
    assert "a stream that ran with a newer version must continue with it" in told
    with pytest.raises(CommitLogError, match="by a newer spark-kafka-sink"):
        stage.read()


def test_list_shows_the_keys_to_who_gave_an_id(stage: Stage) -> None:
    (one,) = stage.open(1)
    stage.write(stage.state())
    told = refused(stage, "describe", one.transactional_id, code=2)
    assert "that looks like a transactional id; 'kprod txn list' shows the keys" in told
    (shown,) = stage.json("list", stage.prefix)["keys"]
    assert stage.json("describe", shown["key"])["keys"][0]["lastDone"] == 7


def test_list_shows_ids_of_tasks_and_fence_ends_another_clients(stage: Stage) -> None:
    (one,) = stage.open(1, run="run-x")
    stage.write(stage.state())
    other = f"{stage.prefix}-other"
    open_transactions(stage.client, [other], TopicPartition(stage.topic, 0))
    told = stage.refused("abort", other, code=2)
    assert "'kprod txn list PREFIX' shows them; 'kprod txn fence' ends another client's" in told
    (shown,) = stage.json("list", stage.prefix)["open"]
    assert shown["transactionalId"] == one.transactional_id
    stage.run("abort", shown["transactionalId"], "--yes")
    stage.run("fence", other, "--yes")
    assert stage.still_open() == set()


def test_blockers_and_list_show_the_ids_that_can_be_fenced(stage: Stage) -> None:
    other = f"{stage.prefix}-other"
    told = stage.refused("fence", other)
    assert "'kprod txn blockers' and 'kprod txn list' show the ids of open ones" in told
    topic = stage.kafka.unique_topic("blocked")
    with task_that_wrote(stage.kafka.bootstrap, other, topic, "row"):
        assert other in {t["transactionalId"] for t in stage.json("list")["open"]}
        assert other in stage.run("blockers", topic, code=3).stdout
        stage.run("fence", other, "--yes")
    assert other not in {t["transactionalId"] for t in stage.json("list")["open"]}


def test_an_id_of_a_task_is_ended_by_abort_and_not_by_fence(stage: Stage) -> None:
    (one,) = stage.open(1, run="run-x")
    stage.write(stage.state())
    told = stage.refused("fence", one.transactional_id, code=2)
    assert "'kprod txn abort' ends it, after checking the commit log" in told
    stage.run("abort", one.transactional_id, "--yes")
    assert stage.still_open() == set()


def as_decided(stage: Stage, ids: list[str]) -> None:
    stage.run("commit", stage.prefix, "--yes")
    state = stage.read()
    assert state is not None
    assert (state.last_done, state.phase) == (8, Phase.DONE)


def by_force(stage: Stage, ids: list[str]) -> None:
    stage.run("abort", *ids, "--force", "--yes")


@pytest.mark.parametrize("way", [as_decided, by_force])
def test_a_transaction_of_a_decision_is_ended_by_both_ways(
    stage: Stage, way: Callable[[Stage, list[str]], None]
) -> None:
    decided = stage.open(2)
    stage.write(stage.state(decided))
    told = stage.refused("abort", *names(decided))
    assert f"'kprod txn commit {stage.prefix}' ends it as decided. With --force it is" in told
    way(stage, names(decided))
    assert stage.still_open() == set()


def test_an_owners_transaction_is_aborted_by_force(stage: Stage) -> None:
    own = stage.open(1)
    stage.write(stage.state())
    told = stage.refused("abort", *names(own))
    assert "If it is never started again, --force aborts them" in told
    by_force(stage, names(own))
    assert stage.still_open() == set()


def test_a_batch_that_is_decided_is_committed_and_not_resolved(stage: Stage) -> None:
    stage.write(stage.state(stage.open(2)))
    told = stage.refused("resolve", stage.prefix, "--batch", "8", "--as", "done")
    assert f"'kprod txn commit {stage.prefix}' commits it, or finds that it is PARTIAL" in told
    as_decided(stage, [])


def test_the_key_of_a_stream_and_of_a_job_are_as_the_hint_has_them(stage: Stage) -> None:
    told = refused(stage, "describe", f"{stage.prefix}~no-such-job")
    assert "a stream's key is its transactionalIdPrefix, a batch job's is transactional" in told
    for key in (stage.prefix, f"{stage.prefix}~app"):
        stage.write(stage.state(), key)
        assert stage.json("describe", key)["keys"][0]["key"] == key


def test_another_topic_of_the_log_is_named_by_its_option(stage: Stage) -> None:
    stage.write(stage.state())
    missing = f"{stage.prefix}-log"
    told = refused(stage, "describe", stage.prefix, log=missing)
    assert "--log-topic names the topic of the option commitLogTopic" in told
    stage.run("describe", stage.prefix, log=stage.log_topic)
