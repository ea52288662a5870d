"""Everything that may happen next in a model of drivers, operators, brokers and time.

The steps are the package's own (``table.py``, ``steps.py``, ``ending.py``, ``outcomes.py``,
``commit_state.py``). The model is what is outside of them: one partition of the log with one writer
at a time, transactions, their ages in classes, and requests that are answered, not answered, or
late. An actor that stops for ever is one that takes no further step.

A request may arrive one class of age after the look that allows it, and not later: that is the
assumption of "Times" in docs/design/commit-protocol.md.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cache

from spark_kafka_sink.base.errors import ErrorCode, IllegalStateError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions import ending as rules
from spark_kafka_sink.transactions import steps, table
from spark_kafka_sink.transactions.batches import Batch
from spark_kafka_sink.transactions.commit_state import (
    CommitState,
    Decision,
    Payload,
)
from spark_kafka_sink.transactions.ending import Age, CommitOutcomes, Ending
from spark_kafka_sink.transactions.outcomes import Outcome, outcome_of
from spark_kafka_sink.transactions.ownership import Owner
from spark_kafka_sink.transactions.results import Commit, Refuse
from spark_kafka_sink.transactions.steps import Failure, Goal, View
from spark_kafka_sink.transactions.sweep import is_orphan
from tests.transactions.explored_things import (
    AT_WILL,
    COMMIT,
    DONE,
    FIRST,
    FORGOTTEN,
    GAP,
    GONE,
    HURRY,
    KEY,
    LAST,
    LATER,
    NEW,
    OPEN,
    PLANNED,
    SWEPT,
    TIMED_OUT,
    UNDO,
    YOUNG,
    Actor,
    Kept,
    Mind,
    Surroundings,
    Things,
    check_change,
    check_own,
    contradicting,
    of_run,
)

After = Iterator[tuple[str, Surroundings, Actor]]


class Moves(Things):
    """All that may happen next."""

    def begin(self, *actors: Actor, **faults: int) -> Surroundings:
        self.is_quiet = not any(faults.values())
        self.is_by_hand = any("by hand" in actor.todo for actor in actors)
        self.is_at_will = any(actor.todo[0] in AT_WILL for actor in actors)
        new = {one.transactional_id for one in self.reports.values()}
        ends = tuple(NEW if one in new else OPEN for one in self.nth)
        ages = tuple(YOUNG for _ in self.works)
        kept = self.keep(FIRST)
        world = Surroundings((), ends, ages, kept, kept, **faults)  # type: ignore[arg-type]  # counts of faults
        holder = next((actor.name for actor in actors if actor.has_left_open), "")
        started = tuple(self.started(actor) for actor in actors)
        return world._replace(actors=started, holder=holder)

    def started(self, actor: Actor) -> Actor:
        if actor.todo[0] in PLANNED:
            return actor
        view = View(name=actor.work if actor.has_report else "")
        return actor._replace(mind=self.mind(self.goal(actor), view), stage=(), is_stale=False)

    def goal(self, actor: Actor) -> Goal:
        """The first one of ``actor.todo``."""
        what = actor.todo[0]
        if what == "plan":
            return steps.RollForward(KEY)
        if what == "by hand":
            return steps.RollForward(KEY, only_lost=True)
        written = self.works[actor.work] if actor.work else ()
        if actor.has_report:
            written = written[:-1]
        owner = Owner(KEY, actor.run, "q", actor.generation, actor.numbering)
        if what == "abort":
            return steps.AbortBatch(owner, actor.number, written, tasks_may_run=False)
        if what == "abort unknown":
            return steps.AbortUnknown(KEY, of_run(actor.run))
        payload = Payload(1, 1, "t") if written else Payload()
        return steps.CommitBatch(owner, Batch(actor.number, written, payload, f"d{actor.number}"))

    # -- what may happen next ------------------------------------------------------------------

    def after(self, world: Surroundings) -> Iterator[tuple[str, Surroundings]]:
        for index, actor in enumerate(world.actors):
            if not actor.end:
                before, behind = world.actors[:index], world.actors[index + 1 :]
                for what, now, then in self.of_actor(world, actor):
                    left = self.at_its_end(then)
                    if left.end and then.mind is not None:
                        check_change(then.mind.goal, then.mind.step, now.log.value)
                    yield f"{actor.run}: {what}", now._replace(actors=(*before, left, *behind))
        yield from self.of_brokers(world)

    def at_its_end(self, actor: Actor) -> Actor:
        """An actor whose next step is the end has reached it: it needs no other actor for that."""
        if actor.mind is None:
            return actor
        step = actor.mind.step
        if isinstance(step, steps.PrepareOwn) and not actor.has_report:  # nobody sees that step
            return self.at_its_end(self.adds(actor, own=()))
        if isinstance(step, steps.Return):
            return self.next_goal(actor, actor.mind.view.state, step.how)
        if isinstance(step, Refuse):
            check_own(actor.mind.goal, step)
            return self.at_rest(actor, step.how.value)
        return actor

    def next_goal(self, actor: Actor, state: CommitState, how: Commit | None) -> Actor:
        """After planning its tasks write, unless no batch is left."""
        left = actor.todo[1:]
        if not left:
            return self.at_rest(actor, how.value if how else f"{actor.todo[0]}: over")
        number = state.last_done + 1
        if number > 1 or (left[0] == "next" and number == 0):
            return self.at_rest(actor, "skips")
        then = actor._replace(todo=left, number=number, generation=state.generation)
        return self.started(then)

    def at_rest(self, actor: Actor, end: str) -> Actor:
        """What it knew is of no matter any more."""
        return actor._replace(mind=None, stage=(), is_stale=False, end=end)

    def canonical(self, world: Surroundings) -> Surroundings:
        """The same world, without differences that no actor can notice any more."""
        open_ = {
            a.name for a in world.actors if a.mind and (a.mind.view.is_open or a.has_left_open)
        }
        holder = world.holder if world.holder in open_ else ""
        old = world.old if world.stale else world.log
        ages = world.ages
        # (A decision that is checked is written within its lease, whose end an age shows.)
        if world.pending is None and not any(a.stage == ("checked",) for a in world.actors):
            ages = self.noticed(world.ends, ages)
        if holder == world.holder and old is world.old and ages == world.ages:
            return world
        return world._replace(holder=holder, old=old, ages=ages)

    @cache  # noqa: B019 - a model lives as long as its exploration
    def noticed(self, ends: tuple[str, ...], ages: tuple[int, ...]) -> tuple[int, ...]:
        """The ages of works with an open transaction; the others are of no matter."""
        return tuple(
            age if any(ends[nth] == OPEN for nth in self.of_works[work]) else YOUNG
            for work, age in enumerate(ages)
        )

    def of_brokers(self, world: Surroundings) -> Iterator[tuple[str, Surroundings]]:
        """Time passes for a work when the next step of an actor depends on its age, and all of it
        at a time when that step depends only on whether it is open: for all other steps time may as
        well pass later. (When all actors have ended, ``recovered`` lets time pass.)
        """
        minds = [actor.mind for actor in world.actors if not actor.end]
        aged = frozenset[str]().union(*(self.aged(mind) for mind in minds))
        open_ = frozenset[str]().union(*(self.open(mind) for mind in minds))
        for (work, transactions), age in zip(self.works.items(), world.ages, strict=True):
            one = self.first_open(world, tuple(t.transactional_id for t in transactions))
            if one is None or work not in aged | open_:
                continue
            if age < TIMED_OUT:
                nth = self.of_work[work]
                # (Only an operator's commit tells the classes after this one from the last one.)
                is_last = work not in aged or (age == LATER and not self.is_by_hand)
                older = TIMED_OUT if is_last else age + 1
                ages = (*world.ages[:nth], older, *world.ages[nth + 1 :])
                # (The lease of a write ends before what it has checked may be undone.)
                pending = None if older >= GAP else world.pending
                yield f"{work} grows older", world._replace(ages=ages, pending=pending)
            else:
                yield f"{one} times out", self.ended(world, one, GONE)
        if world.pending is not None:
            arrived = self.written(world, world.pending.value)
            yield "a late EndTxn arrives", arrived._replace(pending=None)
            yield "a late EndTxn is lost", world._replace(pending=None)
        # (An id expires days after its transaction, and none is open for so long. But it may be
        # initialized again, except while a driver aborts the others.)
        is_early = self.is_forgotten_early
        if world.forgotten and (is_early or OPEN not in world.ends):
            for one, how in zip(self.ids, world.ends, strict=True):
                if how in (DONE, GONE) or (how == SWEPT and not is_early):
                    then = self.ended(world, one, how + FORGOTTEN)
                    yield f"{one} expires", then._replace(forgotten=world.forgotten - 1)
        if world.is_leaderless:
            yield "a leader is back", world._replace(is_leaderless=False)
        elif world.leaderless:
            less = world.leaderless - 1
            yield "a leader is lost", world._replace(is_leaderless=True, leaderless=less)

    @cache  # noqa: B019 - a model lives as long as its exploration
    def aged(self, mind: Mind | None) -> frozenset[str]:
        """The works on whose ages the next step depends."""
        match None if mind is None else mind.step:
            case steps.EndAll(decision):
                return frozenset(self.work_of[i] for i in decision.ids)
            case steps.Decide(state):
                return frozenset(self.work_of[i] for i in table.decided_ids(state))
        return frozenset()

    @cache  # noqa: B019 - a model lives as long as its exploration
    def open(self, mind: Mind | None) -> frozenset[str]:
        """The works for which the next step depends on whether they are open; not on their ages."""
        match None if mind is None else mind.step:
            case steps.Open() | steps.Read() | steps.Confirm() | steps.Write():
                return frozenset()
            case steps.EndAll() | steps.Decide():
                return frozenset()
            case steps.LookAt(decision):
                return frozenset(self.work_of[i] for i in decision.ids)
        return frozenset(self.works)

    def of_actor(self, world: Surroundings, actor: Actor) -> After:
        if actor.mind is None:
            yield from self.plans(world, actor)
            return
        step, view = actor.mind.step, actor.mind.view
        match step:
            case steps.Read():
                log, is_settled = world.log, world.pending is None
                yield (
                    "reads",
                    world,
                    self.knows(
                        actor,
                        (log, is_settled),
                        lambda view: steps.with_read(view, log.value, is_settled=is_settled),
                    ),
                )
            case steps.Open():
                yield from self.opens(world, actor)
            case steps.Confirm():
                if self.is_shut_out(world, actor):
                    yield "finds the log stale", world, self.fails(actor, Failure.SHUT_OUT)
                else:
                    yield "confirms", world, self.adds(actor, is_confirmed=True)
            case steps.LookAt(decision):
                seen = self.seen(world, decision)
                looked = self.knows(actor, seen, lambda view: steps.with_seen(view, seen))
                yield "looks", world, looked
            case steps.EndAll(decision):
                yield from self.ends(world, actor, decision)
            case steps.Write():
                yield from self.writes(world, actor, step)
            case steps.Decide(state):
                yield from self.decides(world, actor, state)
            case steps.PrepareOwn():
                yield from self.prepares(world, actor, step)
            case steps.AbortAll(transactions):
                yield from self.aborts(world, actor, transactions)
            case steps.Search():
                found = frozenset(i for i in self.open_ids(world) if actor.mind.goal.mine(i))  # type: ignore[union-attr]  # only one goal searches
                known = self.adds(actor, found=found, searches=view.searches + 1)
                yield "searches", world, known
            case steps.Sweep():
                yield from self.sweeps(world, actor, step)
            case steps.AbortExactly():
                yield from self.aborts_exactly(world, actor, step)
            case steps.EndRest():
                yield from self.ends_rest(world, actor, step)

    def plans(self, world: Surroundings, actor: Actor) -> After:
        """An operator's command looks first, and may be refused (``operator.py``)."""
        goal = self.planned(world, world.log.value, actor.todo[0])
        if goal is None:
            yield "is refused", world, self.at_rest(actor, "refused before it has begun")
        else:
            yield "looks", world, actor._replace(mind=self.mind(goal, View()))

    def opens(self, world: Surroundings, actor: Actor) -> After:
        assert actor.mind is not None

        def opened(log: Kept) -> Actor:
            return self.knows(actor, log, lambda view: steps.opened(view, log.value, 1))

        if actor.has_left_open:
            actor = actor._replace(has_left_open=False)
            known = opened(self.keep(FIRST))
            assert known.mind is not None
            if table.decides_next(known.mind.goal, known.mind.view):
                yield "goes on with the key that was left open", world, known
                return
        open_ = world._replace(holder=actor.name, pending=None)
        yield "opens", open_, opened(world.log)
        if world.stale and world.old is not world.log:
            then = opened(world.old)._replace(is_stale=True)
            yield "opens at a deposed leader", open_._replace(stale=world.stale - 1), then

    def writes(self, world: Surroundings, actor: Actor, step: steps.Write) -> After:
        done = self.knows(
            actor._replace(is_stale=False), "written", lambda view: steps.with_write(view, step)
        )
        without = self.knows(
            actor._replace(is_stale=False), "not", lambda view: steps.without_write(view, step)
        )
        if self.is_shut_out(world, actor):
            failed = without if step.may_fail else self.fails(actor, Failure.SHUT_OUT)
            yield "is shut out", world, failed
            return
        then = self.written(world, step.state)
        yield f"writes {step.why.name}", then, done
        unclear = without if step.may_fail else self.fails(actor, Failure.UNCLEAR)
        if world.unanswered:
            yield "writes unanswered", then._replace(unanswered=world.unanswered - 1), unclear
        if world.late:
            late = self.keep(step.state or CommitState())
            yield "writes late", world._replace(late=world.late - 1, pending=late), unclear

    def decides(self, world: Surroundings, actor: Actor, state: CommitState) -> After:
        """Produce, check, EndTxn."""
        decision = state.decision
        assert decision is not None
        if self.is_shut_out(world, actor):
            yield "is shut out", world, self.fails(actor, Failure.SHUT_OUT)
        elif not actor.stage:
            states = {self.state(world, i) for i in decision.ids}
            if states != {OPEN} or self.age(world, decision) > YOUNG:
                for i in decision.ids:
                    world = self.ended(world, i, SWEPT) if self.state(world, i) == OPEN else world
                yield "finds it too late", world, self.fails(actor, Failure.FINAL)
            elif world.is_leaderless:
                yield "finds no leader", world, self.fails(actor, Failure.NO_LEADER)
            else:
                yield "checks", world, actor._replace(stage=("checked",))
        elif self.age(world, decision) >= GAP:
            yield "is behind its lease", world, self.fails(actor, Failure.SHUT_OUT)
        else:
            decided = self.knows(actor, "decided", lambda view: steps.with_decision(view, state, 1))
            then = self.written(world, state)
            yield "decides", then, decided._replace(stage=("commit", GAP))
            unclear = self.fails(actor, Failure.UNCLEAR)
            if world.unanswered:
                yield "decides unanswered", then._replace(unanswered=world.unanswered - 1), unclear
            if world.late:
                late = world._replace(late=world.late - 1, pending=self.keep(state))
                yield "decides late", late, unclear

    def prepares(self, world: Surroundings, actor: Actor, step: steps.PrepareOwn) -> After:
        """Describes an id, and initializes it later, which aborts what it has open by then. (An id
        without the commit's name is the same one for each thread of the run.)
        """
        report = self.reports[actor.work]
        mine = report.transactional_id
        others = [
            one.transactional_id
            for work, one in self.reports.items()
            if one is not report and work[0] == actor.run
        ]
        open_ = [i for i in others if self.state(world, i) == OPEN]
        if not actor.stage and self.state(world, mine) == NEW:
            is_shared = not step.name and not open_
            yield "chooses an id", world, actor._replace(stage=("chosen", is_shared))
            return
        if actor.stage == ("chosen", True):
            for one in open_:
                world = self.ended(world, one, SWEPT)
        if actor.stage:
            world = self.ended(world, mine, OPEN)
        prepared = (report,)
        yield "prepares its report", world, self.adds(actor, own=prepared, prepared=prepared)

    def aborts(
        self, world: Surroundings, actor: Actor, transactions: tuple[PreparedTransaction, ...]
    ) -> After:
        one = self.first_open(world, tuple(t.transactional_id for t in transactions))
        if one is None:
            yield "has aborted all", world, self.adds(actor, is_aborted=True)
        elif world.is_leaderless:
            yield "leaves some open", world, self.adds(actor, is_aborted=False)
        else:
            yield f"aborts {one}", self.ended(world, one, SWEPT), actor

    def aborts_exactly(self, world: Surroundings, actor: Actor, step: steps.AbortExactly) -> After:
        ids = tuple(one.transactional_id for one in step.transactions)
        one = None if world.is_leaderless else self.first_open(world, ids)
        if one is None:
            left = (i for i in ids if self.state(world, i) == OPEN)
            ended = steps.Ended(failed=tuple((i, ErrorCode.LEADER_NOT_AVAILABLE) for i in left))
            yield "has aborted all", world, self.adds(actor, by_hand=ended)
        else:
            yield f"aborts {one}", self.ended(world, one, SWEPT), actor

    def ends_rest(self, world: Surroundings, actor: Actor, step: steps.EndRest) -> After:
        """(An operator has decided: ages are of no matter.)"""
        ids = step.decision.ids
        open_ = tuple(i for i in ids if self.state(world, i) == OPEN)
        if open_ and not world.is_leaderless:
            how = DONE if step.done else SWEPT
            yield f"ends {open_[0]}", self.ended(world, open_[0], how), actor
            return
        seen = zip(step.decision.transactions, self.seen(world, step.decision), strict=True)
        outcomes = {t.transactional_id: outcome_of(t, now) for t, now in seen}
        ended = contradicting(outcomes, done=step.done)
        contrary = (*open_, *(i for i in ended if i not in step.accepted))
        yield "has ended the rest", world, self.adds(actor, contrary=contrary)

    def sweeps(self, world: Surroundings, actor: Actor, step: steps.Sweep) -> After:
        assert actor.mind is not None
        view = actor.mind.view
        keep = table.decided_ids(view.state)
        orphans = (
            str(one)
            for one in self.open_ids(world)
            if str(one) not in keep and is_orphan(one, step, view.state)
        )
        one = None if world.is_leaderless else next(orphans, None)
        if one is None:
            is_left = any(i.run == step.spared and str(i) not in keep for i in self.open_ids(world))
            swept = self.knows(
                actor,
                ("swept", is_left),
                lambda view: steps.with_sweep(view, step, (), is_left_open=is_left),
            )
            yield "has swept", world, swept
        else:
            yield f"sweeps {one}", self.ended(world, one, SWEPT), actor

    def ends(self, world: Surroundings, actor: Actor, decision: Decision) -> After:
        """Looks, and then sends one EndTxn after another, for as long as the look allows."""
        found = dict(zip(decision.ids, self.seen(world, decision), strict=True))
        outcomes = {
            t.transactional_id: outcome_of(t, found[t.transactional_id])
            for t in decision.transactions
        }
        open_ = tuple(i for i in decision.ids if self.state(world, i) == OPEN)
        age, by_hand = self.age(world, decision), actor.todo[0] == "by hand"
        if open_:
            gone = tuple(i for i, how in outcomes.items() if how is Outcome.LOST)
            unknown = tuple(i for i, how in outcomes.items() if how is Outcome.UNKNOWN)
            ended = CommitOutcomes(gone, unknown, open_, expired=unknown)
            over = self.adds(actor, ended=ended)
            yield "gives up", world, over
        if not actor.stage:
            seen = (
                Age.YOUNG
                if age <= COMMIT
                else Age.OLD
                if age == (HURRY if by_hand else UNDO)
                else Age.BETWEEN
            )
            away = world.is_leaderless and bool(open_)
            todo = rules.ending(decision.transactions, found, seen, away=away, only_lost=by_hand)
            whole = len(open_) == len(decision.ids)
            assert todo is not None
            stage: tuple[Hashable, ...] = {
                Ending.COMMIT: ("commit", max(GAP, age + 1)), Ending.HURRY: ("commit", LAST),
                Ending.FINISH: ("commit", TIMED_OUT), Ending.WAIT: (),
                Ending.UNDO: ("abort", LATER if whole else TIMED_OUT),
            }[todo]  # fmt: skip
            if stage:
                yield f"may {stage[0]}", world, actor._replace(stage=stage)
            return
        what, until = actor.stage
        assert isinstance(until, int)
        if what == "commit" and not open_:
            lost, unknown = (
                tuple(i for i, how in outcomes.items() if how is wanted)
                for wanted in (Outcome.LOST, Outcome.UNKNOWN)
            )
            ended = CommitOutcomes(lost, unknown, expired=unknown)
            yield "has ended all", world, self.adds(actor, ended=ended)
        elif what == "abort" and not open_ and set(outcomes.values()) == {Outcome.LOST}:
            yield "has undone all", world, self.adds(actor, ended=CommitOutcomes(lost=decision.ids))
        is_allowed = age <= until or (what == "commit" and DONE in self.truly(world, decision.ids))
        if open_ and is_allowed:
            how = DONE if what == "commit" else SWEPT
            truly = self.truly(world, decision.ids)
            # (An operator may abort a part by force.)
            is_torn = DONE not in truly and {GONE, SWEPT} & truly and not self.is_at_will
            if how == DONE and is_torn:
                raise IllegalStateError("a rest is committed, and none of the others is")
            yield f"{what}s {open_[0]}", self.ended(world, open_[0], how), actor
        yield "looks again", world, actor._replace(stage=())
