"""The record of a backfill, in simulated time: who runs it, and which steps are written."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitLogError,
    CommitOutcomeUnknownError,
    ConfigError,
    IllegalStateError,
    RefusedError,
    SupersededError,
)
from spark_kafka_sink.cli.arguments import Asked
from spark_kafka_sink.cli.connection import Connected
from spark_kafka_sink.cli.txn.txn_changes import Confirmation, _reset
from spark_kafka_sink.datasource.jobs.backfill_ledger import (
    Caller,
    Ledger,
    OpenStep,
    Progress,
    check_caller_is_alone,
)
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.protocol.cluster import TopicPartition
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.commit_state import CommitState, Payload, Phase
from spark_kafka_sink.transactions.exactly_once import ExactlyOnceDriver
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation.scene import Scene, scene_of
from tests.simulation.spark_world import LOG_TOPIC
from tests.transactions.second_reader import read_state

KEY = "p~name"
ONE, OTHER = (Caller(f"id{n}", f"host{n}", n) for n in (1, 2))
PLAN = BackfillPlan(8, "day", "int", ("1", "2"), (5, 5, 5), facts={"topic": "t"})


def ledger_of(driver: ExactlyOnceDriver) -> Ledger:
    return Ledger(driver.client, CommitLog(driver.client, LOG_TOPIC), driver.plan, "p", "name")


def owner_of(driver: ExactlyOnceDriver, run: str) -> Owner:
    """As planned now."""
    return Owner(KEY, run, "", driver.plan(KEY).generation, Numbering.VERSIONS)


def batch_of(scene: Scene, owner: Owner, version: int, *values: str) -> Batch:
    """A task for each of ``values``."""
    stem = f"{KEY}~{owner.run_id}~g{owner.generation}.v{version}"
    prepared = tuple(scene.prepared(f"{stem}~{n}", value) for n, value in enumerate(values))
    return Batch(version, prepared, Payload(len(values), sum(map(len, values)), "t"))


@pytest.fixture
def scene() -> Scene:
    return scene_of()


def begun(ledger: Ledger, caller: Caller = ONE) -> Progress:
    ledger.claim(caller, {})
    return ledger.begin(caller, PLAN)


def test_a_backfill_goes_from_step_to_step(scene: Scene) -> None:
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        assert ledger.read() == (None, None)
        assert begun(ledger).at == 0
        for n, end in enumerate((8, 16, 24)):
            assert ledger.step(ONE, end).version == n
            owner = owner_of(driver, "run")
            batch = batch_of(scene, owner, n, f"row{n}")
            assert driver.commit(owner, batch) is Commit.COMMITTED
            settled = ledger.settle(ONE, 1000)
            assert settled.payload == Payload(1, 4, "t", None)
            assert settled.progress.at == end
        ledger.release(ONE)
        progress, plan = ledger.read()
    assert plan == PLAN
    assert progress is not None
    assert (progress.caller, progress.at, progress.steps) == (None, 24, 3)
    assert (progress.rows, progress.bytes, progress.ms) == (3, 12, 3000)


def test_a_step_without_rows_is_gone_past(scene: Scene) -> None:
    """The commit log does not have it; its version is not used again."""
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        ledger.step(ONE, 8)
        assert driver.commit(owner_of(driver, "run"), Batch(0, (), Payload())) is Commit.EMPTY
        settled = ledger.settle(ONE, 1)
        assert (settled.progress.at, settled.progress.steps, settled.payload) == (8, 0, None)
        step = ledger.step(ONE, 16)
        assert step.version == 1


def test_a_step_that_a_dead_process_had_not_committed_is_begun_again(
    scene: Scene,
) -> None:
    """Under another version, of another size; what the dead process had prepared never counts."""
    with scene.driver() as dead:
        ledger = ledger_of(dead)
        begun(ledger)
        ledger.step(ONE, 8)
        owner = owner_of(dead, "run")
        batch = batch_of(scene, owner, 0, "lost0", "lost1")
        with scene.driver() as driver:
            after = ledger_of(driver)
            after.claim(OTHER, {ONE.id: None})
            settled = after.fence(OTHER)
            assert (settled.progress.at, settled.progress.step) == (0, None)
            assert after.step(OTHER, 3).version == 1
            found = after.progress()
            assert found is not None
            assert found.step == OpenStep(1, 3)
            # The process was not dead, but asleep.
            with pytest.raises(SupersededError):
                dead.commit(owner, batch)
            later = owner_of(driver, "later")
            again = batch_of(scene, later, 1, "row")
            assert driver.commit(later, again) is Commit.COMMITTED
            assert after.settle(OTHER, 1).progress.at == 3
    assert scene.values() == ["row"]


@pytest.mark.parametrize("force", [False, True])
def test_a_reset_before_a_step_is_settled_needs_force(
    scene: Scene, capsys: pytest.CaptureFixture[str], force: bool
) -> None:
    """Only the key shows that the step is written. Without it the next call writes it again; the
    command did not say so.
    """
    with scene.driver() as dead:
        begun(ledger_of(dead))
        ledger_of(dead).step(ONE, 8)
        batch = batch_of(scene, owner_of(dead, "run"), 0, "row")
        assert dead.commit(owner_of(dead, "run"), batch) is Commit.COMMITTED
    client = scene.client()
    to = Connected(client, CommitLog(client, LOG_TOPIC), LOG_TOPIC)
    shown, made = (
        Confirmation(Asked(as_json=False, dry_run=dry, yes=True)) for dry in (True, False)
    )
    if force:
        _reset(to, shown, KEY, force=True)
        assert "If batch 0 or an earlier one is written again, its rows" in capsys.readouterr().out
        _reset(to, made, KEY, force=True)
    else:
        with pytest.raises(RefusedError, match=r"txnVersion 0 .* 'name' is not settled") as refused:
            _reset(to, shown, KEY, force=False)
        assert str(refused.value.hint).startswith("call backfill once more")
    with scene.driver() as driver:
        ledger_of(driver).claim(OTHER, {ONE.id: None})
        assert ledger_of(driver).fence(OTHER).progress.at == (0 if force else 8)
    _reset(to, made, KEY, force=False)


@pytest.mark.parametrize("ends", [False, True], ids=["decided", "done"])
def test_a_step_that_a_dead_process_had_decided_counts(scene: Scene, ends: bool) -> None:
    """Decided, and none of its transactions is ended: the next call ends them. Or it has ended
    all, and had no time to record it.
    """
    # It gives up, as a dead one does, long before brokers abort anything.
    scene.changes |= {"delivery_timeout_ms": 10_000}
    with scene.driver() as dead:
        ledger = ledger_of(dead)
        begun(ledger)
        ledger.step(ONE, 8)
        owner = owner_of(dead, "run")
        batch = batch_of(scene, owner, 0, "a", "bc")
        lost = scene.control.drop(
            ApiKey.END_TXN, FOREVER, processed=False,
            where=lambda one: ".v0~" in one.body.transactional_id,
        )  # fmt: skip
        if ends:
            scene.control.clear()
            assert dead.commit(owner, batch) is Commit.COMMITTED
        else:
            with pytest.raises(CommitOutcomeUnknownError):
                dead.commit(owner, batch)
            assert lost.fired
            assert scene.values() == []
            assert scene.logged(KEY).phase is Phase.DECIDED
            scene.control.clear()
    with scene.driver() as driver:
        after = ledger_of(driver)
        after.claim(OTHER, {ONE.id: None})
        settled = after.fence(OTHER)
        assert (settled.progress.at, settled.payload) == (8, Payload(2, 3, "t", None))
        assert settled.progress.rows == 2
        step = after.step(OTHER, 16)
        assert step.version == 1
    assert sorted(scene.values()) == ["a", "bc"]


def test_an_open_step_is_neither_forgotten_nor_written_over(scene: Scene) -> None:
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        ledger.step(ONE, 8)
        with pytest.raises(IllegalStateError, match="open step"):
            ledger.step(ONE, 16)
        with pytest.raises(IllegalStateError, match="plan already"):
            ledger.begin(ONE, PLAN)


def test_a_version_is_larger_than_those_of_an_earlier_use(scene: Scene) -> None:
    """The name was the txnAppId of a job, or of a backfill that was forgotten."""
    with scene.driver() as driver:
        owner = owner_of(driver, "run")
        driver.commit(owner, batch_of(scene, owner, 20260101, "row"))
        ledger = ledger_of(driver)
        begun(ledger)
        step = ledger.step(ONE, 8)
        assert step.version == 20260102


def test_of_two_callers_the_second_is_refused_by_name_and_host(scene: Scene) -> None:
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        found = ledger.claim(OTHER, {})
        assert found.caller == ONE
        with pytest.raises(ConfigError, match="'name' runs in process 1 on host1") as raised:
            check_caller_is_alone("name", OTHER, found)
        assert raised.value.kind is Kind.BACKFILL_RUNS
        ledger.beat(ONE)
        assert ledger.claim(OTHER, {ONE.id: found.beat}).caller == ONE, "it counts up"
        check_caller_is_alone("name", OTHER, ledger.claim(OTHER, {ONE.id: found.beat + 1}))
        for call in (ledger.beat, ledger.fence, lambda one: ledger.step(one, 8)):
            with pytest.raises(SupersededError, match="goes on in process 2 on host2"):
                call(ONE)
        ledger.release(ONE)  # which is not its to release
        assert ledger.claim(ONE, {}).caller == OTHER
        ledger.release(OTHER)
        assert ledger.claim(ONE, {}).caller == ONE


def test_a_commit_in_flight_when_another_takes_over_counts_once(scene: Scene) -> None:
    """The first commits its step between the other's claim and its fence."""
    with scene.driver() as first, scene.driver() as second:
        ledger, after = ledger_of(first), ledger_of(second)
        begun(ledger)
        ledger.step(ONE, 8)
        owner = owner_of(first, "run")
        batch = batch_of(scene, owner, 0, "row")
        after.claim(OTHER, {ONE.id: None})
        first.commit(owner, batch)
        assert after.fence(OTHER).progress.at == 8
    assert scene.values() == ["row"]


def test_a_name_without_another_job_is_fenced(scene: Scene) -> None:
    """A job whose txnAppId is the name decides a batch before each look, until it is stopped. Its
    transactions do not end, so each look finds a decided batch that is not the backfill's to end.
    """
    scene.changes |= {"delivery_timeout_ms": 10_000}
    looks = 0

    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        ledger.step(ONE, 8)

        def beside_a_job(key: str) -> CommitState:
            nonlocal looks
            found = driver.plan(key)
            if key == KEY:
                with scene.driver() as job:
                    decide_without_an_end(scene, job, 100 + looks)
                looks += 1
            return found

        disturbed = Ledger(
            driver.client, CommitLog(driver.client, LOG_TOPIC), beside_a_job, "p", "name"
        )
        with pytest.raises(SupersededError, match="other drivers keep writing") as raised:
            disturbed.fence(ONE)
        assert looks == 5
        assert "a name of backfill is a txnAppId: no other job" in str(raised.value.hint)
        scene.control.clear()
        # The job has stopped.
        after = ledger.fence(ONE).progress
    assert after.step is None


def decide_without_an_end(scene: Scene, job: ExactlyOnceDriver, version: int) -> None:
    scene.control.clear()
    owner = owner_of(job, f"job{version}")
    lost = scene.control.drop(
        ApiKey.END_TXN, FOREVER, processed=False,
        where=lambda one: f".v{version}~" in (one.body.transactional_id or ""),
    )  # fmt: skip
    with pytest.raises(CommitOutcomeUnknownError):
        job.commit(owner, batch_of(scene, owner, version, "row"))
    assert lost.fired
    scene.control.clear()


def test_readers_of_the_protocol_find_states_without_a_batch(scene: Scene) -> None:
    """The second reader, which was written from the protocol's page, and those of operators."""
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        ledger.step(ONE, 8)
        owner = owner_of(driver, "run")
        driver.commit(owner, batch_of(scene, owner, 0, "row"))
        states = CommitLog(driver.client, LOG_TOPIC).states("p", driver.client.deadline())
    assert states is not None
    extra = {"p~~backfill~name": "backfill", "p~~backfill-plan~name": "backfillPlan"}
    assert states.keys() == {KEY, *extra}
    log = scene.cluster.logs[TopicPartition(LOG_TOPIC, 0)]
    records = {one.key: one.value for one in log.records(committed=True)}
    for key, field in extra.items():
        assert states[key].decision is None
        read = read_state(key, {k: v for k, v in records.items() if k and v is not None})
        assert read is not None
        assert (read.phase, read.last_done, set(read.unknown)) == ("DONE", -1, {field})
        kept = CommitState.decode(key, states[key].encode(), ())
        assert kept == states[key], "what a reader does not know, it keeps"


def test_a_plan_of_ten_thousand_ranges_is_written_once(scene: Scene) -> None:
    """It is larger than a record may be; a step writes some hundred bytes."""
    many = tuple(f"{n:0100}" for n in range(10_000))
    plan = BackfillPlan(64, "name", "string", many, (1,) * 10_001)
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        ledger.claim(ONE, {})
        ledger.begin(ONE, plan)
        before = scene.log_bytes()
        ledger.step(ONE, 64)
        ledger.settle(ONE, 1)
        assert scene.log_bytes() - before < 5_000
        assert ledger.read()[1] == plan


def test_a_suspended_caller_does_not_write_over_the_plan_of_the_next(scene: Scene) -> None:
    """It is suspended between its check that it is the owner and the record of its plan."""
    other = replace(PLAN, rows=(1, 2, 3))
    with scene.driver() as first, scene.driver() as second:
        after = ledger_of(second)

        class Suspended(BackfillPlan):
            def encode(self) -> str:
                if after.claim(OTHER, {ONE.id: None}).plan == "":
                    after.begin(OTHER, other)
                return super().encode()

        ledger = ledger_of(first)
        ledger.claim(ONE, {})
        with pytest.raises(SupersededError, match="goes on in process 2 on host2"):
            ledger.begin(ONE, Suspended(8, "day", "int"))
        assert after.read()[1] == other


def test_a_forgotten_backfill_has_no_record(scene: Scene) -> None:
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        ledger.forget()
        assert ledger.read() == (None, None)
        with pytest.raises(SupersededError, match="goes on in no process") as raised:
            ledger.beat(ONE)
        assert "the record was removed with 'kprod backfill" in str(raised.value.hint)
        ledger.release(ONE)
        assert ledger.read() == (None, None)
        assert begun(ledger).at == 0


def test_a_forgotten_call_that_still_runs_commits_nothing_later(scene: Scene) -> None:
    """Its step had the version of the next backfill's first step, which then counted as written."""
    with scene.driver() as first, scene.driver() as second:
        ledger, after = ledger_of(first), ledger_of(second)
        begun(ledger)
        ledger.step(ONE, 8)
        owner = owner_of(first, "run")
        old = batch_of(scene, owner, 0, "old")
        ledger.forget()
        begun(after, OTHER)
        step = after.step(OTHER, 8)
        with pytest.raises(SupersededError):
            first.commit(owner, old)
        later = owner_of(second, "later")
        new = batch_of(scene, later, step.version, "new")
        assert second.commit(later, new) is Commit.COMMITTED
        assert after.fence(OTHER).progress.at == 8
    assert scene.values() == ["new"]


def test_a_new_backfill_knows_the_versions_before_it(scene: Scene) -> None:
    """A look at the log that is too old must not give a version twice."""
    with scene.driver() as driver:
        owner = owner_of(driver, "run")
        driver.commit(owner, batch_of(scene, owner, 7, "row"))
        begun(ledger_of(driver))
        of_the_past = Ledger(
            driver.client,
            CommitLog(driver.client, LOG_TOPIC),
            lambda key: CommitState() if key == KEY else driver.plan(key),
            "p",
            "name",
        )
        step = of_the_past.step(ONE, 8)
        assert step.version == 8


@pytest.mark.parametrize("record", ["backfill", "backfill-plan"])
def test_a_record_that_is_no_state_is_forgotten(scene: Scene, record: str) -> None:
    """Half of a backfill is not forgotten: the next one would find the other half."""
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        name = f"p~~{record}~name".encode()
        session = CommitLog(driver.client, LOG_TOPIC).open(name.decode(), scene.soon())
        session._writer.commit(lambda _: {name: b"junk"}, scene.soon(), lambda _: None)
        with pytest.raises(CommitLogError, match="was not written by spark-kafka-sink"):
            ledger.read()
        ledger.forget()
        assert ledger.read() == (None, None)
        assert begun(ledger).at == 0


def test_a_lost_plan_is_an_error(scene: Scene) -> None:
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        ledger.forget()
        ledger.claim(ONE, {})
        ledger.begin(ONE, BackfillPlan(8))
        log = CommitLog(driver.client, LOG_TOPIC)
        session = log.open("p~~backfill-plan~name", driver.client.deadline())
        session.write(None, driver.client.deadline())
        with pytest.raises(CommitLogError, match="is lost"):
            ledger.read()


@pytest.mark.parametrize("text", ["[]", "{}", '{"caller":null,"step":null,"later":1}', "nonsense"])
def test_the_record_of_another_version_is_refused(scene: Scene, text: str) -> None:
    with pytest.raises(CommitLogError, match="was not written by this"):
        Progress.decode(text)
    assert json.loads(Progress(ONE).encode())["caller"]["host"] == "host1"


@pytest.mark.parametrize("processed", [False, True], ids=["lost request", "lost answer"])
@pytest.mark.parametrize("times", [2, 30], ids=["some", "for long"])
def test_a_record_is_written_through_lost_answers(
    scene: Scene, processed: bool, times: int
) -> None:
    """Also when it is not known, in the end, whether it is written: the key is opened again."""
    with scene.driver() as driver:
        ledger = ledger_of(driver)
        begun(ledger)
        lost = scene.control.cut(
            ApiKey.END_TXN, times, processed=processed,
            where=lambda one: "backfill" in one.body.transactional_id,
        )  # fmt: skip
        assert ledger.step(ONE, 8).version == 0
        assert lost.fired
        progress = ledger.claim(ONE, {})
        assert progress.step == OpenStep(0, 8)
        assert ledger.read()[0] == progress
