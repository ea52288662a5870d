"""What a batch costs in calls, by stage: ``python -m bench.batch_cost``.

Counts the calls of Python functions and of C functions that one batch takes on its way, with a
profile hook in both threads, from the Arrow batch to the acknowledgement and back. The producer is
whole, with its selector and epoll; its connections are pairs of sockets to a fake broker in this
process. The two threads take turns and time stands still while they work, so that the same code
gives the same numbers whatever else the machine does: ``tests/producer/test_batch_cost.py`` holds
the bounds.

Numpy's and Arrow's own loops, and system calls, are a call each: this is what the interpreter
costs, not what copying does. ``-v`` lists the functions.
"""

from __future__ import annotations

import socket
import struct
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.engine_ours import ARROW_ROWS, arrow_batches
from spark_kafka_sink.base.clock import NEVER, Clock, Latch
from spark_kafka_sink.config.parsing import parse_producer_config
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.network.auth.authenticator import PlaintextAuthenticator
from spark_kafka_sink.network.channel.channel_builder import ChannelBuilder
from spark_kafka_sink.network.channel.kafka_channel import KafkaChannel
from spark_kafka_sink.network.channel.poller import new_poller
from spark_kafka_sink.network.channel.selector import Selector
from spark_kafka_sink.network.channel.wakeup_pipe import WakeupPipe
from spark_kafka_sink.network.client.client_factory import new_network_client
from spark_kafka_sink.network.client.in_flight_requests import InFlightRequest
from spark_kafka_sink.network.client.kafka_client import KafkaClient
from spark_kafka_sink.network.client.metadata import Metadata
from spark_kafka_sink.network.client.network_client import NetworkClient
from spark_kafka_sink.network.frame_reader import FrameReader
from spark_kafka_sink.network.transport_layer import PlaintextTransportLayer
from spark_kafka_sink.producer.accumulator.batch_drainer import BatchDrainer
from spark_kafka_sink.producer.accumulator.batch_filler import BatchFiller
from spark_kafka_sink.producer.accumulator.producer_batch import ProducerBatch
from spark_kafka_sink.producer.column_appender import ColumnAppender
from spark_kafka_sink.producer.kafka_producer import KafkaProducer
from spark_kafka_sink.producer.lifecycle import NetworkLink
from spark_kafka_sink.producer.metrics.producer_metrics import ProducerMetrics
from spark_kafka_sink.producer.sender.sender import Sender
from spark_kafka_sink.records.record_columns import ColumnPlan, from_record_batch
from tests.fakes.fake_cluster import FakeCluster
from tests.fakes.fake_cluster.outcome import Outcome

#: Stages of a batch's way, and the functions that each begins with. What these call belongs to the
#: stage, but for what is named here itself.
STAGES: dict[str, tuple[Callable[..., Any], ...]] = {
    "encode": (KafkaProducer.send_columns, ColumnAppender.append),
    "append": (BatchFiller.positions, BatchFiller.append),
    "close": (BatchFiller.claim, BatchFiller.close_claimed, BatchFiller.finish_closing),
    "drain": (BatchDrainer.ready, BatchDrainer.drain),
    "header": (ProducerBatch.set_producer_state,),
    "request": (Sender._send_produce_request, KafkaChannel.write),  # noqa: SLF001 - its code only
    "response": (KafkaChannel.read, InFlightRequest.parse),
    "completion": (Sender._handle_produce_response,),  # noqa: SLF001
    "loop turns": (Sender.run, Sender.run_once, NetworkClient.poll, Selector.poll),
    "wakeups": (NetworkLink.wakeup, WakeupPipe.consume),
    "metrics": (
        ProducerMetrics.request_sent, ProducerMetrics.request_answered, ProducerMetrics.polled,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    name: str
    value_size: int
    partitions: int
    #: Arrow batches of 10 000 rows that are counted.
    batches: int


CASES = (
    Case("1 KB, 12 partitions", 1024, 12, 8),
    Case("100 B, 1000 partitions", 100, 1000, 48),
)


@dataclass
class Cost:
    """Calls by stage, and what they were made for."""

    python: Counter[str] = field(default_factory=Counter)
    c: Counter[str] = field(default_factory=Counter)
    #: By function, for who looks for the next one to mend.
    functions: Counter[str] = field(default_factory=Counter)
    #: Of the network thread.
    network_python: int = 0
    network_c: int = 0
    batches: int = 0
    requests: int = 0

    @property
    def python_per_batch(self) -> float:
        return self.python.total() / self.batches

    @property
    def c_per_batch(self) -> float:
        return self.c.total() / self.batches


class Turns:
    """The clock of both threads, one of which works at a time. A turn ends with a wait.

    Time goes on only when both wait.
    """

    def __init__(self, cost: Cost) -> None:
        self._now = 1_000_000
        self._changed = threading.Condition()
        self._whose = threading.get_ident()
        self._wants: dict[int, tuple[Callable[[], bool], int]] = {}
        self.counter = Counting(cost)

    # -- Clock --

    def now_ms(self) -> int:
        self.counter.clock_read()
        return self._now

    def wall_ms(self) -> int:
        """Once for each chunk: the moment at which the network thread gets its turn."""
        self.counter.clock_read()
        self.block(lambda: True, NEVER)
        return 1_700_000_000_000 + self._now

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        self.counter.clock_read()
        self.block(lambda: latch.is_open, deadline_ms)
        return latch.wait(0)

    # -- turns --

    def block(self, ready: Callable[[], bool], deadline_ms: int) -> None:
        """Let the other thread work until it waits; then go on when ``ready``, or late enough."""
        with self.counter.paused(), self._changed:
            me = threading.get_ident()
            self._wants[me] = (ready, deadline_ms)
            self._pass_on(me)
            while self._whose != me:
                self._changed.wait()
            del self._wants[me]

    def _pass_on(self, me: int) -> None:
        while True:
            for thread in sorted(self._wants, key=lambda thread: thread == me):  # the other first
                ready, deadline = self._wants[thread]
                if ready() or deadline <= self._now:
                    self._whose = thread
                    self._changed.notify_all()
                    return
            nearest = min((deadline for _, deadline in self._wants.values()), default=NEVER)
            assert nearest < NEVER, "both threads wait, and nothing will come"
            self._now = nearest

    def start(self, run: Callable[[], None], name: str) -> NetworkThread:
        """KafkaProducer's ``start_thread``: it begins with the first turn that it gets."""
        begun = threading.Event()

        def body() -> None:
            with self._changed:
                me = threading.get_ident()
                self._wants[me] = (lambda: True, NEVER)
                begun.set()
                while self._whose != me:
                    self._changed.wait()
                del self._wants[me]
            self.counter.install(network=True)
            try:
                run()
            finally:
                sys.setprofile(None)
                handle.ended = True
                with self._changed:
                    self._pass_on(me)

        handle = NetworkThread(self)
        threading.Thread(target=body, name=name, daemon=True).start()
        begun.wait()
        return handle


class NetworkThread:
    """What KafkaProducer needs of its thread: a join lets it work."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.ended = False

    def is_alive(self) -> bool:
        return not self.ended

    def join(self, timeout: float | None = None) -> None:
        late = NEVER if timeout is None else self._turns.now_ms() + int(timeout * 1000)
        self._turns.block(lambda: self.ended, late)


class Counting:
    """The profile hook. ``on`` is False until warm."""

    def __init__(self, cost: Cost) -> None:
        self.on = False
        self._cost = cost
        self._threads = threading.local()
        self._stage_of: dict[CodeType, str] = {
            function.__code__: stage
            for stage, functions in STAGES.items()
            for function in functions
        }
        self._pauses: dict[int, int] = defaultdict(int)

    def install(self, *, network: bool) -> None:
        cost, stage_of, pauses = self._cost, self._stage_of, self._pauses
        me = threading.get_ident()
        stages = ["loop turns" if network else "encode"]
        self._threads.stages, self._threads.network = stages, network

        def hook(frame: FrameType, event: str, arg: object) -> None:
            code = frame.f_code
            if event == "return":
                if code in stage_of:
                    stages.pop()
                return
            if event == "call" and code in stage_of:
                stages.append(stage_of[code])
            if not self.on or pauses[me] or code.co_filename == __file__:
                return
            if event == "call":
                cost.python[stages[-1]] += 1
                cost.network_python += network
                cost.functions[f"{stages[-1]}: {code.co_qualname}"] += 1
            elif event == "c_call":
                cost.c[stages[-1]] += 1
                cost.network_c += network
                cost.functions[f"{stages[-1]}: C {getattr(arg, '__qualname__', arg)}"] += 1

        sys.setprofile(hook)

    def clock_read(self) -> None:
        """As the machine's clock would count it: a function of ours, and one of time's."""
        if not self.on or self._pauses[threading.get_ident()]:
            return
        stage, cost = self._threads.stages[-1], self._cost
        cost.python[stage] += 1
        cost.c[stage] += 1
        cost.network_python += self._threads.network
        cost.network_c += self._threads.network
        cost.functions[f"{stage}: clock"] += 1

    def paused(self) -> _Pause:
        return _Pause(self._pauses, threading.get_ident())


class _Pause:
    def __init__(self, pauses: dict[int, int], thread: int) -> None:
        self._pauses, self._thread = pauses, thread

    def __enter__(self) -> None:
        self._pauses[self._thread] += 1

    def __exit__(self, *exc: object) -> None:
        self._pauses[self._thread] -= 1


class Broker(FakeCluster):
    """Reads no record: Produce is answered for what its headers say."""

    def work(self, node: int, frame: bytes, now: int) -> Outcome:
        (api, version) = struct.unpack_from(">hh", frame)
        if api:
            return super().work(node, frame, now)
        assert version == 12
        return Outcome(self._produced(frame))

    def _produced(self, frame: bytes) -> bytes:
        at = 10 + max(0, struct.unpack_from(">h", frame, 8)[0]) + 1
        _, at = _string(frame, at)  # transactional id
        topics, at = _varint(frame, at + 6)
        out = bytearray(frame[4:8] + b"\0" + bytes([topics]))
        for _ in range(topics - 1):
            name, at = _string(frame, at)
            count, at = _varint(frame, at)
            out += bytes([len(name) + 1]) + name
            out += (
                struct.pack("B", count) if count < 128 else bytes([count & 127 | 128, count >> 7])
            )
            for _ in range(count - 1):
                (partition,) = struct.unpack_from(">i", frame, at)
                size, at = _varint(frame, at + 4)
                records = struct.unpack_from(">i", frame, at + 57)[0]
                at += size  # of which one is the tagged fields': the size counts one too many
                offset = self._offsets[name, partition]
                self._offsets[name, partition] += records
                self.rows += records
                out += struct.pack(">ihqqq", partition, 0, offset, -1, 0) + b"\1\0\0"
            at += 1
            out += b"\0"
        return bytes(out + b"\0\0\0\0\0")

    def __init__(self, nodes: int = 1) -> None:
        super().__init__(nodes)
        self._offsets: dict[tuple[bytes, int], int] = defaultdict(int)
        self.rows = 0


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _varint(data, at)
    return data[at : at + size - 1], at + max(0, size - 1)


class Wires(ChannelBuilder):
    """A ChannelBuilder whose channels lead to the broker, by pairs of sockets."""

    def __init__(self, broker: Broker, turns: Turns) -> None:
        super().__init__()
        self._broker = broker
        self._turns = turns
        self._ends: list[tuple[socket.socket, bytearray, Any]] = []

    def build_channel(
        self, node_id: int, host: str, remote: str, sock: socket.socket
    ) -> KafkaChannel:
        sock.close()
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 131_072)  # as send.buffer.bytes
        self._ends.append((theirs, bytearray(), self._broker.connect(1)))
        transport = PlaintextTransportLayer(ours)
        return KafkaChannel(node_id, remote, transport, PlaintextAuthenticator(), FrameReader())

    def attach(self, wakeup: Callable[[], None]) -> None:
        """Nobody ever waits."""

    def close(self) -> None:
        for end, _, _ in self._ends:
            end.close()

    def serve(self) -> None:
        """The broker reads and answers all that has come."""
        for end, asked, connection in self._ends:
            while True:
                try:
                    data = end.recv(1 << 20)
                except BlockingIOError:
                    break
                asked.extend(data)
            while len(asked) >= 4:
                size = int.from_bytes(asked[:4], "big")
                if len(asked) < 4 + size:
                    break
                connection.send(bytes(asked[4 : 4 + size]), 0)
                del asked[: 4 + size]
            for answer in connection.due(0):
                end.sendall(len(answer).to_bytes(4, "big") + answer)


class TakingTurns:
    """The broker is asked, and the writer gets its turn, when nothing has happened yet."""

    def __init__(self, turns: Turns, wires: Wires) -> None:
        self._turns, self._wires = turns, wires
        poller = self._poller = new_poller()
        self.register, self.modify, self.unregister = (
            poller.register, poller.modify, poller.unregister
        )  # fmt: skip
        self.close = poller.close

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        with self._turns.counter.paused():
            happened = self._poller.poll(0)
            if not happened and timeout:
                self._wires.serve()
                late = self._turns.now_ms() + int(timeout * 1000)
                self._turns.block(lambda: bool(self._poller.poll(0)), late)
        return self._poller.poll(0)


def measure(case: Case) -> Cost:
    """The cost of ``case``; the same whenever it is called."""
    cost = Cost()
    turns = Turns(cost)
    broker = Broker()
    broker.create_topic("t", case.partitions)
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)
    broker.brokers = {1: listener.getsockname()[1]}
    wires = Wires(broker, turns)

    def new_client(config: ProducerConfig, metadata: Metadata, clock: Clock) -> KafkaClient:
        selector = Selector(
            wires, clock, metrics=ProducerMetrics(clock), poller=TakingTurns(turns, wires)
        )
        return new_network_client(config, metadata, clock, selector=selector)

    address = f"127.0.0.1:{broker.brokers[1]}"
    producer = KafkaProducer(
        parse_producer_config({"bootstrap.servers": address}),
        clock=turns,
        new_client=new_client,
        start_thread=turns.start,
    )
    plan = ColumnPlan(topic="t", key_column=0, value_column=1)
    batches = arrow_batches(case.value_size, 4, 7)

    def write(count: int) -> None:
        producer.start_attempt()
        for i in range(count):
            columns = from_record_batch(batches[i % len(batches)], plan, 0)
            producer.send_columns(columns)

    try:
        write(2)
        producer.finish_attempt()
        turns.counter.install(network=False)
        turns.counter.on = True
        write(case.batches)
        report = producer.finish_attempt()
        turns.counter.on = False
    finally:
        turns.counter.on = False
        sys.setprofile(None)
        producer.close(10_000)
        listener.close()
    assert report.rows == case.batches * ARROW_ROWS
    assert broker.rows == report.rows + 2 * ARROW_ROWS
    cost.batches, cost.requests = report.batches, report.requests
    missing = STAGES.keys() - cost.python.keys()
    assert not missing, f"nothing was counted for {missing}"
    return cost


def main() -> None:
    console = Console()
    for case in CASES:
        begin = time.perf_counter()
        cost = measure(case)
        table = Table(
            title=f"{case.name}: calls for each of {cost.batches:,} batches, "
            f"{cost.batches / cost.requests:.1f} in a request"
        )
        for name in ("stage", "Python", "C"):
            table.add_column(name, justify="left" if name == "stage" else "right")
        for stage in STAGES:
            table.add_row(
                stage,
                f"{cost.python[stage] / cost.batches:.1f}",
                f"{cost.c[stage] / cost.batches:.1f}",
            )
        table.add_row("all", f"{cost.python_per_batch:.1f}", f"{cost.c_per_batch:.1f}")
        table.add_row(
            "of these in the network thread",
            f"{cost.network_python / cost.batches:.1f}",
            f"{cost.network_c / cost.batches:.1f}",
        )
        console.print(table)
        if "-v" in sys.argv:
            for name, count in cost.functions.most_common(90):
                print(f"{count / cost.batches:8.2f}  {name}")
        print(f"{time.perf_counter() - begin:.1f} s")


if __name__ == "__main__":
    main()
