"""A query whose every step a test decides: for races that have names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Self

from spark_kafka_sink.datasource.exactly_once.transaction_commit import (
    payload_of,
    prepared_transactions,
)
from spark_kafka_sink.datasource.exactly_once.transaction_plan import TransactionPlan
from spark_kafka_sink.datasource.write.commit_message import TaskCommitMessage
from spark_kafka_sink.transactions.exactly_once import Batch, Commit
from tests.fakes.fake_cluster.transaction_coordinator import State
from tests.simulation.spark_world import (
    PREFIX,
    QUERY,
    TIMEOUT_MS,
    TOPIC,
    Run,
    SparkLife,
    SparkWorld,
    _plan,
    owner_of,
)


class Written(NamedTuple):
    """A micro-batch that is written and not committed; the arguments of ``Scene.commit``."""

    run: Run
    number: int
    plan: TransactionPlan
    messages: list[TaskCommitMessage]


class Scene(SparkWorld):
    """``play`` gets the scene and runs as a process of its own; at the end all are gone."""

    def __init__(self, play: Callable[[Any], None], life: SparkLife | None = None) -> None:
        super().__init__(life or SparkLife(1, tasks=1))
        self._play = play

    @classmethod
    def of(cls, play: Callable[[Self], None], life: SparkLife | None = None) -> Self:
        """Played to its end, and let time end what is open."""
        scene = cls(play, life)
        scene.live()
        return scene

    def _query(self) -> None:
        self._play(self)

    def run(self, name: str) -> Run:
        """A start of the query, in a driver process of its own."""
        run = Run(name, self.machine.process("driver"))
        self._runs.append(run)
        return run

    def plan(self, run: Run) -> TransactionPlan:
        with self._driver_side(run) as planner:
            return _plan(planner.plan(PREFIX))

    def write(
        self, run: Run, number: int, plan: TransactionPlan, tasks: int | None = None
    ) -> list[TaskCommitMessage]:
        """All tasks of a micro-batch, each written by one attempt."""
        life = self.life
        if tasks is not None:
            self.life = replace(life, tasks=tasks)
        messages, whole = self._stage(run, number, plan)
        self.life = life
        assert whole
        return messages

    def written(self, run: Run, number: int) -> Written:
        """A micro-batch, planned and written."""
        plan = self.plan(run)
        return Written(run, number, plan, self.write(run, number, plan))

    def taken_over(self) -> tuple[Written, Written]:
        """run-0 has committed batch 0 and written batch 1. run-1, planned before and beside it, has
        committed that one, and so has the key; and it has written batch 2.
        """
        old, new = self.run("run-0"), self.run("run-1")
        self.batch(old, 0)
        plan_old, plan_new = self.plan(old), self.plan(new)
        late = Written(old, 1, plan_old, self.write(old, 1, plan_old))
        self.commit(new, 1, plan_new, self.write(new, 1, plan_new))
        return late, self.written(new, 2)

    def commit(
        self,
        run: Run,
        number: int,
        plan: TransactionPlan,
        messages: list[TaskCommitMessage],
        query: str = QUERY,
    ) -> Commit:
        owner = owner_of(run.id, plan, query)
        batch = Batch(number, prepared_transactions(messages, owner), payload_of(messages, TOPIC))
        with self._driver_side(run) as committer:
            return committer.commit(owner, batch)

    def abort(
        self, run: Run, number: int, plan: TransactionPlan, messages: list[TaskCommitMessage]
    ) -> tuple[str, ...]:
        owner = owner_of(run.id, plan)
        with self._driver_side(run) as aborter:
            prepared = prepared_transactions(messages, owner)
            return aborter.abort(owner, number, prepared, tasks_may_run=False)

    def batch(self, run: Run, number: int) -> Commit:
        """A whole micro-batch."""
        plan = self.plan(run)
        return self.commit(run, number, plan, self.write(run, number, plan))

    def visible(self) -> set[tuple[int, int, int]]:
        """(batch, task, row) as read_committed shows them; each once, or it fails."""
        rows = [(b, t, r) for found in self.seen().values() for b, t, _, r in found]
        assert len(rows) == len(set(rows)), f"doubled: {rows}"
        return set(rows)

    def batches(self) -> set[int]:
        """Of which rows are visible."""
        return {batch for batch, _, _ in self.visible()}

    def begin_foreign(self, transactional_id: str) -> None:
        """A transaction of somebody who is in the middle of it."""
        coordinator = self.cluster.transactions
        error, pid, epoch = coordinator.initialize(
            transactional_id, TIMEOUT_MS, None, self.cluster.now
        )
        assert error.name == "NONE"
        tp = next(tp for tp in self.cluster.logs if tp.topic == "t")
        coordinator.add_partitions(
            transactional_id, (pid, epoch), [tp], self.cluster.now, version=2
        )

    def open_ids(self) -> list[str]:
        return sorted(
            t.transactional_id
            for t in self.cluster.transactions.transactions.values()
            if t.state is State.ONGOING
        )
