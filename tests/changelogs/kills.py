"""When a driver is killed, and where in its micro-batch it was then."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

from spark_kafka_sink.protocol.request import ApiKey
from tests.changelogs.applications import Application, Victim
from tests.changelogs.checkpoint import newest
from tests.exactly_once import checker
from tests.exactly_once.harness import COMMIT_LOG, of_data, of_log
from tests.faults.proxy import Action, Fault, Side
from tests.real_kafka import consume_topic
from tests.transactions.second_reader import ReadState, read_state

#: As long as a micro-batch on a quiet machine.
_BATCH_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Moment:
    """So many ``seconds`` after the begin of a micro-batch. Or at a frame: the ``nth`` one that
    ``api``, ``of`` and ``side`` name. If ``is_late``, the frame arrives after the death; otherwise
    it is lost.
    """

    victim: Victim
    seconds: float = 0.0
    api: ApiKey | None = None
    of: str = ""
    side: Side = Side.REQUEST
    nth: int = 1
    is_late: bool = False

    def __str__(self) -> str:
        if self.api is None:
            return f"{self.seconds:.1f} s after a begin"
        fate = "arrives" if self.is_late else "is lost"
        name = f"{self.api.name} of {self.of}".removesuffix(" of ")
        return f"{self.side.value} {self.nth} of {name}, which {fate}"

    def fault(self, application: Application) -> Fault:
        """Strikes ``application`` at the frame. Only for a moment with an ``api``."""
        assert self.api is not None
        return Fault(
            self.api,
            Action.PASS if self.is_late else Action.SWALLOW,
            self.side,
            nth=self.nth,
            match={"": None, "data": of_data, "log": of_log}[self.of],
            then=lambda _: application.strike(self.victim),
        )


def moment(random: Random, number: int) -> Moment:
    """Each second kill is at a random time, the others are at a random frame of a commit."""
    victim = random.choice(list(Victim))
    if number % 2 == 0:
        return Moment(victim, random.uniform(0, _BATCH_S))
    # A micro-batch: rows of two tasks, the decision (an EndTxn of the log), an EndTxn for each
    # task, and the note that all are ended (an EndTxn of the log).
    api, of, most = random.choice(
        [
            (ApiKey.PRODUCE, "", 4),
            (ApiKey.END_TXN, "log", 2),
            (ApiKey.END_TXN, "data", 2),
            (ApiKey.END_TXN, "data", 2),
        ]
    )
    side, is_late = random.choice(list(Side)), random.random() < 0.5
    return Moment(victim, 0.0, api, of, side, random.randint(1, most), is_late)


class Place(Enum):
    """Where a killed driver was, as its checkpoint and the commit log show it."""

    BETWEEN = "between two micro-batches"
    PLANNED = "before the write"
    WRITING = "in the write, before the decision"
    DECIDED = "between the decision and its end"
    ENDED = "after the commit, before Spark noted it"


@dataclass(frozen=True, slots=True)
class Death:
    """``open_ids``: how many of the batch's ``ids`` transactions were open."""

    place: Place
    batch: int
    ids: int = 0
    open_ids: int = 0

    def __str__(self) -> str:
        ended = f" ({self.ids - self.open_ids} of {self.ids} transactions ended)"
        return f"{self.place.value}{ended if self.place is Place.DECIDED else ''}"


def death(brokers: str, key: str, checkpoint: Path, application: Application) -> Death:
    """Where ``application``, which is dead, was. ``key`` is the query's key of the commit log."""
    batch = newest(checkpoint, "offsets")
    if newest(checkpoint, "commits") == batch:
        return Death(Place.BETWEEN, batch)
    state = state_of(brokers, key)
    if state is not None and state.decided == batch:
        states = checker.transactions(brokers, key)
        ids = [transaction.transactional_id for transaction in state.transactions]
        open_ids = sum(states.get(one) == "Ongoing" for one in ids)
        return Death(Place.DECIDED, batch, len(ids), open_ids)
    if state is not None and state.last_done == batch:
        return Death(Place.ENDED, batch)
    is_begun = batch in application.all("begun")
    return Death(Place.WRITING if is_begun else Place.PLANNED, batch)


def state_of(brokers: str, key: str) -> ReadState | None:
    """What the commit log says, as a reader says it that shares no code with the package."""
    read = consume_topic(brokers, COMMIT_LOG, isolation="read_committed")
    newest_of = dict(zip(read.keys, read.values, strict=True))
    return read_state(key, {k: v for k, v in newest_of.items() if k is not None and v is not None})
