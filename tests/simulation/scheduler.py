"""Tasks that take turns on one thread, and the time that they live in.

A task is a greenlet: the writer, and the producer's network thread, whose ``Sender.run`` runs here
unchanged. A task goes on until it waits (``Clock.wait``, ``Selectable.poll``, ``join``) or until
the seed takes its turn away: at a reading of the clock, a wakeup, or before a :class:`TurnLock`,
that is between any two steps of the other one. When all wait, time jumps to whatever is next. So
every interleaving is one of a seed's, and the same seed gives the same one.

A task never loses its turn while one of the producer's locks is held: on one thread the other would
wait for that lock for ever.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from greenlet import GreenletExit, getcurrent, greenlet

from spark_kafka_sink.base.clock import NEVER, Latch

#: When every life begins.
START_MS = 1_000_000
#: Turns without any time passing. A real producer's loop has a handful of them per event.
TURNS_AT_ONE_TIME = 2_000
#: Turns of a whole life. The longest lives of 20 000 seeds are far below it.
TURNS = 50_000


class SimulationError(AssertionError):
    """The simulated producer hangs or spins."""


class EventSource(Protocol):
    """Something that happens by itself at known times: the network."""

    def next_due_ms(self) -> int: ...

    def happen(self, now: int) -> None: ...


@dataclass(eq=False)
class Task:
    """Also what KafkaProducer needs of its thread."""

    name: str
    scheduler: Scheduler
    run: greenlet | None = None
    #: What it waits for: None while it is ready to go on.
    until: Callable[[], bool] | None = None
    deadline_ms: int = NEVER
    #: Its process is stopped until then (SIGSTOP).
    frozen_ms: int = 0
    error: BaseException | None = None
    done: bool = False

    def is_alive(self) -> bool:
        return not self.done

    def join(self, timeout: float | None = None) -> None:
        scheduler = self.scheduler
        deadline = NEVER if timeout is None else scheduler.now + round(timeout * 1000)
        scheduler.block(lambda: self.done, deadline)

    def ready(self, now: int) -> bool:
        if now < self.frozen_ms:
            return False
        return self.until is None or self.deadline_ms <= now or self.until()

    def next_due_ms(self, now: int) -> int:
        """When time alone makes it ready."""
        if now < self.frozen_ms:
            return self.frozen_ms
        return self.deadline_ms


@dataclass(eq=False)
class Scheduler:
    """Implements ``Clock``."""

    fate: random.Random
    #: How often a task loses its turn where it could go on.
    preemption: float = 0.05
    #: How long the machine may be busy elsewhere, each time.
    lost_ms: tuple[int, ...] = (1, 2, 7, 300, 2_500)
    #: How often the writer sleeps between two steps of its own.
    slow_writer: float = 0.0
    dawdled_ms: int = 0
    most_turns: int = TURNS
    now: int = START_MS
    turns: int = 0
    sources: list[EventSource] = field(default_factory=list)
    #: Those that go on. (A stream of 40 000 micro-batches starts 80 000 that ended long ago.)
    tasks: list[Task] = field(default_factory=list)
    #: Says whether a lock is held; set when the producer is there.
    locked: Callable[[], bool] = lambda: False
    _turns_now: int = 0
    _first: Task | None = None
    _errors: list[BaseException] = field(default_factory=list)
    _hub: greenlet | None = None
    _current: Task | None = None
    _dead: bool = False

    @property
    def current(self) -> Task | None:
        """The task whose turn it is."""
        return self._current

    # -- Clock --

    def now_ms(self) -> int:
        self.preempt()
        if self.slow_writer and self._current is not None and self._current is self._first:
            self._dawdle()
        return self.now

    def wall_ms(self) -> int:
        self.preempt()
        return 1_700_000_000_000 + self.now

    def wait(self, latch: Latch, deadline_ms: int) -> bool:
        self.block(lambda: latch.is_open, deadline_ms)
        return latch.is_open

    # -- tasks --

    def start(self, run: Callable[[], object], name: str) -> Task:
        """A task that begins with its first turn (KafkaProducer's ``start_thread``)."""
        task = Task(name, self)

        def body() -> None:
            try:
                run()
            except GreenletExit:
                pass
            except BaseException as error:
                task.error = error
                self._errors.append(error)
            finally:
                task.done = True

        task.run = greenlet(body, parent=self._hub)
        self.tasks.append(task)
        return task

    def block(self, until: Callable[[], bool], deadline_ms: int) -> None:
        """Give the turn away until then. Without a task (a test's own code) nothing can wait."""
        if self._dead:
            raise GreenletExit
        task = self._current
        assert task is not None, "only a task can wait"
        assert not self.locked(), f"{task.name} waits while it holds a lock"
        task.until, task.deadline_ms = until, deadline_ms
        self._yield(task)

    def sleep(self, milliseconds: int) -> None:
        self.block(lambda: False, self.now + milliseconds)

    def preempt(self) -> None:
        """The seed may let the others go on, or some time pass."""
        task = self._current
        if task is None or self._dead or self.preemption <= 0:
            return
        chance = self.fate.random()
        if chance >= self.preemption or self.locked():
            return
        if chance < self.preemption / 2:
            self.now += self.fate.choice(self.lost_ms)
            self._turns_now = 0
        self._yield(task)

    def _dawdle(self) -> None:
        """The writer takes its time (it encodes, or collects garbage); the others go on."""
        if self.fate.random() < self.slow_writer and not self.locked():
            delay = self.fate.choice((5, 300, 2_500))
            self.dawdled_ms += delay
            self.sleep(delay)

    def _yield(self, task: Task) -> None:
        assert self._hub is not None
        self._hub.switch()
        if self._dead:
            raise GreenletExit
        task.until, task.deadline_ms = None, NEVER

    # -- the hub --

    def run(self, main: Callable[[], None]) -> None:
        """Run ``main`` as a task, and all that it starts, to their end. Raises main's error."""
        self._hub = getcurrent()
        first = self._first = self.start(main, "writer")
        try:
            while self._those_that_go_on():
                self._turn()
        finally:
            self._kill()
        for error in self._errors:
            if error is not first.error:
                raise error
        if first.error is not None:
            raise first.error

    def _those_that_go_on(self) -> bool:
        self.tasks = [task for task in self.tasks if not task.done]
        return bool(self.tasks)

    def _turn(self) -> None:
        for source in self.sources:
            source.happen(self.now)
        # (What happened may have killed some.)
        ready = [task for task in self.tasks if not task.done and task.ready(self.now)]
        if not ready:
            self._jump()
            return
        self.turns += 1
        self._turns_now += 1
        if self._turns_now > TURNS_AT_ONE_TIME:
            raise SimulationError(f"spins: {self._turns_now} turns at {self.now} ms")
        if self.turns > self.most_turns:
            raise SimulationError(f"spins: {self.turns} turns by {self.now} ms")
        task = ready[0] if len(ready) == 1 else self.fate.choice(ready)
        self._current = task
        try:
            assert task.run is not None
            task.run.switch()
        finally:
            self._current = None

    def _jump(self) -> None:
        nearest = min(
            (
                *(task.next_due_ms(self.now) for task in self.tasks if not task.done),
                *(source.next_due_ms() for source in self.sources),
            ),
            default=NEVER,
        )
        if nearest >= NEVER:
            waiting = ", ".join(task.name for task in self.tasks)
            raise SimulationError(f"hangs at {self.now} ms: {waiting}")
        if nearest > self.now:
            self.now = nearest
            self._turns_now = 0
            return
        self._turns_now += 1
        if self._turns_now > TURNS_AT_ONE_TIME:
            raise SimulationError(f"time stands still at {self.now} ms")

    def _kill(self) -> None:
        """What still waits ends now; its clean-up must not wait either."""
        self._dead = True
        for task in self.tasks:
            while not task.done and task.run is not None and task.run:
                task.run.throw(GreenletExit)
            task.done = True


class TurnLock:
    """A lock before which the seed may take the turn away: what was read before it is old then."""

    def __init__(self, scheduler: Scheduler, lock: threading.Lock) -> None:
        self._scheduler = scheduler
        self._lock = lock

    def __enter__(self) -> None:
        self._scheduler.preempt()
        self._lock.acquire()

    def __exit__(self, *exc: object) -> None:
        self._lock.release()
