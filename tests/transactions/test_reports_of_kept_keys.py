"""A commit whose process has kept the key open, and whose batch has a report of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_kafka_sink.base.errors import ErrorCode, SupersededError
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.driver_transactions import TopicRecord
from spark_kafka_sink.transactions.ownership import Numbering, Owner
from spark_kafka_sink.transactions.results import Commit
from tests.fakes.fake_cluster import FOREVER
from tests.simulation.scene import VERSIONS, Scene
from tests.transactions.running_query import Query

REPORTS = "reports"
KEPT = pytest.mark.parametrize("kept", [True, False], ids=["kept open", "opened"])
pytestmark = VERSIONS


@pytest.fixture
def query(scene: Scene) -> Query:
    scene.cluster.create_topic(REPORTS, 1)
    return Query.of(scene)


def commit_of(query: Query, owner: Owner, number: int, worker: str) -> Callable[[], Commit]:
    """Like Query.prepare, with a report."""
    prepared = query.write(owner, number, worker)
    report = TopicRecord(REPORTS, worker.encode())
    batch = Batch(number, (prepared,), digest=f"{number:032}", report=report)
    return lambda: query.driver.commit(owner, batch)


@KEPT
@pytest.mark.parametrize("numbering", [n for n in Numbering if n is not Numbering.ONCE])
def test_the_report_of_a_batch_that_is_done_elsewhere_is_aborted(
    scene: Scene, query: Query, numbering: Numbering, kept: bool
) -> None:
    """Otherwise readers of the reports wait until it times out."""
    one = replace(query, numbering=numbering)
    other = one.elsewhere()
    first = one if kept else other
    assert commit_of(first, first.owner(), 1, "w1")() is Commit.COMMITTED
    owner = one.owner()
    assert commit_of(other, other.owner(), 2, "wb")() is Commit.COMMITTED
    assert commit_of(one, owner, 2, "wa")() is Commit.ALREADY_DONE
    scene.scheduler.sleep(300)
    assert scene.open_ids() == []
    assert scene.values(REPORTS) == ["w1", "wb"]


@KEPT
def test_a_superseded_commit_names_its_cause(scene: Scene, query: Query, kept: bool) -> None:
    """Its report could not be written either, but that is not why it fails."""
    first = query if kept else query.elsewhere()
    assert commit_of(first, query.owner(), 0, "w0")() is Commit.COMMITTED
    late = commit_of(query, query.owner(), 1, "w1")
    other = query.elsewhere()
    assert commit_of(other, other.owner("another"), 1, "n1")() is Commit.COMMITTED
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene.control.answer(ApiKey.PRODUCE, code, FOREVER, topic=REPORTS)
    with pytest.raises(SupersededError):
        late()


@KEPT
def test_a_batch_that_is_done_elsewhere_needs_no_report(
    scene: Scene, query: Query, kept: bool
) -> None:
    other = query.elsewhere()
    first = query if kept else other
    assert commit_of(first, query.owner(), 0, "w0")() is Commit.COMMITTED
    owner = query.owner()
    assert commit_of(other, other.owner(), 1, "n1")() is Commit.COMMITTED
    again = commit_of(query, owner, 1, "w1")
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene.control.answer(ApiKey.PRODUCE, code, FOREVER, topic=REPORTS)
    assert again() is Commit.ALREADY_DONE
