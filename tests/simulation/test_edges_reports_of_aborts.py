"""The outcome in the report of a batch that is aborted after its commit has begun."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.cli.explanation import explanation
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.foreach_batch import foreach_batch, transaction
from spark_kafka_sink.datasource.plan import planned_batch
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.kept_reports import kept
from spark_kafka_sink.datasource.report.write_report import WriteOutcome, WriteReport
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation import scene_reports
from tests.simulation.scene import PLANNED, VERSIONS, Scene
from tests.simulation.scene_reports import (
    REPORTS,
    before_abort,
    beside,
    ends_rows,
    fails,
    last_outcome,
    noted_commits,
    outcomes,
    reports,
    time_out_unended,
    when_written,
)
from tests.simulation.scene_requests import of_data, opens_a_log
from tests.simulation.spark_checkpoints import SOURCE, Checkpoints
from tests.simulation.spark_sink import Frame
from tests.simulation.spark_tasks import Attempt
from tests.simulation.spark_world import QUERY, Run

pytestmark = [VERSIONS, pytest.mark.life(tasks=2, rows=2, new_worker=1.0)]
topic, local, cut_off = scene_reports.topic, scene_reports.local, scene_reports.cut_off
PARTLY = "committed in part"


def last_error() -> dict[str, str]:
    """Its code, message and hint, by their names."""
    error: dict[str, str] = json.loads(kept(None) or "")["error"]
    return error


def killed_at(monkeypatch: pytest.MonkeyPatch, fits: Callable[[WriteReport], bool]) -> None:
    """The process of a commit is killed before it publishes the first report that ``fits``."""
    killed: list[WriteReport] = []

    def publish_or_die(report: WriteReport, config: SinkConfig) -> None:
        if not killed and fits(report):
            killed.append(report)
            raise KafkaError("killed")
        publish(report, config)

    monkeypatch.setattr(planned_batch, "publish", publish_or_die)


def killed_when_partial(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a commit is killed between the record of the loss and its report."""
    killed_at(monkeypatch, lambda report: report.outcome is WriteOutcome.PARTIAL)


# -- a batch that is committed in part ------------------------------------------------------------


def test_a_partial_batch_is_partial_after_its_abort(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No later start of the query can report it, because planning refuses the batch."""
    killed_when_partial(monkeypatch)
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    time_out_unended(scene, ends_rows, 1)
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0), 0)
    with pytest.raises(KafkaError, match=PARTLY):
        write(scene.frame(scene.run("driver 2"), 0), 0)
    assert "partial" in outcomes(scene)
    assert last_outcome() == "partial"
    assert len(scene.visible()) == 2, "of four rows"


def test_the_advice_for_a_partial_batch_ends_it(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the next start nor 'kprod txn commit' does."""
    killed_when_partial(monkeypatch)
    write = foreach_batch("orders", **scene.options())
    time_out_unended(scene, ends_rows, 1)
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0), 0)
    error = last_error()
    assert error["code"] == "KP0611"
    assert "kprod txn resolve orders~orders --batch 0 --as done" in error["hint"]
    with scene.by_hand() as commands:
        commands.resolve(commands.plan_resolve("orders~orders", 0, done=True))
    write(scene.frame(scene.run("driver 2"), 1), 1)
    assert len(scene.visible()) == 2 + 4


def test_a_partial_block_has_a_report_that_says_so(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_when_partial(monkeypatch)
    run = scene.run("driver")
    time_out_unended(scene, ends_rows, 1)

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            t.write(scene.frame(run, 0))

    with pytest.raises(KafkaError, match="killed"):
        block()
    assert "partial" in outcomes(scene)
    assert last_outcome() == "partial"


@pytest.mark.parametrize("done", [True, False])
def test_a_partial_batch_that_is_resolved_is_not_aborted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """The operator comes before Spark's abort. Rows of one task are visible."""
    killed_when_partial(monkeypatch)
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    time_out_unended(scene, ends_rows, 1)

    def resolve() -> None:
        with scene.by_hand() as commands:
            commands.resolve(commands.plan_resolve("orders~orders", 0, done=done))

    before_abort(monkeypatch, resolve)
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0), 0)
    assert len(scene.visible()) == 2, "of four rows"
    assert last_outcome() == "partial"
    assert "kprod txn describe orders~orders" in last_error()["hint"]
    write(scene.frame(scene.run("driver 2"), 0), 0)
    rows = [row for found in scene.seen().values() for row in found]
    assert len(rows) == (2 if done else 2 + 4), "it is dropped, or written again"


# -- a batch that is decided ----------------------------------------------------------------------


@pytest.mark.usefixtures("cut_off")
def test_a_decided_job_without_a_version_has_no_next_start(scene: Scene) -> None:
    """Another run writes all rows again, so only 'kprod txn commit' makes these rows visible."""
    scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
    with pytest.raises(KafkaError, match="killed"):
        scene.job(scene.run("driver"), scene.options(reportTopic=REPORTS), 3)
    scene.control.clear()
    assert last_outcome() == "unknown"
    hint = last_error()["hint"]
    assert "next start" not in hint
    assert "for a job without txnAppId 'kprod txn commit' does" in hint
    scene.job(scene.run("driver 2"), scene.options(), 4)
    scene.ends_with(4)


# -- a batch whose transactions are not described -------------------------------------------------


def silent_after_its_commit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the commit, coordinators describe no transaction for a while."""

    def silence() -> None:
        scene.control.drop(ApiKey.DESCRIBE_TRANSACTIONS, FOREVER)
        scene.after(25_000, scene.control.clear)

    before_abort(monkeypatch, silence)


def test_a_dropped_batch_is_not_committed_beside_a_silent_broker(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver has committed the batch, and the drop takes the key over. So the log shows a
    done batch of this run, and an audit would not find its rows.
    """
    first, second = scene.run("driver"), scene.run("driver 2")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    killed_at(monkeypatch, lambda report: report.outcome is WriteOutcome.DONE_BEFORE)
    beside(scene, first, lambda: write(scene.frame(first, 0), 0))
    when_written(
        scene, second, lambda: beside(scene, first, lambda: write(scene.frame(first, 1), 1))
    )
    silent_after_its_commit(scene, monkeypatch)
    beside(scene, second, fails(lambda: write(scene.frame(second, 1), 1), "killed"))
    assert last_outcome() in ("unknown", "aborted")
    scene.ends_with(0, 1)


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.usefixtures("cut_off")
def test_a_committed_job_is_not_aborted_beside_a_silent_broker(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    numbered: bool,
) -> None:
    numbers: dict[str, object] = {"txnAppId": "app", "txnVersion": 3} if numbered else {}
    options = scene.options(reportTopic=REPORTS, **numbers)
    silent_after_its_commit(scene, monkeypatch)
    with pytest.raises(KafkaError, match="killed"):
        scene.job(scene.run("driver"), options, 3)
    scene.ends_with(3)
    assert last_outcome() == "unknown"
    assert outcomes(scene) == ["committed", "unknown"]
    if numbered:  # as its hint tells
        scene.job(scene.run("driver 2"), options, 3)
        scene.ends_with(3)
        return
    assert "[KP0620]" in caplog.text
    advice = " ".join(explanation("KP0620").split())
    assert "Before you run a job without `txnAppId` again, look whether its rows" in advice


@pytest.mark.usefixtures("cut_off")
def test_an_empty_batch_is_not_unknown_after_a_take_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to commit, so no row can be visible."""
    first, second = scene.run("driver"), scene.run("driver 2")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    before_abort(
        monkeypatch, lambda: beside(scene, second, lambda: write(scene.frame(second, 1), 1))
    )
    beside(scene, first, fails(lambda: write(scene.frame(first, 0, rows=0), 0), "killed"))
    assert last_outcome() == "aborted"


def test_a_stopped_batch_that_is_not_committed_is_aborted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its tasks have finished, and the user stops it before its commit begins."""
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))

    def stopped(*_: object) -> None:
        raise KafkaError("stopped")

    monkeypatch.setattr(PlannedBatch, "commit", stopped)
    with pytest.raises(KafkaError, match="stopped"):
        write(scene.frame(scene.run("driver"), 0), 0)
    assert reports(scene) == [(4, "aborted")]
    scene.ends_with()


def job_in_the_same_workers(scene: Scene, run: Run, number: int) -> None:
    options = scene.options(txnAppId="app", txnVersion=number, reportTopic=REPORTS)
    scene.job(run, options, number)


@pytest.mark.life(tasks=2, rows=2, new_worker=0.0)
def test_a_version_whose_ids_are_used_again_is_not_aborted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread of the driver has written the next version before the abort."""
    run = scene.run("driver")
    killed_at(monkeypatch, lambda report: report.txn_version == 3)
    job_in_the_same_workers(scene, run, 2)
    before_abort(monkeypatch, lambda: job_in_the_same_workers(scene, run, 4))
    with pytest.raises(KafkaError, match="killed"):
        job_in_the_same_workers(scene, run, 3)
    scene.ends_with(2, 3, 4)
    assert last_outcome() in ("unknown", "committed")
    assert "aborted" not in outcomes(scene)


# -- an abort that fails --------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.usefixtures("cut_off")
def test_a_failed_abort_does_not_say_aborted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, ends: bool
) -> None:
    """The process of the commit is killed after the decision, or after the end of all. Then the
    abort can't open the log.
    """
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    if not ends:
        scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)

    def cut() -> None:
        api = ApiKey.INIT_PRODUCER_ID
        scene.control.drop(api, FOREVER, processed=False, where=opens_a_log)

    before_abort(monkeypatch, cut)
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0), 0)
    scene.control.clear()
    assert last_outcome() == "unknown"
    assert last_error()["code"] == "KP0610"
    assert "a commit of batch 0 of 'orders~orders' may have begun" in last_error()["message"]
    write(scene.frame(scene.run("driver 2"), 0), 0)
    scene.ends_with(0)
    assert "brokers abort them after" not in caplog.text
    assert "a commit of them may have begun" in caplog.text


def test_a_failed_abort_after_a_failed_commit_says_when_brokers_abort(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither of them can open the log, so the transactions stay open until their timeout."""
    run = scene.run("driver")

    def cut() -> None:
        api = ApiKey.INIT_PRODUCER_ID
        scene.control.drop(api, FOREVER, processed=False, where=opens_a_log)

    when_written(scene, run, cut)
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    with pytest.raises(KafkaError, match="has no clear answer in time"):
        write(scene.frame(run, 0), 0)
    scene.control.clear()
    assert last_outcome() == "failed"
    assert outcomes(scene) == ["failed"]
    assert "brokers abort those that are still open after kafka.transaction.timeout" in caplog.text
    scene.ends_with()


def test_a_failed_abort_of_a_failed_task_says_aborted(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """No commit has begun."""
    write = foreach_batch("orders", **scene.options())
    scene.control.drop(ApiKey.INIT_PRODUCER_ID, FOREVER, processed=False, where=opens_a_log)
    with pytest.raises(KafkaError, match=PLANNED):
        write(scene.frame(scene.run("driver"), 0, ends="fail"), 0)
    scene.control.clear()
    assert last_outcome() == "aborted"
    assert "brokers abort them after" in caplog.text


def test_a_failed_abort_beside_its_commit_does_not_say_aborted(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user stops a query that hangs: Spark aborts, and the process of the commit goes on."""
    run, stopped = scene.run("driver"), scene.run("driver")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    commits = noted_commits(monkeypatch)

    def abort() -> None:
        batch, messages = commits[0]
        with scene.driving(stopped):
            batch.abort(messages)

    def stop() -> None:
        scene.control.drop(ApiKey.INIT_PRODUCER_ID, FOREVER, processed=False)
        thread, _ = scene.beside(stopped.process, abort)
        scene.wait(lambda: thread.done)
        assert last_outcome() == "unknown"
        scene.control.clear()

    met = scene.before_send(run, lambda r: bool(commits) and r.api == ApiKey.END_TXN, stop)
    beside(scene, run, lambda: write(scene.frame(run, 0), 0))
    assert met
    scene.ends_with(0)
    assert "aborted" not in outcomes(scene)


# -- a batch without a transaction of a task ------------------------------------------------------


@pytest.mark.usefixtures("cut_off")
def test_a_batch_of_offsets_is_not_aborted_after_a_take_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the log could show that it has committed its offsets."""
    checkpoints, path = Checkpoints(), Checkpoints().path("orders")
    scene.cluster.create_topic(SOURCE, 1)
    options = scene.options(offsetsGroup="readers", checkpointLocation=path, reportTopic=REPORTS)
    write = foreach_batch("orders", **options)
    checkpoints.begin("orders", QUERY, 0)
    first, second = scene.run("driver"), scene.run("driver 2")

    def take_over() -> None:
        checkpoints.begin("orders", QUERY, 1)
        beside(scene, second, lambda: write(scene.frame(second, 1, rows=2), 1))

    before_abort(monkeypatch, take_over)
    beside(scene, first, fails(lambda: write(scene.frame(first, 0, rows=0), 0), "killed"))
    assert last_outcome() == "unknown"
    assert reports(scene) == [(0, "committed"), (4, "committed"), (0, "unknown")]


@pytest.mark.usefixtures("cut_off")
def test_a_committed_batch_of_offsets_is_committed_after_its_abort(scene: Scene) -> None:
    checkpoints, path = Checkpoints(), Checkpoints().path("orders")
    scene.cluster.create_topic(SOURCE, 1)
    options = scene.options(offsetsGroup="readers", checkpointLocation=path, reportTopic=REPORTS)
    write = foreach_batch("orders", **options)
    checkpoints.begin("orders", QUERY, 0)
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0, rows=0), 0)
    assert last_outcome() == "committed"
    assert reports(scene) == [(0, "committed")]


def test_a_committed_block_is_not_aborted_after_a_take_over(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Ctrl-C comes after the commit, and another driver commits the next batch between the planning
    of the write that is to abort the block, and this abort.
    """
    first, second = scene.run("driver"), scene.run("driver 2")
    options = scene.options(reportTopic=REPORTS)
    frame = scene.frame(first, 0)
    save, ends, ran = frame._save, list[str](), list[object]()
    attempts = scene.attempts

    def interrupted(given: dict[str, str], part: int | None) -> None:
        save(given, part)
        if part is None and not ends:
            ends.append("committed")
            raise KeyboardInterrupt

    def block(of: Frame, number: int) -> None:
        with transaction("sinks", number, **options) as t:
            frame._save = interrupted
            t.write(of)  # type: ignore[arg-type]

    def attempts_and_then(of: Run, *args: Any, **how: Any) -> list[Attempt]:
        found = attempts(of, *args, **how)
        if of is first and ends and not ran:
            ran.append(True)
            beside(scene, second, lambda: block(scene.frame(second, 1, rows=2), 1))
        return found

    scene.attempts = attempts_and_then  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        block(frame, 0)
    assert ran
    scene.ends_with(0, 1)
    assert last_outcome() == "unknown"
    assert outcomes(scene) == ["committed", "committed", "unknown"]
    assert "batch 0 is aborted, unless the batch was committed before; " in caplog.text
