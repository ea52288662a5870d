"""A cluster behind proxies, and Spark drivers to write into it.

``KPROD_FAULT_ROUNDS`` (how often each scenario runs) and ``KPROD_FAULT_NODES`` (1 or 3) are set by
``make faults``; plain pytest runs each scenario once, on one node.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.exactly_once.harness import World, proxied_cluster
from tests.exactly_once.processes import Driver
from tests.exactly_once.results import Results

NODES = int(os.environ.get("KPROD_FAULT_NODES", "1"))
ROUNDS = int(os.environ.get("KPROD_FAULT_ROUNDS", "1"))
_results = Results.from_environment()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Scenarios take ``world``; each runs as often as asked."""
    if ROUNDS > 1 and {"world", "old_world"} & set(metafunc.fixturenames):
        metafunc.fixturenames.append("faults_round")
        metafunc.parametrize("faults_round", range(ROUNDS))


@pytest.fixture
def faults_round() -> int:
    return 0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    if _results is not None:
        _results.add(item, report)
    return report


def pytest_sessionfinish() -> None:
    if _results is not None:
        _results.write()


@pytest.fixture(scope="session")
def _world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with proxied_cluster(NODES, tmp_path_factory.mktemp("exactly-once")) as world:
        yield world


@pytest.fixture
def world(_world: World) -> Iterator[World]:
    """The cluster, with no fault left over from before; each fault that was added has fired."""
    _world.begin()
    yield _world
    _world.end()


@pytest.fixture(scope="session")
def _drivers(_world: World) -> Iterator[list[Driver]]:
    drivers: list[Driver] = []
    yield drivers
    for driver in drivers:
        driver.close()


@pytest.fixture
def new_driver(_world: World, _drivers: list[Driver]) -> Iterator[Callable[..., Driver]]:
    """A driver that the test may kill; closed after the test at the latest."""
    mine: list[Driver] = []

    def make(**options: Any) -> Driver:
        driver = Driver(_world.home, **options)
        mine.append(driver)
        return driver

    yield make
    for driver in mine:
        driver.close()


@pytest.fixture
def driver(_world: World, _drivers: list[Driver]) -> Driver:
    """One that lives on from test to test: a JVM's start is dear."""
    if not _drivers or not _drivers[0].alive:
        _drivers[:1] = [Driver(_world.home)]
    return _drivers[0].wait_until_ready()
