"""For several modules: a standalone cluster of Spark's, and our wheel for its jobs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.datasource.standalone_cluster import standalone_cluster

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="package")
def cluster(tmp_path_factory):
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="package")
def wheel(tmp_path_factory):
    """The wheel, under a name that Spark puts on the path of Python: it passes a .whl over."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder))
    subprocess.run(build, cwd=ROOT, capture_output=True, check=True)
    (built,) = folder.glob("*.whl")
    return built.rename(folder / "spark_kafka_sink.zip")
