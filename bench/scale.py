"""One producer beside many brokers: ``python -m bench scale``.

The brokers are one process with a listener for each (:class:`bench.batch_cost.Broker`, a fake
cluster that reads no record); connections, Metadata and Produce are real. Measured is the
producer's process: bytes of Metadata, the time until the first record is acknowledged, CPU a row,
connections and memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import selectors
import socket
import subprocess
import sys
import time
from dataclasses import dataclass

from bench.batch_cost import Broker
from bench.engine_ours import ARROW_ROWS, arrow_batches
from bench.engines import ROOT, child
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from tests.fakes.fake_cluster.connection import FakeConnection

TOPIC = "scale"
ROWS = 600_000
_METADATA = 3

#: The figures of a run, and their units.
UNITS = {
    "cpu_us": "us CPU a row",
    "first_ms": "ms to the first acknowledgement",
    "first_cpu_ms": "ms CPU to it",
    "metadata_bytes": "bytes of Metadata",
    "connections": "connections",
    "rows_a_batch": "rows a batch",
    "peak_mib": "MiB peak",
}


@dataclass(frozen=True, slots=True)
class Scale:
    """One run; see :data:`UNITS`."""

    cpu_us: float
    first_ms: float
    first_cpu_ms: float
    metadata_bytes: float
    connections: float
    rows_a_batch: float
    peak_mib: float


def measure(brokers: int, partitions: int) -> Scale:
    """A run in processes of its own."""
    command = (sys.executable, "-m", "bench.scale", "serve", str(brokers), str(partitions))
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        found = child("bench.scale", "write", server.stdout.readline().strip())
        server.stdin.close()  # which ends it
        served = json.loads(server.stdout.readline())
    if served["rows"] != ROWS + 1:
        raise SystemExit(f"the brokers got {served['rows']} rows of {ROWS + 1}")
    figures = {name: float(str(value)) for name, value in (found | served).items()}
    return Scale(**{name: figures[name] for name in UNITS})


def write(bootstrap: str) -> None:
    """The producer; its figures are one line of JSON."""
    batches = arrow_batches(100, 4, 7)
    cpu, start = time.process_time(), time.perf_counter()
    with KafkaProducer({"bootstrap.servers": bootstrap}) as producer:
        producer.start_attempt()
        producer.send_batch(batches[0].slice(0, 1), TOPIC)
        producer.finish_attempt()
        first_ms = 1000 * (time.perf_counter() - start)
        first_cpu_ms = 1000 * (time.process_time() - cpu)
        cpu = time.process_time()
        producer.start_attempt()
        some = itertools.islice(itertools.cycle(batches), ROWS // ARROW_ROWS)
        producer.send_batches(some, TOPIC)
        report = producer.finish_attempt()
        used = time.process_time() - cpu
    figures = {
        "first_ms": first_ms,
        "first_cpu_ms": first_cpu_ms,
        "cpu_us": 1e6 * used / report.rows,
        "rows_a_batch": report.rows / report.batches,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


class Server:
    """Every broker's listener, and all their connections, on one thread."""

    def __init__(self, brokers: int, partitions: int) -> None:
        self._selector = selectors.DefaultSelector()
        self._broker = Broker(brokers)
        self.connections = self.metadata_bytes = 0
        for node in range(1, brokers + 1):
            listener = socket.create_server(("127.0.0.1", 0), backlog=64)
            self._broker.brokers[node] = listener.getsockname()[1]
            self._selector.register(listener, selectors.EVENT_READ, node)
        self._broker.create_topic(TOPIC, partitions)

    def run(self) -> None:
        """Until standard input ends."""
        print(f"127.0.0.1:{self._broker.brokers[1]}", flush=True)
        self._selector.register(sys.stdin, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if not isinstance(key.fileobj, socket.socket):
                    self._end()
                    return
                if isinstance(key.data, int):
                    self._accept(key.fileobj, key.data)
                else:
                    self._serve(key.fileobj, *key.data)

    def _end(self) -> None:
        figures = {
            "rows": self._broker.rows,
            "connections": self.connections,
            "metadata_bytes": self.metadata_bytes,
        }
        print(json.dumps(figures))

    def _accept(self, listener: socket.socket, node: int) -> None:
        connected, _ = listener.accept()
        self.connections += 1
        state = (bytearray(), self._broker.connect(node))
        self._selector.register(connected, selectors.EVENT_READ, state)

    def _serve(self, connected: socket.socket, asked: bytearray, broker: FakeConnection) -> None:
        data = connected.recv(1 << 20)
        if not data:
            self._selector.unregister(connected)
            connected.close()
            return
        asked += data
        while len(asked) >= 4 and len(asked) >= 4 + (size := int.from_bytes(asked[:4], "big")):
            api = int.from_bytes(asked[4:6], "big")
            broker.send(bytes(asked[4 : 4 + size]), 0)
            del asked[: 4 + size]
            for answer in broker.due(0):
                if api == _METADATA:
                    self.metadata_bytes = max(self.metadata_bytes, len(answer))
                connected.sendall(len(answer).to_bytes(4, "big") + answer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["serve", "write"])
    parser.add_argument("arguments", nargs="+")
    args = parser.parse_args()
    if args.part == "write":
        write(*args.arguments)
    else:
        Server(*map(int, args.arguments)).run()


if __name__ == "__main__":
    main()
