"""``kprod txn`` on a real broker: what each command shows, changes and refuses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.admin.transaction_description import TransactionState
from spark_kafka_sink.base.errors import KafkaError, SupersededError
from spark_kafka_sink.producer.producer_record import ProducerRecord
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.commit_state import CommitState, Done, Payload, Phase
from spark_kafka_sink.transactions.transactional_ids import TransactionalId
from tests.real_kafka import Consumed, RealKafka
from tests.transactions.open_transactions import fence, open_transactions, task_that_wrote
from tests.transactions.operator_stage import Stage, names
from tests.waiting import wait_for

Json = dict[str, Any]


OPEN_OR_ENDING = {TransactionState.ONGOING, TransactionState.PREPARE_ABORT}
#: Its markers may not be written yet.
ABORTED = {TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT}
COMMITTED = {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}


# -- list, describe -------------------------------------------------------------------------------


def test_list_shows_open_transactions_of_exactly_the_prefix(stage: Stage) -> None:
    ours = stage.open(2)
    old = stage.open(1, run="run-0")
    job = stage.open(1, run="job", name="job")
    other = f"{stage.prefix}.b"
    others = open_transactions(stage.client, [f"{other}~r~g2.w~0"], TopicPartition(stage.topic, 0))
    stage.write(stage.state(ours, superseded=("run-0",)))
    stage.write(CommitState(generation=1, run_id="a", last_done=20260101), f"{stage.prefix}~app")
    stage.write(CommitState(generation=1, run_id="b"), other)
    found = stage.json("list", stage.prefix)
    listed = {t["transactionalId"]: t for t in found["open"]}
    assert sorted(listed) == sorted(names(ours + old + job))
    first = listed[ours[0].transactional_id]
    assert first["partitions"] == {stage.topic: [0]}
    assert (first["producerId"], first["epoch"]) == (ours[0].producer_id, ours[0].producer_epoch)
    assert first["state"] == "Ongoing"
    assert 0 <= first["ageMs"] < 60_000
    assert (first["run"], first["runIs"]) == ("run-1", "owner")
    assert first["decided"] == {"key": stage.prefix, "batch": 8}
    assert listed[old[0].transactional_id]["runIs"] == "superseded"
    assert listed[job[0].transactional_id]["runIs"] == "not in the log"
    assert [(k["key"], k["phase"], k["batch"], k["lastDone"]) for k in found["keys"]] == [
        (stage.prefix, "DECIDED", 8, 7),
        (f"{stage.prefix}~app", "DONE", None, 20260101),
    ]
    text = stage.run("list", stage.prefix).stdout
    for name in (*names(ours), "DECIDED", "superseded", f"{stage.topic}: 0", "run-1"):
        assert name in text
    fence(stage.client, names(others))


def test_list_creates_no_log(stage: Stage) -> None:
    missing = f"{stage.prefix}-log"
    result = stage.run("list", stage.prefix, log=missing)
    assert "No transaction" in result.stdout
    assert f"the topic {missing} is missing" in result.stdout
    # Under another topic anything may be decided, so that nothing is changed either.
    refused = stage.run("sweep", stage.prefix, "--yes", log=missing, code=1)
    assert "the topic of the commit log does not exist" in refused.stderr
    assert missing not in topics_of(stage.kafka)


def topics_of(kafka: RealKafka) -> set[str]:
    from confluent_kafka.admin import AdminClient

    return set(AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics)


def test_describe_shows_the_outcome_of_each_decided_transaction(stage: Stage) -> None:
    """Committed, open, aborted by the broker, and forgotten."""
    committed, open_, lost = stage.open(3)
    forgotten = replace(open_, transactional_id=f"{stage.prefix}~run-1~g2.w~99")
    stage.write(stage.state((committed, open_, lost, forgotten)))
    stage.client.end([committed], committed=True, deadline_ms=stage.soon())
    stage.client.end([lost], committed=False, deadline_ms=stage.soon())
    (key,) = stage.json("describe", stage.prefix)["keys"]
    assert (key["phase"], key["batch"], key["runId"], key["generation"]) == (
        *("DECIDED", 8, "run-1", 2),
    )
    assert {t["transactionalId"]: t["outcome"] for t in key["transactions"]} == {
        committed.transactional_id: "committed",
        open_.transactional_id: "open",
        lost.transactional_id: "lost",
        forgotten.transactional_id: "unknown",
    }
    text = stage.run("describe", stage.prefix).stdout
    assert "1 committed, 1 open, 1 lost, 1 unknown" in text
    assert "TRANSACTIONAL_ID_NOT_FOUND" in text


def test_a_key_that_is_not_there_names_those_that_are(stage: Stage) -> None:
    stage.write(stage.state(), f"{stage.prefix}~daily")
    stage.write(stage.state(), f"{stage.prefix}~hourly")
    for command in (["describe"], ["commit"], ["reset"], ["resolve", "--batch=1", "--as=done"]):
        flags = [] if command == ["describe"] else ["--yes"]
        result = stage.run(*command, f"{stage.prefix}~weekly", *flags, code=1)
        there = f"there are: {stage.prefix}~daily, {stage.prefix}~hourly"
        assert there in result.stderr, command
    described = stage.json("describe", stage.prefix)
    assert [k["key"] for k in described["keys"]] == [
        f"{stage.prefix}~daily",
        f"{stage.prefix}~hourly",
    ]
    assert "there is none" in stage.run("describe", "nobody", code=1).stderr


# -- commit ---------------------------------------------------------------------------------------


def test_commit_makes_a_decided_batch_visible(
    stage: Stage, consume: Callable[..., Consumed]
) -> None:
    topic = stage.kafka.unique_topic("decided")
    name = str(TransactionalId(stage.prefix, "run-1", "w", 0, 2))
    with task_that_wrote(stage.kafka.bootstrap, name, topic, "row") as task:
        prepared = task.prepare()
    stage.write(stage.state([prepared]))
    assert "Would commit batch 8" in stage.run("commit", stage.prefix, "--dry-run").stdout
    dry = stage.json("commit", stage.prefix, "--dry-run")
    assert (dry["dryRun"], dry["changed"], dry["after"]) == (True, False, None)
    assert stage.still_open() == {name}
    assert consume(topic, isolation="read_committed").values == []
    done = stage.json("commit", stage.prefix, "--yes")
    assert (done["changed"], done["after"]["phase"], done["after"]["lastDone"]) == (True, "DONE", 8)
    assert done["committed"]
    assert stage.still_open() == set()
    assert stage.read() == stage.state(last_done=8, done=(Done(8, (Payload(),)),))
    assert consume(topic, isolation="read_committed").values == [b"row"]
    again = stage.json("commit", stage.prefix, "--yes")
    assert again["changed"] is False
    assert "No decision was read under" in stage.run("commit", stage.prefix).stdout


def test_a_commit_that_comes_too_late_says_partial(stage: Stage) -> None:
    kept, lost = stage.open(2)
    stage.write(stage.state((kept, lost)))
    fence(stage.client, [lost.transactional_id])
    stage.client.end([lost], committed=False, deadline_ms=stage.soon())
    (gone,) = stage.client.describe([lost.transactional_id], stage.soon()).values()
    assert gone.state is TransactionState.EMPTY
    told = stage.refused("commit", stage.prefix)
    assert "the outcome of 2 of its 2 transactions is not known" in told
    assert stage.states([kept]) == [TransactionState.ONGOING], "it would be a part of the batch"
    stage.client.end([kept], committed=True, deadline_ms=stage.soon())
    (aborted,) = stage.open(1, run="run-1", worker="other")
    stage.client.end([aborted], committed=False, deadline_ms=stage.soon())
    stage.write(stage.state((kept, aborted)))
    assert "1 are lost" in stage.run("commit", stage.prefix, "--dry-run").stdout
    told = stage.refused("commit", stage.prefix)
    assert "committed in part" in told
    state = stage.read()
    assert state is not None
    assert (state.phase, state.lost) == (Phase.PARTIAL, (aborted.transactional_id,))
    assert "no commit brings their rows back" in stage.refused("commit", stage.prefix)


def test_commit_aborts_nothing_for_an_option_of_its_own(stage: Stage, tmp_path: Path) -> None:
    """Nor without a file, where the time-out of a producer is a 15th of the sink's."""
    transactions = stage.open(2)
    stage.write(stage.state(transactions))
    config = tmp_path / "theirs.properties"
    config.write_text("transaction.timeout.ms=400\nsecurity.protocol=PLAINTEXT\n")
    wait_for(lambda: stage.client.older_than(names(transactions), 400, stage.soon()))
    result = stage.run("commit", stage.prefix, "--yes", "--config", str(config))
    assert f"'{stage.prefix}' is DONE, last batch 8" in result.stdout
    assert result.stderr == "", "nothing is said of options that only a write has"
    assert set(stage.states(transactions)) <= COMMITTED


def test_commit_says_that_a_batch_is_undone_and_fails(stage: Stage) -> None:
    """Its rows were to become visible: a script must notice that they did not."""
    for as_json in (True, False):
        open_, lost = stage.open(2, worker=f"w{as_json}")
        stage.client.end([lost], committed=False, deadline_ms=stage.soon())
        stage.write(stage.state((open_, lost)))
        if as_json:
            told = stage.json("commit", stage.prefix, "--yes", code=1)
            assert (told["changed"], told["committed"], told["after"]["lastDone"]) == (
                True,
                False,
                7,
            )
        else:
            text = " ".join(stage.run("commit", stage.prefix, "--yes", code=1).stdout.split())
            assert f"Batch 8 of '{stage.prefix}' is undone" in text
            assert "A job must be run again" in text
        assert set(stage.states([open_, lost])) <= ABORTED
        assert stage.read() == stage.state()


def test_commit_promises_nothing_beside_an_outcome_that_is_not_known(stage: Stage) -> None:
    """The unknown one may be committed, so that the batch is perhaps not undone."""
    open_, lost = stage.open(2)
    forgotten = replace(open_, transactional_id=f"{stage.prefix}~run-1~g2.w~99")
    stage.client.end([lost], committed=False, deadline_ms=stage.soon())
    stage.write(stage.state((open_, lost, forgotten)))
    text = " ".join(stage.run("commit", stage.prefix, "--dry-run").stdout.split())
    assert "1 are lost, and 1 are unknown to their coordinators: this will fail." in text
    assert "undone" not in text


def test_list_leaves_out_what_has_just_ended(stage: Stage) -> None:
    """Its coordinator remembers when it began; and for a moment that it is ending it."""
    committed, aborted, open_ = stage.open(3, run="run-x")
    stage.client.end([committed], committed=True, deadline_ms=stage.soon())
    stage.client.end([aborted], committed=False, deadline_ms=stage.soon())
    for arguments in ([], [stage.prefix]):
        found = stage.json("list", *arguments)["open"]
        mine = [t for t in found if t["transactionalId"].startswith(stage.prefix)]
        assert [t["transactionalId"] for t in mine] == [open_.transactional_id]


# -- abort ----------------------------------------------------------------------------------------


def test_abort_ends_what_is_named_and_nothing_else(stage: Stage) -> None:
    first, second, third = stage.open(3, run="run-x")
    stage.write(stage.state())
    dry = stage.json("abort", first.transactional_id, "--dry-run")
    assert [t["transactionalId"] for t in dry["transactions"]] == [first.transactional_id]
    assert (dry["ended"], dry["failed"], dry["kept"]) == ([], {}, {})
    assert len(stage.still_open()) == 3
    done = stage.json("abort", *names([first, second]), "--yes")
    assert done["ended"] == names([first, second])
    assert stage.still_open() == {third.transactional_id}
    again = stage.refused("abort", *names([first, third]))
    said = "|".join(state.value for state in ABORTED)
    assert re.search(rf"is not open \(its coordinator says ({said})\); none was aborted", again)
    assert stage.still_open() == {third.transactional_id}
    stage.run("abort", "--run", "run-x", "--prefix", stage.prefix, "--yes")
    assert stage.still_open() == set()


def test_abort_of_a_live_owner_needs_force(stage: Stage) -> None:
    """Its query may be running, and then it fails; the question says so."""
    own, old = (*stage.open(1), *stage.open(1, run="run-0"))
    driver = stage.write(stage.state(superseded=("run-0",)))
    for arguments in (names([old, own]), ["--run", "run-1", "--prefix", stage.prefix]):
        told = stage.refused("abort", *arguments)
        assert f"run run-1 owns '{stage.prefix}' in the commit log" in told
        assert "none was aborted" in told
        assert "--force" in told
    assert stage.still_open() == set(names([own, old]))
    driver.write(stage.state(superseded=("run-0",), last_done=8), stage.soon())
    asked = stage.run("abort", own.transactional_id, "--force", answer="n\n", code=1).output
    assert f"The query of '{stage.prefix}' owns some of them: if it is running, it fails." in asked
    assert stage.still_open() == set(names([own, old]))
    stage.run("abort", own.transactional_id, "--force", answer="y\n")
    assert stage.still_open() == {old.transactional_id}
    quiet = stage.run("abort", old.transactional_id, answer="y\n").output
    assert "fails" not in quiet
    assert stage.still_open() == set()


def test_abort_asks_first(stage: Stage) -> None:
    (one,) = stage.open(1, run="run-x")
    stage.write(stage.state())
    for answer in ("n\n", ""):
        result = stage.run("abort", one.transactional_id, answer=answer, code=1)
        assert "kprod: nothing was changed" in result.stderr.splitlines()[-1]
        assert ("no answer: --yes skips the confirmation" in result.stderr) == (answer == "")
        assert one.transactional_id in result.stdout, "shown before the question"
        assert "has not committed anything yet: if the job is running, it fails" in result.output
    assert stage.still_open() == {one.transactional_id}
    stage.run("abort", one.transactional_id, answer="y\n")
    assert stage.still_open() == set()


def test_abort_refuses_what_a_decision_names_unless_forced(stage: Stage) -> None:
    decided, free = stage.open(2)
    stage.write(stage.state([decided]))
    for arguments in (names([free, decided]), ["--run", "run-1", "--prefix", stage.prefix]):
        told = stage.refused("abort", *arguments)
        assert f"batch 8 of '{stage.prefix}' is decided" in told
        assert f"kprod txn commit {stage.prefix}" in told
    assert stage.still_open() == set(names([free, decided]))
    stage.run("abort", decided.transactional_id, "--force", "--yes")
    assert stage.still_open() == {free.transactional_id}


def test_an_abort_shuts_out_the_driver_that_is_about_to_decide(stage: Stage) -> None:
    """We abort after its prepare check: were it not fenced, it would decide about nothing."""
    (one,) = stage.open(1)
    driver = stage.write(stage.state())
    stage.run("abort", one.transactional_id, "--force", "--yes")
    with pytest.raises(SupersededError):
        driver.write(stage.state([one]), stage.soon())
    assert stage.read() == stage.state().with_aborted_run("run-1", 1)


def test_an_aborted_task_can_not_go_on(stage: Stage, consume: Callable[..., Consumed]) -> None:
    topic = stage.kafka.unique_topic("alive")
    name = str(TransactionalId(stage.prefix, "run-1", "w", 0, 2))
    stage.write(stage.state())
    with task_that_wrote(stage.kafka.bootstrap, name, topic, "before") as producer:
        stage.run("abort", name, "--force", "--yes")
        # A leader that has no marker yet takes a row, which the marker then aborts.
        wait_for(
            lambda: stage.client.describe([name], stage.soon())[name].state not in OPEN_OR_ENDING
        )
        producer.send(ProducerRecord(topic, b"after"))
        with pytest.raises(KafkaError):
            producer.prepare()
    assert stage.still_open() == set()
    assert consume(topic, isolation="read_committed").values == []
    assert consume(topic).values[:1] == [b"before"]


# -- sweep ----------------------------------------------------------------------------------------


def test_sweep_ends_orphans_and_keeps_owners_and_decisions(stage: Stage) -> None:
    own = stage.open(2)
    old = stage.open(2, run="run-0")
    dead = stage.open(1, run="run-x")
    stage.write(stage.state(own[:1], superseded=("run-0",)))
    dry = stage.json("sweep", stage.prefix, "--dry-run")
    assert {t["transactionalId"] for t in dry["transactions"]} == set(names(old + dead))
    assert dry["kept"] == {
        own[0].transactional_id: "its batch is decided",
        own[1].transactional_id: "its run is the owner in the commit log",
    }
    assert len(stage.still_open()) == 5
    only = stage.json("sweep", stage.prefix, "--run", "run-0", "--yes")
    assert sorted(only["ended"]) == sorted(names(old))
    shown = stage.run("sweep", stage.prefix, answer="y\n").stdout
    assert dead[0].transactional_id in shown
    assert "Aborted 1 transaction." in shown
    assert stage.still_open() == set(names(own))
    assert "There is nothing to abort." in stage.run("sweep", stage.prefix).stdout
    assert f"owns '{stage.prefix}'" in stage.refused("sweep", stage.prefix, "--run", "run-1")
    forced = stage.json("sweep", stage.prefix, "--force", "--yes")
    assert forced["ended"] == [own[1].transactional_id]
    assert forced["kept"] == {own[0].transactional_id: "its batch is decided"}
    assert stage.states(own[:1]) == [TransactionState.ONGOING]


def test_a_sweep_of_superseded_runs_disturbs_no_driver(stage: Stage) -> None:
    stage.open(1, run="run-0")
    driver = stage.write(stage.state(superseded=("run-0",)))
    stage.run("sweep", stage.prefix, "--yes")
    assert stage.still_open() == set()
    driver.write(stage.state(last_done=9), stage.soon())


def test_a_sweep_spares_the_young(stage: Stage) -> None:
    (young,) = stage.open(1, run="run-0")
    stage.write(stage.state())
    kept = stage.json("sweep", stage.prefix, "--older-than", "15m", "--yes")
    assert kept["kept"] == {young.transactional_id: "not open for that long"}
    assert kept["changed"] is False
    assert stage.still_open() == {young.transactional_id}
    swept = stage.json("sweep", stage.prefix, "--older-than", "0ms", "--yes")
    assert swept["ended"] == [young.transactional_id]


# -- resolve --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "last_done"), [("done", 8), ("replay", 7)])
def test_resolve_ends_a_partial_batch_and_its_open_transactions(
    stage: Stage, how: str, last_done: int
) -> None:
    committed, open_, lost = stage.open(3)
    stage.client.end([committed], committed=True, deadline_ms=stage.soon())
    stage.client.end([lost], committed=False, deadline_ms=stage.soon())
    partial = stage.state((committed, open_, lost), lost=(lost.transactional_id,))
    stage.write(partial)
    dry = stage.json("resolve", stage.prefix, "--batch", "8", "--as", how, "--dry-run")
    assert dry["key"]["phase"] == "PARTIAL"
    assert stage.read() == partial
    assert stage.still_open() == {open_.transactional_id}
    done = stage.json("resolve", stage.prefix, "--batch", "8", "--as", how, "--yes")
    assert (done["after"]["phase"], done["after"]["lastDone"]) == ("DONE", last_done)
    recorded = (Done(8),) if how == "done" else ()
    assert stage.read() == stage.state(last_done=last_done, done=recorded)
    (after,) = stage.states([open_])
    complete = {TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT}
    assert (after in complete) if how == "done" else (after in ABORTED)


def test_resolve_refuses_another_batch_and_a_committable_one(stage: Stage) -> None:
    (one,) = stage.open(1)
    resolve = ("resolve", stage.prefix, "--as", "replay", "--batch")
    stage.write(stage.state())
    assert "nothing to resolve: batch 7 is done" in stage.refused(*resolve, "8")
    stage.write(stage.state([one]))
    assert "has batch 8 in progress (DECIDED), not 9" in stage.refused(*resolve, "9")
    for force in ([], ["--force"]):
        told = stage.refused(*resolve, "8", *force)
        assert "is DECIDED, not PARTIAL" in told
        assert f"kprod txn commit {stage.prefix}" in told
    assert stage.read() == stage.state([one])


def test_resolve_with_force_ends_a_batch_of_unknown_outcome(stage: Stage) -> None:
    forgotten = PreparedTransaction(f"{stage.prefix}~run-1~g2.w~9", 1, 0, 2)
    stage.write(stage.state([forgotten]))
    resolve = ("resolve", stage.prefix, "--as", "done", "--batch", "8")
    told = stage.refused(*resolve)
    assert "the outcome of 1 transactions is not known" in told
    assert "--force" in told
    stage.run(*resolve, "--force", "--yes")
    assert stage.read() == stage.state(last_done=8, done=(Done(8),))


# -- reset ----------------------------------------------------------------------------------------


def test_reset_removes_a_key(stage: Stage) -> None:
    stage.write(stage.state())
    stage.json("reset", stage.prefix, "--dry-run")
    assert stage.read() == stage.state()
    assert stage.json("reset", stage.prefix, "--yes")["changed"] is True
    assert stage.read() == CommitState(generation=stage.state().generation + 1)
    (key,) = stage.json("list", stage.prefix)["keys"]
    assert (key["runId"], key["lastDone"], key["superseded"]) == ("", None, [])


def test_reset_leaves_nothing_of_a_job_without_txn_app_id(stage: Stage) -> None:
    key = f"{stage.prefix}~job-1"
    stage.write(CommitState(superseded=("job-1",)), key)
    told = stage.run("reset", key, "--dry-run").stdout
    assert "If its job is still running, the job can commit then." in told
    stage.run("reset", key, "--yes")
    assert stage.read(key) is None


def test_reset_names_the_command_that_ends_a_dead_owners_rest(stage: Stage) -> None:
    stage.open(2)
    stage.write(stage.state())
    command = f"txn sweep {stage.prefix} --force"
    assert f"'kprod {command}' ends the transactions that it leaves open" in stage.refused(
        "reset", stage.prefix
    )
    stage.run(*command.split()[1:], "--yes")
    assert stage.still_open() == set()
    stage.run("reset", stage.prefix, "--yes")


def test_reset_refuses_what_is_under_way_or_alive_unless_forced(stage: Stage) -> None:
    (one,) = stage.open(1)
    stage.write(stage.state([one]))
    assert "is DECIDED: without the log its" in stage.refused("reset", stage.prefix)
    stage.write(stage.state([one], lost=(one.transactional_id,)))
    assert f"kprod txn resolve {stage.prefix}" in stage.refused("reset", stage.prefix)
    stage.write(stage.state())
    told = stage.refused("reset", stage.prefix)
    assert f"1 transactions of the owner of '{stage.prefix}', run run-1, are open" in told
    assert stage.read() == stage.state()
    stage.run("reset", stage.prefix, "--force", "--yes")
    assert stage.read() == CommitState(generation=stage.state().generation + 1)
