"""The sums of docs/tuning.md, beside a real executor's Python worker."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psutil
import pytest

from tests.datasource.standalone_cluster import JOB
from tests.datasource.sums_of_a_write import Load
from tests.exactly_once.checker import offsets
from tests.programs import is_python
from tests.waiting import PATIENCE

MIB = 1024 * 1024
#: What the figures promise.
WITHIN = 0.15
#: The brokers stand still until the worker grows no more.
STEADY_S = 3.0 * PATIENCE

# Three brokers, a cluster of Spark's, and two jobs: a minute and a half.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@contextmanager
def frozen(nodes) -> Iterator[None]:
    for node in nodes:
        node.freeze()
    try:
        yield
    finally:
        for node in nodes:
            node.thaw()


def has_rows(kafka, topic: str) -> bool:
    return any(end for end, _ in offsets(kafka.bootstrap, [topic]).values())


class Watch:
    """A worker's resident bytes, its connections to brokers and the driver's, at their most."""

    def __init__(self, cluster, ports: set[int]) -> None:
        self._cluster, self._ports = cluster, ports
        self.peak = self.connections = self.driver_connections = 0

    def look(self) -> int:
        """Resident bytes of the worker that has a connection; 0 while none has."""
        of_executors = self._cluster.python_processes()
        others = set(psutil.Process().children(recursive=True)) - set(of_executors)
        of_driver = [self._to_brokers(one) for one in others if is_python(one)]
        self.driver_connections = max(self.driver_connections, sum(of_driver))
        for process in of_executors:
            count = self._to_brokers(process)
            if count:
                self.connections = max(self.connections, count)
                with suppress(psutil.Error):
                    resident = process.memory_info().rss
                    self.peak = max(self.peak, resident)
                    return resident
        return 0

    def _to_brokers(self, process: psutil.Process) -> int:
        with suppress(psutil.Error):
            there = [c.raddr.port for c in process.net_connections("tcp") if c.raddr]
            return len([port for port in there if port in self._ports])
        return 0

    def until_steady(self, job: Future[str]) -> None:
        """Until the worker has been of one size for a while."""
        size, since = 0, time.monotonic()
        while time.monotonic() < since + STEADY_S:
            assert not job.done(), job.result()
            found = self.look()
            if abs(found - size) > MIB or not found:
                size, since = found, time.monotonic()
            time.sleep(0.05)


@pytest.mark.parametrize(
    ("memory", "partitions", "leaders"), [(32 * MIB, 1, 1), (128 * MIB, 48, 3)], ids=["32", "128"]
)
def test_a_workers_memory_and_connections_match_kprod_size(
    cluster, wheel, kafka3, memory, partitions, leaders
):
    topic = kafka3.unique_topic("size", partitions=partitions)
    watch = Watch(cluster, {int(one.rpartition(":")[2]) for one in kafka3.bootstrap.split(",")})
    rows = (2 * memory + 200 * MIB) // 1000
    arguments = ("memory", kafka3.bootstrap, topic, str(memory), str(rows))
    with ThreadPoolExecutor(1) as pool:
        job = pool.submit(cluster.submit, JOB, *arguments, py_files=wheel)
        # A connection alone may be the one that is asked for metadata: rows are there, too.
        while watch.connections < leaders or not has_rows(kafka3, topic):
            assert not job.done(), job.result()
            watch.look()
            time.sleep(0.02)
        with frozen(kafka3.cluster.nodes):
            watch.until_steady(job)
        while not job.done():
            watch.look()
            time.sleep(0.05)
    told = json.loads(job.result().splitlines()[-1])
    assert told["bufferWaitMs"] > 1000 * STEADY_S / 2  # it was full: that is what is counted
    load = Load(tasks=1, leaders=leaders, buffer_memory=memory, row_bytes=1000)
    print(f"worker {watch.peak / MIB:.0f} MiB, said {load.worker / MIB:.0f};", end=" ")
    print(f"connections {watch.connections}, the driver's {watch.driver_connections}")
    assert abs(watch.peak / load.worker - 1) <= WITHIN
    # The broker that was asked first, and a transaction's coordinator, may be others, which lead
    # nothing of the topic.
    assert leaders <= watch.connections <= min(leaders + 2, 3)
    everyone = Load(tasks=1, leaders=3)
    assert 1 <= watch.driver_connections <= everyone.driver_connections
