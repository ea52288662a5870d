"""One connection to one broker: its requests are worked on one at a time, in order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import NEVER

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster


@dataclass(eq=False)
class FakeConnection:
    cluster: FakeCluster
    node_id: int
    #: The broker hung up: nothing more is answered.
    closed: bool = False
    _asked: deque[tuple[int, bytes]] = field(default_factory=deque)
    _answers: deque[tuple[int, bytes | None]] = field(default_factory=deque)
    _free_ms: int = 0
    _gone: bool = False
    _held: bytes | None = None

    def send(self, frame: bytes, now: int) -> None:
        """Hand over one whole request, without its length prefix."""
        self.cluster.advance(now)
        if not self.closed:
            self._free_ms = max(self._free_ms, now) + self.cluster.work_ms()
            self._asked.append((self._free_ms, frame))
            self.cluster.touched = True
            self.work(now)

    def due(self, now: int) -> list[bytes]:
        """Answers (without length prefix) that leave the broker now, in order."""
        if not self.pending:
            return []
        self.cluster.advance(now)
        told: list[bytes] = []
        while self._answers and self._answers[0][0] <= now and not self.closed:
            answer = self._answers.popleft()[1]
            self.cluster.touched = True
            if answer is None:
                self.hang_up()
            else:
                told.append(answer)
        return [] if self._gone else told

    def close(self) -> None:
        """The peer is gone. What it asked is worked on all the same."""
        self._gone = True

    @property
    def pending(self) -> bool:
        """There are requests to work on, or answers to return."""
        return bool(self._asked or self._answers)

    @property
    def alive(self) -> bool:
        return self.pending or not self._gone

    @property
    def next_due_ms(self) -> int:
        if not self._asked and not self._answers:
            return NEVER
        due = [queue[0][0] for queue in (self._asked, self._answers) if queue]
        return min(due, default=NEVER)

    # -- for the cluster --

    def hang_up(self) -> None:
        self.closed = True
        self._asked.clear()
        self._answers.clear()

    def work(self, now: int) -> None:
        """Work on what is due; a broker takes a connection's next request after the answer."""
        while self._asked and not self.closed:
            at, frame = self._asked[0]
            if self._answers:
                at = max(at, self._answers[-1][0])
            if at > now:
                self._asked[0] = (at, frame)
                return
            if frame is not self._held and (held := self.cluster.holds(self.node_id, frame)):
                # (Its connection's next requests wait behind it, as they do on the wire.)
                self._asked[0] = (at + held, frame)
                self._held = frame
                continue
            self._asked.popleft()
            outcome = self.cluster.work(self.node_id, frame, at)
            if outcome.closes:
                self._answers.append((at + outcome.delay_ms, None))
            elif outcome.answer is not None:
                self._answers.append((at + outcome.delay_ms, outcome.answer))
