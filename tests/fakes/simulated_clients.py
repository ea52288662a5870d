"""Kafka clients over simulated networks, for worlds of one process in simulated time."""

from __future__ import annotations

import random

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.network.client.network_client import NetworkClient
from tests.fakes.fake_cluster import FakeCluster
from tests.fakes.simulated_network import NetworkFaults, SimulatedNetwork
from tests.simulation.scheduler import Scheduler


class SimulatedClients:
    """Makes clients of ``cluster``, each with a network of its own.

    ``fate`` decides latencies and faults; a change of ``faults`` is for later clients only.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        scheduler: Scheduler,
        fate: random.Random,
        faults: NetworkFaults,
    ) -> None:
        self.cluster = cluster
        self.scheduler = scheduler
        self.fate = fate
        self.faults = faults
        self.networks: list[SimulatedNetwork] = []

    def new_client(self, config: ProducerConfig, metadata: Metadata, clock: Clock) -> NetworkClient:
        """The ``new_client`` of a producer, of a driver and of a transaction client."""
        network = SimulatedNetwork(
            self.scheduler, self.cluster, self.cluster.ports, self.fate, self.faults
        )
        self.networks.append(network)
        self.scheduler.sources.append(network)
        return new_network_client(config, metadata, clock, selector=network)
