"""Processes that can be killed at any step, on the simulated machine.

A process is its greenlets and its connections. Its steps are the requests that it sends and the
answers that it takes: between two of them nothing happens that another process could see. A process
that is killed runs no ``finally`` and says no goodbye; what it put on the wire still arrives.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from greenlet import GreenletExit

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.network.selectable import NetworkSend
from tests.fakes.simulated_network import Brokers, NetworkFaults, SimulatedNetwork
from tests.simulation.scheduler import Scheduler, Task
from tests.simulation.world import _owned

_Lock = type(threading.Lock())


class Blow(Enum):
    """What happens to a process at a step."""

    KILL = "kill"
    CUT = "cut"


@dataclass(frozen=True)
class Strike:
    """The ``nth`` process of a ``role`` (from 0) is struck at its ``step`` (from 0)."""

    role: str
    nth: int
    step: int
    blow: Blow


class Network(SimulatedNetwork):
    """One process's connections; tells it each step."""

    def __init__(
        self,
        process: Process,
        scheduler: Scheduler,
        brokers: Brokers,
        ports: dict[int, int],
        fate: random.Random,
        faults: NetworkFaults,
        trace: Callable[[str], None],
    ) -> None:
        super().__init__(scheduler, brokers, ports, fate, faults, trace=trace)
        self._process = process

    def send(self, send: NetworkSend) -> None:
        self._process.step(self)
        super().send(send)

    def poll(self, timeout_ms: int) -> None:
        super().poll(timeout_ms)
        for _ in self.completed_receives:
            self._process.step(self)

    @property
    def over(self) -> bool:
        """Nothing can happen here any more."""
        return self.closed and not self._wires and not self._events

    def cut_everything(self) -> None:
        for channel in list(self._wires):
            if channel.up:
                self._cut(channel)


@dataclass(eq=False)
class Machine:
    """All processes, in the order of their start."""

    scheduler: Scheduler
    brokers: Brokers
    ports: dict[int, int]
    fate: random.Random
    trace: Callable[[str], None]
    strikes: list[Strike] = field(default_factory=list)
    faults: NetworkFaults = field(default_factory=NetworkFaults)
    processes: list[Process] = field(default_factory=list)
    #: Strikes that were met.
    met: list[Strike] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler.locked = self._locked

    def process(self, role: str) -> Process:
        nth = sum(p.role == role for p in self.processes)
        process = Process(self, role, nth)
        self.processes.append(process)
        self.trace(f"{process.name} starts")
        return process

    def _locked(self) -> bool:
        return any(lock.locked() for p in self.processes if not p.dead for lock in p.locks)

    def cut_node(self, node: int) -> None:
        for process in self.processes:
            for network in process.networks:
                network.cut_all(node)

    def calm(self) -> None:
        """A perfect network from now on."""
        self.faults = NetworkFaults(latency_ms=self.faults.latency_ms)
        for process in self.processes:
            for network in process.networks:
                network.faults = self.faults

    def bury(self) -> None:
        """At the end of all: the greenlets of the killed are unwound where nothing can be seen."""
        for process in self.processes:
            for task in process.tasks:
                run = task.run
                while run is not None and run and not run.dead:
                    try:
                        run.throw(GreenletExit)
                    except BaseException:
                        continue


@dataclass(eq=False)
class Process:
    """``done`` when it ended by itself, ``dead`` when it was killed."""

    machine: Machine
    role: str
    nth: int
    dead: bool = False
    steps: int = 0
    tasks: list[Task] = field(default_factory=list)
    networks: list[Network] = field(default_factory=list)
    locks: list[threading.Lock] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.role} {self.nth}"

    def start(self, run: Callable[[], None], name: str) -> Task:
        """Also KafkaProducer's ``start_thread``."""
        task = self.machine.scheduler.start(run, f"{self.name}: {name}")
        self.tasks.append(task)
        return task

    def network(self) -> Network:
        machine = self.machine
        network = Network(
            self,
            machine.scheduler,
            machine.brokers,
            machine.ports,
            machine.fate,
            machine.faults,
            lambda what: machine.trace(f"{self.name}: {what}"),
        )
        self.networks.append(network)
        sources = machine.scheduler.sources
        sources[:] = [s for s in sources if not (isinstance(s, Network) and s.over)]
        sources.append(network)
        return network

    def guard(self, thing: object) -> None:
        """Nobody loses its turn while a lock of ``thing`` is held."""
        self.locks += [lock for name, lock in _owned(thing, _Lock, set()) if name != "_gate"]

    def step(self, network: Network) -> None:
        step, self.steps = self.steps, self.steps + 1
        for strike in self._strikes(step):
            self.machine.met.append(strike)
            self.machine.trace(f"{self.name}: {strike.blow.value} at step {step}")
            if strike.blow is Blow.CUT:
                network.cut_everything()
            else:
                self.kill()
                self.machine.scheduler.block(lambda: False, NEVER)

    def _strikes(self, step: int) -> Iterator[Strike]:
        for strike in self.machine.strikes:
            if (strike.role, strike.nth, strike.step) == (self.role, self.nth, step):
                yield strike

    def kill(self) -> None:
        """SIGKILL: none of its greenlets gets another turn."""
        if self.dead:
            return
        self.dead = True
        self.machine.trace(f"{self.name} is killed")
        for task in self.tasks:
            task.done = True
        for network in self.networks:
            if not network.closed:
                network.close()
