"""The files that a commit passes from Spark's call to EndTxn are those that DESIGN lists."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.codec import Request
from tests.simulation.edge_scene import EdgeScene

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_kafka_sink"


def running() -> list[Path]:
    """The files of the calls that are running, the first call first."""
    return [Path(frame.filename) for frame in traceback.extract_stack()]


def listed_in_design() -> list[str]:
    way = (ROOT / "DESIGN.md").read_text().split("From Spark's call to EndTxn")[1]
    return re.findall(r"`([a-z_/]+\.py)`", way.split("\n\n")[0])


def test_a_commit_passes_the_files_that_design_lists() -> None:
    """Each once, and no room again that it has left."""
    passed: list[Path] = []

    def play(scene: EdgeScene) -> None:
        def ends_rows(request: Request) -> bool:
            return request.api == ApiKey.END_TXN and "~~" not in request.body.transactional_id

        run = scene.run("run-0")
        scene.before_send(run, ends_rows, lambda: passed.extend(running()))
        scene.job(run, scene.options(), 0)

    assert EdgeScene.of(play).batches() == {0}
    inside = [str(p.relative_to(PACKAGE)) for p in passed if p.is_relative_to(PACKAGE)]
    # What Spark calls is above the scene, and the network client is the same for every request.
    way = ["datasource/source.py", *dict.fromkeys(inside)]
    way = way[: way.index("network/client/network_client.py")]
    assert way == listed_in_design()
    assert len(way) <= 8
    rooms = [name.split("/")[0] for name in way]
    assert rooms == sorted(rooms, key=rooms.index)
