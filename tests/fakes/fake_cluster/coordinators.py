"""What each broker says of a transactional id, or a group: moves of its coordinator take time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import ErrorCode
from tests.fakes.fake_cluster.transaction_coordinator import Transaction

if TYPE_CHECKING:
    from tests.fakes.fake_cluster.cluster import FakeCluster


@dataclass(frozen=True, slots=True)
class Move:
    """A transactional id changes its coordinator: none until ``resigned_ms``, then loaded."""

    before: int
    resigned_ms: int
    loaded_ms: int


class Coordinators:
    """``FakeCluster.coordinator_of`` says who it is, or is about to be."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._moves: dict[str, Move] = {}
        #: When the last move is over.
        self.moved_ms = -NEVER

    @contextmanager
    def failing_over(self) -> Iterator[None]:
        """Ids that have another coordinator afterwards move, and that takes its time."""
        cluster = self._cluster
        before = {tid: cluster.coordinator_of(tid) for tid in cluster.transactions.transactions}
        yield
        for tid, node in before.items():
            if cluster.coordinator_of(tid) != node:
                self.begin_move(tid, node, cluster.failover_ms())

    def begin_move(self, key: str, before: int, took: tuple[int, int]) -> None:
        (resigned, loading), now = took, self._cluster.now
        self.moved_ms = now + resigned + loading
        if resigned or loading:
            self._cluster.trace(f"the coordinator of {key} moves: {resigned} + {loading} ms")
            self._moves[key] = Move(before, now + resigned, self.moved_ms)

    def moving(self, key: str) -> Move | None:
        move = self._moves.get(key)
        if move is not None and move.loaded_ms <= self._cluster.now:
            del self._moves[key]
            return None
        return move

    def seen(self, node: int, key: str) -> int:
        """What ``node`` answers to FindCoordinator: its view may be old for a moment; -1: none."""
        view = self._cluster.views.get(node)
        if view is not None and key in view.transactions:
            return node
        move = self.moving(key)
        found = self._cluster.coordinator_of(key)
        if move is None or move.resigned_ms <= self._cluster.now:
            return found
        return (move.before, -1, found)[node % 3]

    def coordinates(self, node: int, key: str) -> bool:
        return self.refused_by(node, key) is ErrorCode.NONE

    def refused_by(self, node: int, key: str, *, writes: bool = False) -> ErrorCode:
        """What ``node`` says to a question about that id, before it looks at it."""
        view = self._cluster.views.get(node)
        if not key:
            return ErrorCode.NONE
        if view is not None:
            if key not in view.transactions:
                return ErrorCode.NOT_COORDINATOR
            # Its log is not replicated any more: a write to it ends with its time.
            return ErrorCode.COORDINATOR_NOT_AVAILABLE if writes else ErrorCode.NONE
        move = self.moving(key)
        resigned = move is not None and self._cluster.now < move.resigned_ms
        if resigned or self._cluster.coordinator_of(key) != node:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if move is None else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def known_at(self, node: int) -> list[Transaction]:
        """The transactional ids that ``node`` coordinates, as it knows them."""
        view = self._cluster.views.get(node)
        if view is not None:
            return list(view.transactions.values())
        known = self._cluster.transactions.transactions
        return [t for i, t in known.items() if self.coordinates(node, i)]

    def is_loading(self, node: int) -> bool:
        """``node`` loads transactional ids, whichever."""
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return node not in self._cluster.views and any(
            self.refused_by(node, key) is loading for key in list(self._moves)
        )
