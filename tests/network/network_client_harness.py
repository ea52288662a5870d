"""A NetworkClient over a simulated network and a clock that the test moves."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any, Self

from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.client.client_request import ClientResponse
from spark_kafka_sink.network.client.host_resolver import HostResolver
from spark_kafka_sink.network.client.network_client import NetworkClient
from spark_kafka_sink.protocol.cluster import Node
from tests.fakes.clock import FakeClock
from tests.network.simulated import (
    Ask,
    FixedMetadata,
    Frame,
    SimulatedSelectable,
)

NODES = (Node(1, "10.0.0.1", 9092), Node(2, "10.0.0.2", 9092), Node(3, "10.0.0.3", 9092))
NODE = NODES[0]
OK = struct.pack(">i", 0) + b"ok"


def client_config(**config: int) -> ProducerConfig:
    """Java's defaults but for ``config``."""
    parsed = parse_producer_config({"bootstrap.servers": "10.0.0.1:9092", "client.id": "me"})
    return replace(parsed, **config)  # type: ignore[arg-type]  # of numbers


class NetworkClientHarness:
    """A client, its simulated network and its metadata, on a clock that jumps."""

    def __init__(
        self,
        nodes: tuple[Node, ...] = (NODE,),
        *,
        due: bool = False,
        resolve: HostResolver = lambda host: [host],
        **config: int,
    ):
        self.clock = FakeClock()
        self.net = SimulatedSelectable(self.clock)
        self.metadata = FixedMetadata(nodes, due=due)
        self.client = NetworkClient(
            client_config(**config),
            selector=self.net,
            metadata=self.metadata,
            clock=self.clock,
            resolve=resolve,
            random=lambda: 0.5,
        )
        self.responses: list[ClientResponse] = []

    @classmethod
    def ready(cls, *given: Any, **config: Any) -> Self:
        """One whose node takes requests."""
        world = cls(*given, **config)
        world.make_ready()
        return world

    @property
    def now(self) -> int:
        return self.clock.now_ms()

    def poll(self, timeout_ms: int = 0) -> list[ClientResponse]:
        return list(self.client.poll(timeout_ms, self.now))

    def make_ready(self, node: Node = NODE) -> None:
        for _ in range(8):
            if self.client.ready(node, self.now):
                return
            self.poll()
        raise AssertionError("the node does not get ready")

    def ask(self, node: Node = NODE, *, ask: Ask | None = None, **how: object) -> Frame:
        request = self.client.new_client_request(
            node.id, ask or Ask(), self.now, callback=self.responses.append, **how
        )
        self.client.send(request, self.now)
        return self.net.sent[-1]

    def ask_and_write(self, node: Node = NODE, **how: object) -> Frame:
        frame = self.ask(node, **how)
        self.poll()
        return frame
