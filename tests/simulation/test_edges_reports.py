"""The reports of writes without rows, and of batches that are aborted, or only seem to be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.base.errors import CommitOutcomeUnknownError, KafkaError
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.foreach_batch import foreach_batch, transaction
from spark_kafka_sink.datasource.plan import planned_batch
from spark_kafka_sink.datasource.plan.planned_batch import PlannedBatch
from spark_kafka_sink.datasource.report.destinations import publish
from spark_kafka_sink.datasource.report.write_report import WriteOutcome, WriteReport
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.results import Visible
from tests.fakes.fake_cluster.control import FOREVER
from tests.simulation import scene_reports
from tests.simulation.scene import PLANNED, VERSIONS, Scene, Written, owner_of
from tests.simulation.scene_reports import (
    REPORTS,
    beside,
    fails,
    last_outcome,
    reports,
    when_written,
)
from tests.simulation.scene_requests import of_data, opens_a_log
from tests.simulation.spark_checkpoints import SOURCE, Checkpoints
from tests.simulation.spark_world import QUERY, TIMEOUT_MS, Run

pytestmark = [VERSIONS, pytest.mark.life(tasks=2, rows=2, new_worker=1.0)]
topic, local, cut_off = scene_reports.topic, scene_reports.local, scene_reports.cut_off


def test_a_write_of_a_block_without_rows_has_a_report(scene: Scene) -> None:
    run = scene.run("driver")
    with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
        t.write(scene.frame(run, 0))
        t.write(scene.frame(run, 100, rows=0))
        assert reports(scene) == [], "the block is not committed yet"
    assert reports(scene) == [(4, "committed"), (0, "committed")]
    assert scene.open_ids() == []
    scene.ends_with(0)


def test_an_aborted_block_has_one_report_and_its_writes_have_none(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    run = scene.run("driver")

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            t.write(scene.frame(run, 0))
            t.write(scene.frame(run, 100, rows=0))
            raise ValueError("planned")

    with pytest.raises(ValueError, match="planned"):
        block()
    assert reports(scene) == [(0, "aborted")]
    assert "the transaction block of batch 0 is aborted; queryId=query-0" in caplog.text
    assert scene.open_ids() == []
    scene.ends_with()


def test_a_block_that_its_abort_commits_is_not_reported_as_aborted(scene: Scene) -> None:
    """The planning of the write that is to abort the block ends what the block has decided."""
    run = scene.run("driver")
    scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
    scene.timeline.after(25_000, scene.control.clear)

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            t.write(scene.frame(run, 0))

    with pytest.raises(CommitOutcomeUnknownError):
        block()
    assert reports(scene) == [(4, "committed"), (0, "unknown")]
    assert last_outcome() == "done before"
    assert scene.open_ids() == []
    scene.ends_with(0)


def test_a_block_interrupted_after_its_commit_is_not_aborted(scene: Scene) -> None:
    run = scene.run("driver")
    frame = scene.frame(run, 0)
    save, ends = frame._save, list[str]()

    def interrupted(options: dict[str, str], part: int | None) -> None:
        save(options, part)
        if part is None and not ends:
            ends.append("committed")
            raise KeyboardInterrupt

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            frame._save = interrupted
            t.write(frame)

    with pytest.raises(KeyboardInterrupt):
        block()
    assert reports(scene) == [(4, "committed")]
    assert last_outcome() == "done before"
    scene.ends_with(0)


def test_a_block_that_is_decided_beside_its_abort_is_unknown(scene: Scene) -> None:
    """Ctrl-C ends the user's call and not Spark's job, whose commit comes while the abort runs."""
    run = scene.run("driver")
    frame = scene.frame(run, 0)
    save, late = frame._save, list[dict[str, str]]()

    def interrupted(options: dict[str, str], part: int | None) -> None:
        if part is not None or late:
            save(options, part)
            return
        late.append(dict(options))
        raise KeyboardInterrupt

    def decide() -> None:
        silent = scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
        scene.beside(run.process, lambda: save(late[0], None))
        scene.wait(lambda: silent.fired)

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            frame._save = interrupted
            t.write(frame)

    met = scene.before_send(run, lambda request: bool(late) and opens_a_log(request), decide)
    with pytest.raises(KeyboardInterrupt):
        block()
    assert met
    assert last_outcome() == "unknown"
    assert reports(scene) == [], "behind the open transaction of the first report"
    run.process.kill()
    scene.control.clear()
    again = scene.run("driver 2")
    with transaction("sinks", 0, **scene.options(verifyReplays="false")) as t:
        t.write(scene.frame(again, 0))
    assert reports(scene) == [(4, "committed"), (0, "unknown")]
    assert scene.open_ids() == []
    scene.ends_with(0)


@pytest.mark.parametrize("outcome", ["unknown", "aborted"])
def test_an_abort_that_fails_knows_whether_its_block_was_ended(scene: Scene, outcome: str) -> None:
    """Otherwise `failed` would promise that no row becomes visible."""
    run = scene.run("driver")
    frame = scene.frame(run, 0)
    save, ends = frame._save, list[str]()

    def interrupted(options: dict[str, str], part: int | None) -> None:
        if part is None and not ends:
            ends.append("not begun by Spark")
            raise KeyboardInterrupt
        save(options, part)

    def cut() -> None:
        scene.control.drop(ApiKey.INIT_PRODUCER_ID, FOREVER, processed=False)

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            frame._save = interrupted
            t.write(frame)
            if outcome == "aborted":
                ends.append("never begun")
                raise KeyboardInterrupt

    scene.before_send(run, lambda request: bool(ends) and opens_a_log(request), cut)
    with pytest.raises(KeyboardInterrupt):
        block()
    scene.control.clear()
    assert last_outcome() == outcome
    scene.ends_with()


@pytest.mark.parametrize("reaches_log", [True, False])
def test_a_block_whose_commit_fails_has_a_report_that_says_so(
    scene: Scene, reaches_log: bool
) -> None:
    """Its transactions are too old, or its log can't be opened. As a rule, Spark's abort of the
    write that ends the block makes the run superseded. Then no write is planned to abort the block.
    """
    run = scene.run("driver")

    def block() -> None:
        with transaction("sinks", 0, **scene.options(reportTopic=REPORTS)) as t:
            t.write(scene.frame(run, 0))
            if reaches_log:
                scene.scheduler.sleep(TIMEOUT_MS)
            else:
                api = ApiKey.INIT_PRODUCER_ID
                scene.control.drop(api, FOREVER, processed=False, where=opens_a_log)

    with pytest.raises(KafkaError):
        block()
    scene.control.clear()
    found = [outcome for _, outcome in reports(scene)]
    assert found == (["failed"] if reaches_log else ["failed", "unknown"])
    scene.ends_with()


@pytest.mark.usefixtures("cut_off")
def test_a_committed_micro_batch_is_not_reported_as_aborted(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0), 0)
    assert reports(scene) == [(4, "committed")]
    assert last_outcome() == "committed"
    assert "committed before, so their 4 rows are visible to consumers" in caplog.text
    assert "nothing is visible" not in caplog.text
    scene.ends_with(0)


@pytest.mark.usefixtures("cut_off")
def test_a_decided_micro_batch_is_not_reported_as_aborted(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    scene.control.drop(ApiKey.END_TXN, FOREVER, processed=False, where=of_data)
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0), 0)
    scene.control.clear()
    assert last_outcome() == "unknown"
    assert "the batch of their 4 rows is decided, so it is not aborted" in caplog.text
    assert "nothing is visible" not in caplog.text
    write(scene.frame(scene.run("driver 2"), 0), 0)  # Spark runs it again, after a restart
    assert reports(scene) == [(4, "committed"), (4, "unknown")]
    scene.ends_with(0)


def test_a_micro_batch_with_offsets_and_without_rows_has_one_report(scene: Scene) -> None:
    checkpoints, run = Checkpoints(), scene.run("driver")
    scene.cluster.create_topic(SOURCE, 1)
    path = checkpoints.path("orders")
    options = scene.options(offsetsGroup="readers", checkpointLocation=path, reportTopic=REPORTS)
    write = foreach_batch("orders", **options)
    for number in range(2):
        checkpoints.begin("orders", QUERY, number)
        write(scene.frame(run, number, rows=2 * number), number)
    assert reports(scene) == [(0, "committed"), (4, "committed")]
    write(scene.frame(run, 1), 1)  # Spark runs the micro-batch again
    assert reports(scene) == [(0, "committed"), (4, "committed")]
    assert scene.open_ids() == []
    scene.ends_with(1)


def test_a_micro_batch_that_commits_nothing_has_one_report(scene: Scene) -> None:
    run = scene.run("driver")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    write(scene.frame(run, 0, rows=0), 0)
    write(scene.frame(run, 1), 1)
    assert reports(scene) == [(0, "no rows"), (4, "committed")]
    scene.ends_with(1)


def test_a_batch_that_another_run_has_committed_is_aborted(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    """Two drivers of one query: the first one has committed the batch, and has no key any more."""
    first, second = scene.run("driver"), scene.run("driver 2")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))

    def ahead() -> None:
        beside(
            scene,
            first,
            lambda: write(scene.frame(first, 1), 1),
            fails(lambda: write(scene.frame(first, 2, ends="fail"), 2), PLANNED),
        )

    beside(scene, first, lambda: write(scene.frame(first, 0), 0))
    when_written(scene, second, ahead)
    beside(scene, second, fails(lambda: write(scene.frame(second, 1, ends="fail"), 1), PLANNED))
    assert last_outcome() == "aborted"
    assert "so their" not in caplog.text
    assert reports(scene) == [(4, "committed"), (4, "committed"), (2, "aborted"), (2, "aborted")]
    assert scene.open_ids() == []
    scene.ends_with(0, 1)


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.usefixtures("cut_off")
def test_a_committed_job_is_not_reported_as_aborted(scene: Scene, numbered: bool) -> None:
    """Its versions may be written by threads, and the key of a job without txnAppId is gone."""
    numbers: dict[str, object] = {"txnAppId": "app", "txnVersion": 3} if numbered else {}
    options = scene.options(reportTopic=REPORTS, **numbers)
    with pytest.raises(KafkaError, match="killed"):
        scene.job(scene.run("driver"), options, 3)
    assert reports(scene) == [(4, "committed")]
    assert last_outcome() == "committed"
    scene.ends_with(3)


@pytest.mark.usefixtures("cut_off")
def test_a_batch_stays_committed_after_a_take_over(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = scene.run("driver"), scene.run("driver 2")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    abort = PlannedBatch.abort

    def late(batch: PlannedBatch, messages: Any, batch_id: int | None = None) -> None:
        monkeypatch.setattr(PlannedBatch, "abort", abort)
        beside(scene, second, lambda: write(scene.frame(second, 1), 1))
        abort(batch, messages, batch_id)

    monkeypatch.setattr(PlannedBatch, "abort", late)
    beside(scene, first, fails(lambda: write(scene.frame(first, 0), 0), "killed"))
    assert last_outcome() == "committed"
    assert reports(scene) == [(4, "committed"), (4, "committed")]
    scene.ends_with(0, 1)


def test_a_failed_replay_by_a_run_without_the_key_is_aborted(scene: Scene) -> None:
    """The run that has committed the batch was aborted: the newest run is the one of the replay."""

    def abort(written: Written, *, finished: bool = True) -> Visible:
        owner = owner_of(written.run.id, written.plan)
        with scene.driver_side(written.run) as driver:
            found = driver.abort(
                owner, 0, written.prepared, tasks_may_run=False, may_be_committed=finished
            )
        return found.visible

    first = scene.first_batch()
    scene.commit(*first)
    assert abort(first) is Visible.ALL
    assert abort(first._replace(messages=[])) is Visible.ALL, "the log shows it, too"
    again = scene.written(scene.run("run-1"), 0)
    assert abort(again) is Visible.UNKNOWN, "the log does not show whose the done batch is"
    assert abort(again, finished=False) is Visible.NONE
    scene.ends_with(0)


def test_a_refused_replay_of_a_block_is_no_success(scene: Scene) -> None:
    """The done block has one more write."""
    options = scene.options(reportTopic=REPORTS)
    first, second = scene.run("driver"), scene.run("driver 2")

    def block(run: Run, *rows: int) -> None:
        with transaction("sinks", 0, **options) as t:
            for n in rows:
                t.write(scene.frame(run, 0, rows=n))

    beside(scene, first, lambda: block(first, 2, 0))
    beside(scene, second, fails(lambda: block(second, 2), "other rows"))
    assert last_outcome() == "aborted"
    assert reports(scene) == [(4, "committed"), (0, "committed"), (0, "failed"), (0, "aborted")]
    scene.ends_with(0)


@pytest.mark.usefixtures("cut_off")
def test_a_committed_batch_without_rows_has_a_report_in_the_topic(scene: Scene) -> None:
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0, rows=0), 0)
    assert last_outcome() == "no rows"
    assert reports(scene) == [(0, "no rows")]
    scene.ends_with()


def test_a_dropped_batch_is_not_reported_as_committed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another driver has committed it, so an audit would not find the rows of this run."""

    def dropped_is_lost(report: WriteReport, config: SinkConfig) -> None:
        if report.outcome is WriteOutcome.DONE_BEFORE:
            raise KafkaError("killed")
        publish(report, config)

    first, second = scene.run("driver"), scene.run("driver 2")
    write = foreach_batch("orders", **scene.options(reportTopic=REPORTS))
    beside(scene, first, lambda: write(scene.frame(first, 0), 0))
    monkeypatch.setattr(planned_batch, "publish", dropped_is_lost)
    when_written(
        scene, second, lambda: beside(scene, first, lambda: write(scene.frame(first, 1), 1))
    )
    beside(scene, second, fails(lambda: write(scene.frame(second, 1), 1), "killed"))
    assert last_outcome() == "aborted"
    assert reports(scene) == [(4, "committed"), (4, "committed"), (4, "aborted")]
    scene.ends_with(0, 1)


@pytest.mark.usefixtures("cut_off")
def test_a_batch_with_a_group_and_no_kafka_source_has_a_report(scene: Scene) -> None:
    """It has no row, and no offset of Kafka to commit, so its report is written after its end."""
    checkpoints, path = Checkpoints(), Checkpoints().path("orders")
    checkpoints.begin("orders", QUERY, 0)
    (Path(path) / "offsets" / "0").write_text('v1\n{"batchWatermarkMs":0}\n5')
    options = scene.options(offsetsGroup="readers", checkpointLocation=path, reportTopic=REPORTS)
    write = foreach_batch("orders", **options)
    with pytest.raises(KafkaError, match="killed"):
        write(scene.frame(scene.run("driver"), 0, rows=0), 0)
    assert reports(scene) == [(0, "no rows")]
    assert last_outcome() == "no rows"
