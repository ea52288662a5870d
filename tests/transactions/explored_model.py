"""The rules that must hold in each world of the explored commits.

``explored_moves.py`` has what may happen next.
"""

from __future__ import annotations

from functools import cache

from spark_kafka_sink.transactions import table
from spark_kafka_sink.transactions.commit_state import CommitState
from spark_kafka_sink.transactions.results import Commit, Visible
from tests.transactions.explored_moves import Moves
from tests.transactions.explored_things import (
    AT_WILL,
    DONE,
    FORGOTTEN,
    GONE,
    OPEN,
    SWEPT,
    TIMED_OUT,
    Actor,
    Kept,
    Surroundings,
)

#: A start that needs more steps goes round in a circle.
_MOST_STEPS = 100
#: The rows of a write that each end of its commit names as visible.
_VISIBLE = {how.value: how.visible for how in Commit}


class Model(Moves):
    """All that may happen next, and what must hold."""

    def broken(self, world: Surroundings) -> str:
        """What is wrong with it; empty when nothing is."""
        visible: dict[int, list[str]] = {}
        for actor in world.actors:
            mine = self.states(world, actor.work) if actor.work else set()
            if DONE in mine and "commit" in actor.todo:
                visible.setdefault(actor.number, []).append(actor.work)
            if wrong := self.untrue(world, actor, mine):
                return wrong
        # (An operator has forgotten it, or has it written again.)
        is_replayed = {a.todo[0] for a in world.actors} & {"resolve --as replay", "reset"}
        if any(len(works) > 1 for works in visible.values()) and not is_replayed:
            return f"a batch is visible twice: {visible}"
        # (An operator has said that it is done, whatever became of its transactions.)
        is_said_done = "resolve --as done" in {a.todo[0] for a in world.actors}
        for actor in world.actors:
            is_dropped = actor.work and actor.end == Commit.ALREADY_DONE.value
            if is_dropped and actor.number not in visible and not is_said_done:
                return f"{actor.name} drops a batch that is not visible"
        forced = frozenset(a.todo[0] for a in world.actors) & AT_WILL
        return self.recovered(world.log, world.ends, forced)

    def untrue(self, world: Surroundings, actor: Actor, mine: set[str]) -> str:
        """What the end of its commit says, and is not so."""
        is_aborted = actor.todo[0].startswith("abort") and actor.end.endswith("over")
        is_left = table.decided_ids(world.log.value) or not self.is_quiet
        if is_aborted and OPEN in mine and not is_left:
            return f"{actor.name} is over, and its transactions are {mine}"
        said = _VISIBLE.get(actor.end)
        is_wrong = (said is Visible.ALL and mine != {DONE}) or (
            said is Visible.NONE and DONE in mine and "commit" in actor.todo
        )
        # (A planning has no rows itself. Another driver may have committed a part of the batch.)
        if said is Visible.SOME and actor.todo[0] == "commit":
            is_wrong |= not any(
                DONE in self.states(world, one.work)
                for one in world.actors
                if one.work and one.number == actor.number
            )
        if is_wrong:
            return f"{actor.name} has {actor.end}, and its transactions are {mine}"
        return ""

    @cache  # noqa: B019 - a model lives as long as its exploration
    def recovered(self, log: Kept, ends: tuple[str, ...], forced: frozenset[str]) -> str:
        """All actors have stopped, brokers time out what is open, and one driver plans. With
        ``forced`` commands an operator has said what is to be of a batch.
        """
        timed_out = tuple(GONE if how == OPEN else how for how in ends)
        ages = tuple(TIMED_OUT for _ in self.works)
        last = self.started(Actor("last", ("plan",)))
        world = Surroundings((last,), timed_out, ages, log, log, "", None, 0, 0, 0, 0, 0)
        for _ in range(_MOST_STEPS):
            if world.actors[0].end:
                break
            after = (w for what, w in self.after(world) if not what.endswith("looks again"))
            world = next(after, world)
        else:
            return "a start does not end"
        state: CommitState = world.log.value
        is_doubtful = state.decision is not None and any(how.endswith(FORGOTTEN) for how in ends)
        resolved = forced - {"abort --force"}
        is_said = bool(state.lost or is_doubtful or resolved)
        for work in self.works:
            found = self.states(world, work)
            if {DONE, SWEPT} <= found and not forced:
                return f"{work} is torn by an abort"
            if DONE in found and {GONE, SWEPT} & found and not is_said:
                return f"{work} is visible in part ({found}), and the log is {state.phase.value}"
        if state.lost and not forced:
            unnamed = {
                i
                for i in table.decided_ids(state) - set(state.lost)
                if self.state(world, i) in (GONE, SWEPT)
            }
            if unnamed:
                return f"the batch is PARTIAL, and the log does not name {unnamed} as lost"
        is_done = state.done_batch(0) is not None
        if is_done and not resolved and DONE not in self.truly(world, self.ids):
            return "the batch is done, and not visible"
        return ""
