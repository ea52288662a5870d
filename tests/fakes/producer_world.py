"""Whole producers on one thread and a clock that jumps, before a fake cluster that reports what it
was asked: for what a producer does *not* say on the wire.

``ProducerWorld.run`` runs a test's body as the writer; inside, time passes only when it waits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from spark_kafka_sink.base.clock import Clock
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.network.client.network_client import NetworkClient
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.protocol.cluster import Cluster, TopicPartition
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.protocol.request import ApiKey
from spark_kafka_sink.records.column_plan import ColumnPlan
from spark_kafka_sink.records.record_columns import RecordColumns, from_record_batch
from tests.fakes.fake_cluster import FakeCluster
from tests.fakes.fake_cluster.codec import Request
from tests.fakes.fake_cluster.control import Fault, Kind
from tests.fakes.fake_cluster.outcome import Outcome
from tests.fakes.simulated_network import NetworkFaults, SimulatedNetwork
from tests.simulation.scheduler import Scheduler

INIT, END = 22, 26


class ListeningCluster(FakeCluster):
    """``asked``: InitProducerId and EndTxn as they came, by transactional id; ``arrived``: each
    request, by the time of its arrival.
    """

    def __init__(self, nodes: int = 1, **given: Any) -> None:
        super().__init__(nodes, **given)
        self.asked: list[tuple[str, str]] = []
        self.arrived: list[tuple[int, str]] = []

    def _work(self, request: Request, node: int, faults: dict[Kind, Fault]) -> Outcome:
        self.arrived.append((self.now, ApiKey(request.api).name))
        if request.api == INIT:
            self.asked.append(("init", request.body.transactional_id))
        elif request.api == END:
            what = "commit" if request.body.committed else "abort"
            self.asked.append((what, request.body.transactional_id))
        return super()._work(request, node, faults)


class AlwaysMost(random.Random):
    """Every latency is the longest, so that all of them are the same."""

    def randint(self, a: int, b: int) -> int:
        return b


class ProducerWorld:
    """One broker, or ``nodes``, with the topic ``t`` of two partitions; any number of producers."""

    def __init__(self, *, transaction_version: int = 2, latency_ms: int = 0, **given: Any) -> None:
        """``latency_ms``: how long each request and each answer takes."""
        self.cluster = ListeningCluster(transaction_version=transaction_version, **given)
        self.scheduler = Scheduler(random.Random(0), preemption=0.0)
        self.networks: list[SimulatedNetwork] = []
        self._faults = NetworkFaults(latency_ms=latency_ms)
        self.cluster.create_topic("t", 2)
        self._made: list[KafkaProducer] = []
        self.config = parse_producer_config(
            {"bootstrap.servers": "127.0.0.1:9093", "linger.ms": "0", "max.block.ms": "10000"}
        )

    @property
    def asked(self) -> list[tuple[str, str]]:
        return self.cluster.asked

    def connections(self) -> int:
        """How many producers ever opened one."""
        return sum(bool(network.polls) for network in self.networks)

    def producer(self, transactional_id: str, **options: Any) -> KafkaProducer:
        return self.of(replace(self.config, transactional_id=transactional_id, **options))

    def of(self, config: ProducerConfig, cluster: Cluster | None = None) -> KafkaProducer:
        producer = KafkaProducer(
            config,
            cluster=cluster,
            clock=self.scheduler,
            new_client=self.new_client,
            start_thread=self.scheduler.start,
        )
        self._made.append(producer)
        return producer

    def new_client(self, config: ProducerConfig, metadata: Metadata, clock: Clock) -> NetworkClient:
        """The ``new_client`` of a producer, with a network of its own."""
        network = SimulatedNetwork(
            self.scheduler, self.cluster, self.cluster.ports, AlwaysMost(0), self._faults
        )
        self.networks.append(network)
        self.scheduler.sources.append(network)
        return new_network_client(config, metadata, clock, selector=network)

    def run(self, body: Callable[[], None]) -> None:
        """``body`` once; then everything that it left open is closed."""

        def whole() -> None:
            try:
                body()
            finally:
                for producer in self._made:
                    producer.close(0)

        self.scheduler.run(whole)

    def end(self, prepared: PreparedTransaction, *, commit: bool = True) -> None:
        """What the driver does, and time enough for the markers."""
        error, _, _ = self.cluster.transactions.end(
            prepared.transactional_id,
            (prepared.producer_id, prepared.producer_epoch),
            commit=commit,
            version=prepared.transaction_version if prepared.transaction_version == 2 else 0,
            now=self.cluster.now,
        )
        assert error.name == "NONE", error
        self.scheduler.sleep(100)

    def state_of(self, transactional_id: str) -> str:
        found = self.cluster.transactions.find(transactional_id)
        return "none" if found is None else found.state.value

    def values(self, *, committed: bool = True) -> list[bytes]:
        """Of both partitions, sorted."""
        logs = (self.cluster.logs[TopicPartition("t", p)] for p in (0, 1))
        return sorted(v for log in logs for v in log.values(committed=committed) if v is not None)


def rows(*values: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(values, pa.string())], names=["value"])


PLAN = ColumnPlan(topic="t", value_column=0)


def columns(*values: str) -> RecordColumns:
    return from_record_batch(rows(*values), PLAN, 1_700_000_000_000)


def texts(*values: str) -> Sequence[bytes]:
    return sorted(value.encode() for value in values)
