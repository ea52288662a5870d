"""The outcome in the report of a batch that is aborted after its commit has begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.base.errors import KafkaError
from spark_kafka_sink.datasource.foreach_batch import foreach_batch
from tests.simulation import test_edges_reports as reporting
from tests.simulation.scene import VERSIONS, Scene
from tests.simulation.spark_checkpoints import Checkpoints
from tests.simulation.spark_world import QUERY
from tests.simulation.test_edges_reports import (
    REPORTS,
    last_outcome,
    reports,
)

pytestmark = [VERSIONS, pytest.mark.life(tasks=2, rows=2, new_worker=1.0)]
topic, local, cut_off = reporting.topic, reporting.local, reporting.cut_off


# -- which batch carries its report ---------------------------------------------------------------


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
