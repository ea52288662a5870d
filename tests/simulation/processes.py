"""Processes that can be killed at any step, on the simulated machine.

A process is its greenlets and its connections. Its steps are the requests that it sends and the
answers that it takes: between two of them nothing happens that another process could see. A process
that is killed runs no ``finally`` and says no goodbye; what it put on the wire still arrives.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from greenlet import GreenletExit

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.network.channel.selectable import NetworkSend
from spark_kafka_sink.protocol.request import ApiKey
from tests.fakes.fake_cluster.codec import Request, read_request
from tests.fakes.simulated_network import Brokers, NetworkFaults, SimulatedNetwork
from tests.simulation.scheduler import Scheduler, Task
from tests.simulation.world import _owned

#: What a process may be struck at: where it first sends this.
_MARKS: dict[int, str] = {ApiKey.DESCRIBE_TRANSACTIONS: "check", ApiKey.END_TXN: "end"}
_Lock = type(threading.Lock())
_LENGTH = 4


class Blow(Enum):
    """What happens to a process at a step."""

    KILL = "kill"
    CUT = "cut"
    #: SIGSTOP, and SIGCONT later.
    FREEZE = "freeze"
    #: It and whoever started it: the machine of a driver goes.
    KILL_ALL = "kill all"
    #: The user has it stopped; what that is, ``Machine.stop`` says.
    STOP = "stop"


@dataclass(frozen=True)
class Strike:
    """The ``nth`` process of a ``role`` (from 0) is struck at its ``step`` (from 0)."""

    role: str
    nth: int
    step: int
    blow: Blow
    #: Of a freeze.
    ms: int = 0
    #: From where its steps are counted: the start of the process, or what :meth:`Process.mark` was
    #: told last.
    since: str = ""


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

    def next_due_ms(self) -> int:
        """Of its own; the brokers are a source themselves (:class:`Machine`)."""
        return self._events[0][0] if self._events else NEVER

    def send(self, send: NetworkSend) -> None:
        if self._process.before_send:
            request = read_request(b"".join(map(bytes, send.buffers))[_LENGTH:])
            for sends in self._process.before_send:
                sends(request)
        self._process.sends(b"".join(bytes(buffer[:8]) for buffer in send.buffers[:2]))
        self._process.step(self)
        super().send(send)

    def poll(self, timeout_ms: int) -> int:
        now = super().poll(timeout_ms)
        for _ in self.completed_receives:
            self._process.step(self)
        return now

    @property
    def over(self) -> bool:
        """Nothing can happen here any more."""
        return self.closed and not self._wires and not self._events

    def cut_everything(self) -> None:
        for channel in list(self._wires):
            if channel.up:
                self._cut(channel)


@dataclass(eq=False)
class _BrokerSource:
    """What brokers do by themselves, asked once a turn and not once for each connection."""

    brokers: Brokers

    def next_due_ms(self) -> int:
        return self.brokers.next_due_ms()

    def happen(self, now: int) -> None:
        self.brokers.advance(now)


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
    stop: Callable[[Process], None] = lambda process: None
    #: Strikes that were met.
    met: list[Strike] = field(default_factory=list)
    _started: Counter[str] = field(default_factory=Counter)
    #: All that the living hold, or may.
    _locks: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scheduler.locked = self._locked
        self.scheduler.sources.append(_BrokerSource(self.brokers))

    @property
    def current(self) -> Process:
        """The process whose turn it is."""
        task = self.scheduler.current
        return next(p for p in reversed(self.processes) if task in p.tasks)

    def process(
        self, role: str, parent: Process | None = None, *, dies_with_it: bool = True
    ) -> Process:
        nth = self._started[role]
        self._started[role] += 1
        process = Process(self, role, nth, parent)
        if parent is not None and dies_with_it:
            parent.children.append(process)
        self.processes.append(process)
        self.trace(f"{process.name} starts")
        return process

    def _locked(self) -> bool:
        return any(map(_Lock.locked, self._locks))

    def cut_node(self, node: int) -> None:
        for process in self.processes:
            for network in process.networks:
                network.cut_all(node)

    def calm(self) -> None:
        """A perfect network from now on."""
        self.disturb(NetworkFaults(latency_ms=self.faults.latency_ms))

    def disturb(self, faults: NetworkFaults) -> None:
        """A network with these faults from now on."""
        self.faults = faults
        for process in self.processes:
            for network in process.networks:
                network.faults = faults

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
    parent: Process | None = None
    dead: bool = False
    steps: int = 0
    #: By name, at which step something happened.
    marks: dict[str, int] = field(default_factory=dict)
    tasks: list[Task] = field(default_factory=list)
    networks: list[Network] = field(default_factory=list)
    #: They die with it.
    children: list[Process] = field(default_factory=list)
    locks: list[threading.Lock] = field(default_factory=list)
    #: Each is called with a request that is about to leave.
    before_send: list[Callable[[Request], None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.role} {self.nth}"

    @property
    def over(self) -> bool:
        return self.dead or all(task.done for task in self.tasks)

    def start(self, run: Callable[[], object], name: str) -> Task:
        """Also KafkaProducer's ``start_thread``."""
        if not self.dead:
            self.tasks = [task for task in self.tasks if not task.done]
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
        self.networks = [n for n in self.networks if not n.over or n.fired]
        self.networks.append(network)
        sources = machine.scheduler.sources
        sources[:] = [s for s in sources if not (isinstance(s, Network) and s.over)]
        sources.append(network)
        return network

    def guard(self, thing: object) -> None:
        """No process loses its turn while a lock of ``thing`` is held."""
        found = [lock for name, lock in _owned(thing, _Lock, set()) if name != "_gate"]
        self.locks += found
        self.machine._locks += found

    def mark(self, name: str) -> None:
        """Strikes may count from here."""
        self.marks[name] = self.steps

    def sends(self, head: bytes) -> None:
        mark = _MARKS.get(int.from_bytes(head[4:6], "big"))
        if mark is not None:
            self.marks.setdefault(mark, self.steps)

    def step(self, network: Network) -> None:
        step, self.steps = self.steps, self.steps + 1
        for strike in self._strikes(step):
            self.machine.met.append(strike)
            self.machine.trace(f"{self.name}: {strike.blow.value} at step {step}")
            if strike.blow is Blow.CUT:
                network.cut_everything()
            elif strike.blow is Blow.FREEZE:
                self.freeze(strike.ms)
            elif strike.blow is Blow.STOP:
                self.machine.stop(self)
            else:
                if strike.blow is Blow.KILL_ALL and self.parent is not None:
                    self.parent.kill()
                self.kill()  # (A parent that was dead before kills no children again.)
                self.machine.scheduler.block(lambda: False, NEVER)

    def _strikes(self, step: int) -> Iterator[Strike]:
        for strike in self.machine.strikes:
            begun = self.marks.get(strike.since, NEVER) if strike.since else 0
            if (strike.role, strike.nth, begun + strike.step) == (self.role, self.nth, step):
                yield strike

    def freeze(self, ms: int) -> None:
        """None of its greenlets gets a turn for so long; the world goes on."""
        until = self.machine.scheduler.now + ms
        for task in self.tasks:
            task.frozen_ms = until
        self.machine.scheduler.block(lambda: True, NEVER)

    def kill(self) -> None:
        """SIGKILL: none of its greenlets gets another turn."""
        if self.dead:
            return
        self.dead = True
        self.machine.trace(f"{self.name} is killed")
        if self.locks:
            known = self.machine._locks
            self.machine._locks = [lock for lock in known if lock not in self.locks]
        for task in self.tasks:
            task.done = True
        for network in self.networks:
            if not network.closed:
                network.close()
        for child in self.children:
            child.kill()
