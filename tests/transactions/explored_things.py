"""The things of the explorer: transactions with their states, the log, and the actors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

from spark_kafka_sink.admin.transaction_description import TransactionDescription, TransactionState
from spark_kafka_sink.base.errors import CommitError, ErrorCode, IllegalStateError
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions import steps, table
from spark_kafka_sink.transactions.commit_state import (
    CommitState,
    Decision,
    LogChangedError,
    LogOutcomeUnknownError,
    NoLeaderError,
    Standing,
)
from spark_kafka_sink.transactions.outcomes import Outcome, outcome_of
from spark_kafka_sink.transactions.ownership import Numbering
from spark_kafka_sink.transactions.results import Commit, Refuse
from spark_kafka_sink.transactions.steps import Failure, Goal, Step, View
from spark_kafka_sink.transactions.transactional_ids import TransactionalId, parse

#: Classes of age. None is decided after YOUNG, none committed by a look after COMMIT.
YOUNG, COMMIT, GAP, UNDO, LATER, HURRY, LAST, TIMED_OUT = range(8)
#: SWEPT: aborted by an actor, GONE: by brokers. A coordinator may have forgotten that.
OPEN, DONE, GONE, SWEPT = "open", "committed", "timed out", "aborted"
FORGOTTEN = " and forgotten"
#: Of a report that is not written yet.
NEW = "not begun"
#: How often an actor opens the key before it gives up.
OPENINGS = 2
KEY = "p"
#: Run "a" has written something before.
FIRST = CommitState(1, "a", "q")
_STATES = {
    OPEN: TransactionState.ONGOING,
    DONE: TransactionState.COMPLETE_COMMIT,
    GONE: TransactionState.COMPLETE_ABORT,
    SWEPT: TransactionState.COMPLETE_ABORT,
}
#: Commands of an operator that begin with a look at the log.
PLANNED = ("abort --force", "sweep", "resolve --as done", "resolve --as replay", "reset")
AT_WILL = frozenset(PLANNED) - {"sweep", "reset"}
NO_ANSWER = LogOutcomeUnknownError("no answer")
SHUT_OUT = LogChangedError("others have opened the key")
NO_LEADER = NoLeaderError("no leader")
TOO_LATE = CommitError("too late")


class Kept:
    """A value that is there once: it is compared by its identity, which costs nothing."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Mind:
    """What an actor wants and knows, and so its next step."""

    __slots__ = ("goal", "step", "view")

    def __init__(self, goal: Goal, view: View) -> None:
        self.goal, self.view = goal, view
        self.step: Step = table.next_step(goal, view)


class Actor(NamedTuple):
    """``todo`` are its goals (``Model.goal``); ``work`` its transactions, and ``number`` that of
    their batch. ``stage`` is inside of a step.
    """

    run: str
    todo: tuple[str, ...]
    work: str = ""
    number: int = 0
    numbering: Numbering = Numbering.STREAM
    #: Of its plan.
    generation: int = FIRST.generation
    mind: Mind | None = None
    stage: tuple[Hashable, ...] = ()
    is_stale: bool = False
    end: str = ""
    #: Its process has written the log's first state, and has left the key open.
    has_left_open: bool = False
    #: The driver writes a report, which is the last transaction of ``work``.
    has_report: bool = False

    @property
    def name(self) -> str:
        return f"{self.run}: {self.todo[0]} {self.work}"


class Surroundings(NamedTuple):
    """``ends`` and ``ages`` are in the order of the model's transactions and works. ``pending`` is
    a write whose EndTxn is late; ``old`` the state before the last write.
    """

    actors: tuple[Actor, ...]
    ends: tuple[str, ...]
    ages: tuple[int, ...]
    log: Kept
    old: Kept
    holder: str = ""
    pending: Kept | None = None
    #: Faults that may still happen.
    unanswered: int = 1
    late: int = 1
    stale: int = 1
    leaderless: int = 1
    forgotten: int = 1
    is_leaderless: bool = False


class Things:
    """``works`` has the number of transactions of each; a work's name begins with its run.
    ``version`` is that of the transactions, and ``planned`` the generation of each work's plan.
    """

    def __init__(
        self,
        works: dict[str, int],
        version: int = 2,
        reports: frozenset[str] = frozenset(),
        planned: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.version = version
        #: Without faults an abort leaves nothing open.
        self.is_quiet = True
        self.is_by_hand = True
        #: An operator has a command that may tear a batch.
        self.is_at_will = False
        #: An id may be initialized again while other transactions are open.
        self.is_forgotten_early = False

        def at(work: str) -> int:
            return planned.get(work, FIRST.generation)

        self.works = {
            work: tuple(
                PreparedTransaction(f"{KEY}~{work[0]}~g{at(work)}.{work}~{n}", 7, 3, version)
                for n in range(count)
            )
            for work, count in works.items()
        }
        self.reports = {
            work: PreparedTransaction(f"{KEY}~{work[0]}~g{at(work)}.report.{work}~0", 7, 3, version)
            for work in works
            if work in reports
        }
        for work, report in self.reports.items():
            self.works[work] += (report,)
        self.transaction = {t.transactional_id: t for ts in self.works.values() for t in ts}
        self.nth = {t.transactional_id: n for n, t in enumerate(sum(self.works.values(), ()))}
        self.ids = tuple(self.nth)
        self.of_works = tuple(
            tuple(self.nth[t.transactional_id] for t in ts) for ts in self.works.values()
        )
        self.of_work = {work: n for n, work in enumerate(self.works)}
        self.work_of = {t.transactional_id: w for w, ts in self.works.items() for t in ts}
        self._same: dict[Hashable, Any] = {}
        self._learned: dict[Hashable, Mind] = {}

    def keep(self, state: CommitState) -> Kept:
        found: Kept = self._same.get(state) or self._same.setdefault(state, Kept(state))
        return found

    def mind(self, goal: Goal, view: View) -> Mind:
        key = goal, view
        found: Mind = self._same.get(key) or self._same.setdefault(key, Mind(goal, view))
        return found

    @cache  # noqa: B019 - a model lives as long as its exploration
    def described(self, t: PreparedTransaction, state: str) -> TransactionDescription:
        if state.endswith(FORGOTTEN) or state == NEW:
            missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return TransactionDescription(missing, t.transactional_id, TransactionState.UNKNOWN)
        epoch = t.producer_epoch + (state != OPEN and (self.version > 1 or state != DONE))
        return TransactionDescription(
            ErrorCode.NONE, t.transactional_id, _STATES[state], 1_000, 0, t.producer_id, epoch
        )

    def seen(self, world: Surroundings, decision: Decision) -> tuple[TransactionDescription, ...]:
        return tuple(
            self.described(t, self.state(world, t.transactional_id)) for t in decision.transactions
        )

    def state(self, world: Surroundings, transactional_id: str) -> str:
        return world.ends[self.nth[transactional_id]]

    def age(self, world: Surroundings, decision: Decision) -> int:
        return max(world.ages[self.of_work[self.work_of[i]]] for i in decision.ids)

    def ended(self, world: Surroundings, transactional_id: str, how: str) -> Surroundings:
        nth = self.nth[transactional_id]
        return world._replace(ends=(*world.ends[:nth], how, *world.ends[nth + 1 :]))

    def first_open(self, world: Surroundings, ids: Iterator[str] | tuple[str, ...]) -> str | None:
        """Transactions of one work are alike, so that the order of their ends is of no matter."""
        return next((i for i in ids if self.state(world, i) == OPEN), None)

    def written(self, world: Surroundings, state: CommitState | None) -> Surroundings:
        return world._replace(log=self.keep(state or CommitState()), old=world.log)

    def planned(self, world: Surroundings, state: CommitState, command: str) -> Goal | None:
        open_ = self.open_ids(world)
        decided = table.decided_ids(state)
        owned = [i for i in open_ if state.standing(i.run, i.planned) is Standing.OWNER]
        if command == "reset":
            return None if owned or decided else steps.Reset(KEY, state)
        if command.startswith("resolve"):
            return self.resolve(world, state, done=command.endswith("done"))
        is_forced = command == "abort --force"
        found = [
            i
            for i in open_
            if (i.run == "a" if is_forced else i not in owned and str(i) not in decided)
        ]
        if not found:
            return None
        return steps.EndByHand(
            KEY,
            tuple(self.described(self.transaction[str(i)], OPEN) for i in found),
            decided if is_forced else frozenset(),
            even_owners=is_forced,
            may_decide=any(
                state.standing(i.run, i.planned) is not Standing.SUPERSEDED for i in found
            ),
        )

    def resolve(self, world: Surroundings, state: CommitState, *, done: bool) -> Goal | None:
        """Of a batch that is PARTIAL; by force if an outcome is not known."""
        if state.decision is None:
            return None
        seen = zip(state.decision.transactions, self.seen(world, state.decision), strict=True)
        outcomes = {t.transactional_id: outcome_of(t, now) for t, now in seen}
        is_doubtful = Outcome.UNKNOWN in outcomes.values()
        if not state.lost and not is_doubtful:
            return None
        contrary = contradicting(outcomes, done=done)
        return steps.Resolve(KEY, state, frozenset(contrary), done)

    def open_ids(self, world: Surroundings) -> list[TransactionalId]:
        found = (parse(i) for i, how in zip(self.ids, world.ends, strict=True) if how == OPEN)
        return [one for one in found if one is not None]

    def knows(self, actor: Actor, what: Hashable, view: Callable[[View], View]) -> Actor:
        """The actor after it has learned ``what``, which makes another ``view`` of its own."""
        before = actor.mind
        assert before is not None
        learned = before, what
        after = self._learned.get(learned)
        if after is None:
            after = self._learned[learned] = self.mind(before.goal, view(before.view))
        return actor._replace(mind=after, stage=())

    def adds(self, actor: Actor, **fields: Any) -> Actor:
        return self.knows(actor, tuple(fields.items()), lambda view: replace(view, **fields))

    def fails(self, actor: Actor, how: Failure) -> Actor:
        """The step has failed, at a time at which it is not tried for ever."""
        assert actor.mind is not None
        step = actor.mind.step
        error = {
            Failure.SHUT_OUT: SHUT_OUT, Failure.UNCLEAR: NO_ANSWER,
            Failure.NO_LEADER: NO_LEADER, Failure.FINAL: TOO_LATE,
        }[how]  # fmt: skip
        return self.knows(
            actor._replace(is_stale=False),
            how,
            lambda view: steps.with_failure(view, step, how, error, 0),
        )

    def is_shut_out(self, world: Surroundings, actor: Actor) -> bool:
        assert actor.mind is not None
        if not actor.mind.view.is_open:
            raise IllegalStateError("a key is written that is not open")
        return world.holder != actor.name or actor.is_stale

    def states(self, world: Surroundings, work: str) -> set[str]:
        return self.truly(world, [t.transactional_id for t in self.works[work]])

    def truly(self, world: Surroundings, ids: Iterable[str]) -> set[str]:
        """Their ends, whether they are forgotten or not."""
        return {self.state(world, i).removesuffix(FORGOTTEN) for i in ids}


def contradicting(outcomes: dict[str, Outcome], *, done: bool) -> Iterator[str]:
    """The ids whose outcomes contradict an operator's resolution of their batch."""
    against = (Outcome.LOST, Outcome.UNKNOWN) if done else (Outcome.COMMITTED,)
    return (i for i, how in outcomes.items() if how in against)


def check_own(goal: Goal, end: Refuse) -> None:
    """A commit ends with the outcome of its own batch, and of no other one."""
    of = getattr(end.reason, "number", None)
    is_outcome = end.how in (Commit.PARTIAL, Commit.UNKNOWN)
    if isinstance(goal, steps.CommitBatch) and is_outcome and of not in (None, goal.batch.number):
        raise IllegalStateError(f"a commit of {goal.batch.number} has the outcome of {of}")


def check_change(goal: Goal, end: Step, log: CommitState) -> None:
    """An operator's command that has changed the log, as its end says, has done so."""
    is_change = isinstance(goal, steps.Resolve | steps.Reset) and isinstance(end, steps.Return)
    if is_change and log == goal.planned:
        raise IllegalStateError("a command is over, and the log is as it was")


@cache
def of_run(run: str) -> Any:
    """Whether a transaction is of that run; the same function each time."""
    return lambda one: one.run == run
