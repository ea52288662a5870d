"""A test with a ``scene`` is what that plays, in simulated time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.simulation.edge_scene import EdgeScene
from tests.simulation.spark_world import SparkLife


def pytest_itemcollected(item: pytest.Item) -> None:
    if isinstance(item, pytest.Function) and "scene" in item.fixturenames:
        test = item.obj
        item.obj = lambda **given: given["scene"].perform(lambda: test(**given))


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
def scene(request: pytest.FixtureRequest, seed: int, version: int, tells_query: bool) -> EdgeScene:
    """Of one task, unless a mark ``life`` says something else."""
    life = SparkLife(seed, tasks=1, transaction_version=version)
    marker = request.node.get_closest_marker("life")
    changed = {} if marker is None else marker.kwargs
    return EdgeScene(replace(life, **changed), tells_query=tells_query)
