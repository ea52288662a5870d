"""A stream of small micro-batches that runs for long: nothing grows with their number.

A minute in the long ring; ``make soak MINUTES=20`` is the whole. Looked at are memory, threads,
files and sockets of the Python processes, transactional ids, the log, and files in the
application's local directory. Java's memory is Spark's own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import psutil
import pytest

from tests.exactly_once import checker
from tests.exactly_once.harness import Scenario
from tests.exactly_once.processes import Driver
from tests.programs import is_python
from tests.waiting import wait_for

MINUTES = float(os.environ.get("KPROD_SOAK_MINUTES", "1"))
#: Where each look is written to, as a line of JSON.
KEPT = Path(os.environ["KPROD_SOAK_LOOKS"]) if "KPROD_SOAK_LOOKS" in os.environ else None
ROWS = 20
#: Micro-batches between two looks.
STEP = 5
MIB = 1024 * 1024

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.timeout(60 * MINUTES + 600)]


@dataclass(frozen=True, slots=True)
class Look:
    """What there is after a number of micro-batches; memory in MiB."""

    batches: int
    seconds: float
    processes: int
    largest_mib: float
    all_mib: float
    threads: int
    files: int
    sockets: int
    ids: int
    warnings: int
    log_bytes: int
    left_behind: int


#: By how much more each may be in the last quarter than in the second one: what a collection of
#: garbage, or a worker that Spark starts in place of an idle one, makes of it.
MORE = {
    "processes": 1,
    "largest_mib": 8,
    "all_mib": 24,
    "threads": 6,
    "files": 12,
    "sockets": 6,
    "ids": 2,
    # A broker on a busy machine may answer late; a warning for each micro-batch is a fault.
    "warnings": 10,
    "left_behind": 1,
}


def look(driver: Driver, scenario: Scenario, batches: int, begun: float) -> Look:
    resident, threads, files, sockets = [], 0, 0, 0
    for process in driver.tree():
        with suppress(psutil.Error):
            if is_python(process):
                memory = process.memory_info().rss / MIB
                threads += process.num_threads()
                files += process.num_fds()
                sockets += len(process.net_connections("tcp"))
                resident.append(memory)
    text = driver.log.read_bytes()
    return Look(
        batches=batches,
        seconds=round(time.monotonic() - begun, 1),
        processes=len(resident),
        largest_mib=round(max(resident), 1),
        all_mib=round(sum(resident), 1),
        threads=threads,
        files=files,
        sockets=sockets,
        ids=len(checker.transactions(scenario.world.direct, scenario.prefix)),
        warnings=text.count(b"[KP"),
        log_bytes=len(text),
        left_behind=left_behind(driver.home / "local"),
    )


def left_behind(folder: Path) -> int:
    """Our files and directories; each batch makes one, which may go while this looks."""
    names = [name for _, folders, files in os.walk(folder) for name in (*folders, *files)]
    return len([name for name in names if name.startswith(".kprod")])


def highest(looks: list[Look], name: str) -> float:
    return float(max(getattr(one, name) for one in looks))


@pytest.fixture
def alone(_world) -> Iterator[Driver]:
    """A driver with no past."""
    driver = Driver(_world.home)
    yield driver.wait_until_ready()
    driver.close()


def test_nothing_grows_with_the_number_of_micro_batches(world, alone):
    scenario, driver = world.scenario("soak"), alone
    stop = scenario.home / "stop"
    command = scenario.stream(rows=ROWS, stop=str(stop), tasks=2)
    driver.begin("stream", **command)
    begun, looks = time.monotonic(), []
    while time.monotonic() < begun + 60 * MINUTES or len(looks) < 12:
        wanted = (looks[-1].batches if looks else 0) + STEP
        wait_for(lambda at=wanted: scenario.checkpointed() >= at or driver.has_answered, 300)
        assert not driver.has_answered, driver.answer()
        looks.append(look(driver, scenario, scenario.checkpointed(), begun))
        if KEPT is not None:
            with KEPT.open("a") as kept:
                kept.write(json.dumps(asdict(looks[-1])) + "\n")
    stop.touch()
    answer = driver.answer()
    assert answer["result"] == "OK", answer
    print(f"{looks[-1].batches} micro-batches in {looks[-1].seconds} s:")
    quarter = len(looks) // 4
    early, late = looks[quarter : 2 * quarter], looks[-quarter:]
    shown = {one.name: (highest(early, one.name), highest(late, one.name)) for one in fields(Look)}
    print(shown)
    told = driver.log.read_text(errors="replace").splitlines()
    print(*(line[:300] for line in told if "[KP" in line), sep="\n")
    grown = {
        name: shown[name] for name, more in MORE.items() if shown[name][1] > shown[name][0] + more
    }
    assert not grown, f"(second quarter, last quarter): {grown}"
    # Spark's own lines included, a micro-batch costs as many at the end as at the beginning.
    assert bytes_of_a_batch(late) <= 1.2 * bytes_of_a_batch(early) + 500
    assert scenario.assert_clean().visible >= (scenario.committed() + 1) * ROWS


def bytes_of_a_batch(looks: list[Look]) -> float:
    first, last = looks[0], looks[-1]
    return (last.log_bytes - first.log_bytes) / (last.batches - first.batches)
