"""The files that a commit passes from Spark's call to EndTxn are those that DESIGN lists."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

from tests.simulation.scene import Scene
from tests.simulation.scene_requests import ends_data

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "spark_kafka_sink"


def running() -> list[Path]:
    """The files of the calls that are running, the first call first."""
    return [Path(frame.filename) for frame in traceback.extract_stack()]


def listed_in_design() -> list[str]:
    way = (ROOT / "DESIGN.md").read_text().split("From Spark's call to EndTxn")[1]
    return re.findall(r"`([a-z_/]+\.py)`", way.split("\n\n")[0])


def test_a_commit_passes_the_files_that_design_lists(scene: Scene) -> None:
    """Each once, and no room again that it has left."""
    passed: list[Path] = []
    run = scene.run("run-0")
    scene.before_send(run, ends_data, lambda: passed.extend(running()))
    scene.job(run, scene.options(), 0)
    # What Spark calls is above the scene, and the network client is the same for every request.
    inside = [str(p.relative_to(PACKAGE)) for p in passed if p.is_relative_to(PACKAGE)]
    way = ["datasource/source.py", *dict.fromkeys(inside)]
    way = way[: way.index("network/client/network_client.py")]
    assert way == listed_in_design()
    assert len(way) <= 8
    rooms = [name.split("/")[0] for name in way]
    assert rooms == sorted(rooms, key=rooms.index)
    scene.ends_with(0)
