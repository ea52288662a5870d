"""A driver's transaction clients over simulated networks, in simulated time, on a fake cluster."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from tests.fakes.fake_cluster import FakeCluster
from tests.fakes.simulated_clients import SimulatedClients
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.scheduler import Scheduler

T = TypeVar("T")


class DriverWorld(SimulatedClients):
    """Each :meth:`client` is a process of its own. Only :meth:`run` lets time pass."""

    def __init__(
        self,
        cluster: FakeCluster,
        *,
        seed: int = 0,
        faults: NetworkFaults | None = None,
        clock: Callable[[Scheduler], Clock] = lambda scheduler: scheduler,
    ) -> None:
        super().__init__(
            cluster,
            Scheduler(random.Random(f"turns {seed}"), preemption=0.0),
            random.Random(f"network {seed}"),
            NetworkFaults(latency_ms=1) if faults is None else faults,
        )
        self.seed = seed
        self.clock = clock(self.scheduler)
        cluster.on_down = self._down

    def _down(self, node: int) -> None:
        for network in self.networks:
            network.cut_all(node)

    def client(self, options: dict[str, str] | None = None) -> TransactionClient:
        addresses = ",".join(f"127.0.0.1:{port}" for port in self.cluster.ports)
        config = ProducerConfig.parse({"bootstrap.servers": addresses, **(options or {})})
        return TransactionClient(config, clock=self.clock, new_client=self.new_client)

    @property
    def fired(self) -> Counter[str]:
        return sum((network.fired for network in self.networks), Counter())

    def run(self, main: Callable[[], T]) -> T:
        """What ``main`` gives or raises; once."""
        found: list[T] = []
        # The product's jitters and starting points come from the module's own generator.
        before = random.getstate()
        random.seed(self.seed)
        try:
            self.scheduler.run(lambda: found.append(main()))
        finally:
            random.setstate(before)
        return found[0]

    def after(self, milliseconds: int, event: Callable[[], None]) -> None:
        self.cluster.at(self.scheduler.now + milliseconds, event)

    def soon(self, milliseconds: int = 60_000) -> int:
        return self.scheduler.now + milliseconds


def data_ids(count: int, prefix: str = "p") -> Sequence[str]:
    return [f"{prefix}~run~{i}" for i in range(count)]
