"""Operators: ``kprod txn`` beside an application, with options of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from spark_kafka_sink.base.clock import NEVER
from spark_kafka_sink.base.errors import KafkaError, RefusedError
from spark_kafka_sink.transactions.operations.operator import Operator
from tests.fakes.fake_cluster.transaction_coordinator import State
from tests.simulation.processes import Process
from tests.simulation.spark_world import PREFIX

if TYPE_CHECKING:
    from tests.simulation.spark_application import Application


class Operators:
    """``helpers`` are their processes; ``forgotten`` the batches that Spark had not noted when
    their key was reset, ``resolved`` those that were PARTIAL, and how they were resolved.
    """

    def __init__(self, app: Application) -> None:
        self._app = app
        self.helpers: list[Process] = []
        self.forgotten: set[int] = set()
        self.was_reset = False
        self.resolved: dict[int, str] = {}

    def soon(self) -> None:
        """By somebody who knows no better time."""
        what = self._app.fate.choice(self._app.life.operations)
        ms = self._app.fate.choice((5, 30, 60, 100, 200, 1_000))
        self._app.timeline.after(ms, lambda: self.operate(what))

    def operate(self, what: str) -> None:
        if not self._app.is_done:
            self._start(what, lambda operator: self._do(what, operator))

    def resolve(self, number: int) -> None:
        """What is PARTIAL counts as done, or is written again."""
        how = self._app.life.resolved_as

        def resolves(operator: Operator) -> None:
            key = self._app.key
            operator.resolve(operator.plan_resolve(key, number, done=how == "done"))
            self.resolved[number] = how

        self._wait_for(f"resolve as {how}", resolves)

    def _wait_for(self, what: str, does: Callable[[Operator], None]) -> None:
        process = self._start(what, does)
        self._app.scheduler.block(lambda: process.over, NEVER)

    def _start(self, what: str, does: Callable[[Operator], None]) -> Process:
        app = self._app
        process = app.machine.process("operator")
        self.helpers.append(process)
        timeout_ms = str(app.life.operators_timeout_ms)

        def body() -> None:
            try:
                with app.sink.operator(
                    app.given | {"kafka.transaction.timeout.ms": timeout_ms}
                ) as operator:
                    does(operator)
                app.fired[f"= operators: {what}"] += 1
            except KafkaError as error:
                app.note(f"operator: {what}: {type(error).__name__}: {error.message}")

        process.start(body, what)
        return process

    def _do(self, what: str, operator: Operator) -> None:
        app = self._app
        if what == "sweep":
            operator.end(operator.plan_sweep(PREFIX, force=True))
        elif what == "sweep orphans":
            operator.end(operator.plan_sweep(PREFIX))
        elif what == "abort run":
            operator.end(operator.plan_abort_run(PREFIX, app.runs[-1].id))
        elif what == "abort":
            operator.end(operator.plan_abort(self._open_ids()[:1]))
        elif what == "commit":
            self._commit(operator)
        elif what == "reset":
            self._reset(operator)
        else:
            operator.inspector.overview(PREFIX)

    def _open_ids(self) -> list[str]:
        found = self._app.cluster.transactions.transactions.values()
        open_ = [t.transactional_id for t in found if t.state is State.ONGOING]
        return [one for one in open_ if one.startswith(PREFIX) and "~~" not in one]

    def _commit(self, operator: Operator) -> None:
        """All keys that have a decision."""
        alone, starts = all(run.over for run in self._app.runs), len(self._app.runs)
        keys = operator.inspector.keys(PREFIX)
        decided = [key for key, state in keys.items() if state.decision is not None]
        for key in decided or [self._app.key]:
            report = operator.plan_commit(key)
            _, committed = operator.commit(report)
            if report.state.decision is not None:
                self._app.observer.check_said(report.state.decision, committed=committed)
                self._app.fired["= operators: decisions ended"] += 1
                alone = alone and len(self._app.runs) == starts  # (One may be over already.)
                self._app.observer.check_operators_commit(report.state.decision, alone=alone)

    def _reset(self, operator: Operator) -> None:
        """With force, unless a batch is in progress: that is a mistake of the operator's."""
        app = self._app
        report = operator.plan_reset(app.key, force=True)
        if report.state.decision is not None:
            raise RefusedError("a batch is in progress", hint="")
        noted = len(app.commits)
        operator.reset(report)
        app.operators.was_reset = True
        self.forgotten.update(range(noted, report.state.last_done + 1))
