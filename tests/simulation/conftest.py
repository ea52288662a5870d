"""The fixture ``scene``: its test is a play, in simulated time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.scene import Scene
from tests.simulation.spark_world import SparkLife


@pytest.fixture
def version() -> int:
    """Of the cluster's transactions; parametrize it to have both."""
    return 2


@pytest.fixture
def seed() -> int:
    return 1


@pytest.fixture
def tells_query() -> bool:
    return True


@pytest.fixture
def scene(request: pytest.FixtureRequest, seed: int, version: int, tells_query: bool) -> Scene:
    """Of one task, unless a mark ``life`` says something else."""
    life = SparkLife(seed, tasks=1, transaction_version=version)
    return Scene(replace(life, **marked(request)), tells_query=tells_query)


def marked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the test's mark ``life``."""
    marker = request.node.get_closest_marker("life")
    return {} if marker is None else dict(marker.kwargs)
