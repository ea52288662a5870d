"""One query of very many micro-batches: what grows with them is the sink's."""

from __future__ import annotations

import resource
import time
from collections import Counter, deque

from spark_kafka_sink.transactions.commit_state import CommitState
from tests.fakes.simulated_network import NetworkFaults
from tests.simulation.spark_application import Application
from tests.simulation.spark_application_life import ApplicationLife, Kind
from tests.simulation.spark_writes import STRANGER, Start

#: So much of its trace is kept.
_LINES = 120


class LongRun(Application):
    """One query of very many micro-batches. What the world itself remembers of them is thrown away,
    so that what grows is the sink's.
    """

    def __init__(self, kind: Kind, batches: int) -> None:
        super().__init__(
            ApplicationLife(
                0, batches=batches, tasks=2, rows=1, network=NetworkFaults(), new_worker=0.0,
                speculative=0.1, warm_driver=True, kind=kind, times_ms=(20_000, 5_000, 20_000),
            )
        )  # fmt: skip
        self.trace = deque(maxlen=_LINES)  # type: ignore[assignment]
        self.scheduler.most_turns = 1 << 62
        self.begun = time.monotonic()
        self.ids_at: dict[int, int] = {}

    def noted(self, run: Start, number: int) -> None:
        del self.writes[:-2], self.order[:-2]
        self.attempted = [attempt for attempt in self.attempted if not attempt.over]
        run.workers = [worker for worker in run.workers if not worker.process.dead]
        self.observer.ends.clear()
        if (number + 1) % max(1, self.life.batches // 8) == 0:
            self.told(number + 1)

    def told(self, batches: int) -> None:
        """One line of what there is by now."""
        transactions = self.cluster.transactions.transactions
        ids = sum("~~" not in one for one in transactions)
        workers = sum(process.role == "worker" for process in self.machine.processes)
        newest = self.observer.newest_value() or b""
        print(
            f"{batches:>6} micro-batches: {ids} transactional ids of tasks, {workers} workers "
            f"started; the log's newest record {len(newest)} bytes, "
            f"{len(CommitState.decode(self.key, newest).superseded)} superseded runs; "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB, "
            f"{time.monotonic() - self.begun:.0f} s",
            flush=True,
        )
        self.ids_at[batches] = ids

    def check(self) -> None:
        """AssertionError unless each row is visible once, and what there is is bounded."""
        assert not self.observer.broken, self.observer.broken[0]
        seen = Counter((b, t, r) for rows in self.seen().values() for b, t, _, r in rows)
        life = self.life
        # (A batch from STRANGER on has as many rows as a stranger's.)
        wanted = {(b, t, r) for b in range(life.batches) for t in (0, 1) for r in range(life.rows)}
        assert wanted <= seen.keys()
        assert {b for b, _, _ in seen.keys() - wanted} == set(range(STRANGER, life.batches))
        assert set(seen.values()) == {1}
        workers = sum(process.role == "worker" for process in self.machine.processes)
        ids = sum("~~" not in one for one in self.cluster.transactions.transactions)
        assert ids <= workers * 4, f"{ids} ids of {workers} workers"


def long_run(kind: Kind, batches: int) -> int:
    world = LongRun(kind, batches)
    world.live()
    world.check()
    fired = world.fired
    print(
        f"{kind.value}: {batches} micro-batches, {fired['= speculative attempts']} speculative "
        f"attempts: every row once, {fired['= looks for what hangs after a commit']} times looked "
        "and nothing hung"
    )
    return 0
