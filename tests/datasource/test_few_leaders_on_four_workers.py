"""Few leaders in a standalone Spark of four workers, before three real nodes: sockets counted."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.datasource.standalone_cluster import standalone_cluster

# A master, four workers, three nodes; a driver and four executors for each of three jobs.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

JOB = Path(__file__).with_name("connections_job.py")
HOSTS = ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
#: Each leader has twelve of the topic's partitions, so each task of ``by_leader`` has one leader.
CORES, PARTITIONS, ROWS = 3, 36, 40_000
TASKS = CORES * len(HOSTS)


def test_twelve_tasks_have_twelve_connections_or_thirty_six(wheel, kafka3, consume, tmp_path):
    few = "maxLeadersPerTask=1"
    expected = {(): 3, (few,): 1, ("by_leader=1", few): 1, ("by_leader=1",): 2}
    with standalone_cluster(tmp_path / "spark", HOSTS, CORES) as cluster:
        for number, (given, most) in enumerate(expected.items()):
            topic = kafka3.unique_topic("leaders", PARTITIONS)
            folder = tmp_path / f"begun {number}"
            folder.mkdir()
            arguments = (kafka3.bootstrap, topic, str(TASKS), str(folder), *given)
            output = cluster.submit(JOB, *arguments, py_files=wheel)
            workers = json.loads(output.splitlines()[-1])
            print(given, workers)
            of_brokers = Counter(port for ports in workers for port in ports)
            assert len(workers) == TASKS, given
            assert len(of_brokers) == 3, given
            if most == 2:  # the leader's, and another one's if that gave the producer's id
                assert {len(ports) for ports in workers} <= {1, 2}
            else:
                assert {len(ports) for ports in workers} == {most}, given
                assert min(of_brokers.values()) >= TASKS * most // 3 - 1, given
            assert sorted(map(int, consume(topic).values)) == list(range(ROWS))
