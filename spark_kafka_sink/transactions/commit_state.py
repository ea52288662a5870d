"""What the decision log says of one key: who owns it, what is done, what is decided.

Owns: :class:`CommitState`, its steps (a table of methods, each giving the next state), and its form
as bytes. Never: a broker, a clock, the decision itself (``committer.py``).

The log keeps one state for each key, the newest. A batch's way through it::

    (nothing, or DONE N-1) -decide-> DECIDED N -finish-> DONE N
                                     DECIDED N -lose---> PARTIAL N -resolve-> DONE N or DONE N-1
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from spark_kafka_sink.errors import CommitError, IllegalStateError
from spark_kafka_sink.producer.transaction_states import PreparedTransaction

#: Of the bytes. A reader refuses what is newer.
FORMAT: Final = 1
#: Run ids that are remembered as superseded, the newest ones.
KEPT_RUNS: Final = 32
#: ``last_done`` of a key under which nothing was done yet.
NOTHING_DONE: Final = -1


class Phase(Enum):
    """Where a key's newest batch stands."""

    DONE = "done"
    DECIDED = "decided"
    PARTIAL = "partial"


@dataclass(frozen=True, slots=True)
class Decision:
    """Batch ``number`` is to be committed, with all of these transactions."""

    number: int
    transactions: tuple[PreparedTransaction, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(t.transactional_id for t in self.transactions)


@dataclass(frozen=True, slots=True)
class CommitState:
    """``run_id`` owns the key in this ``generation``; ``superseded`` are run ids that did before.

    ``last_done`` is the batch (micro-batch id, or txnVersion) that was done last. ``decision`` is
    the one under way, or None; ``lost`` its transactional ids that the broker aborted.
    """

    generation: int = 0
    run_id: str = ""
    query_id: str = ""
    last_done: int = NOTHING_DONE
    superseded: tuple[str, ...] = ()
    decision: Decision | None = None
    lost: tuple[str, ...] = field(default=())

    @property
    def phase(self) -> Phase:
        if self.decision is None:
            return Phase.DONE
        return Phase.PARTIAL if self.lost else Phase.DECIDED

    def taken_over(self, run_id: str, query_id: str) -> CommitState:
        """``run_id`` owns it now; the same state when it does already."""
        if self.generation and self.run_id == run_id:
            return self if self.query_id == query_id else replace(self, query_id=query_id)
        return replace(
            self,
            generation=self.generation + 1,
            run_id=run_id,
            query_id=query_id,
            superseded=self._with_superseded(self.run_id),
        )

    def without(self, run_ids: Iterable[str]) -> CommitState:
        """These runs never owned it, and must not any more."""
        return replace(self, superseded=self._with_superseded(*run_ids))

    def given_up(self, run_id: str) -> CommitState:
        """``run_id`` was aborted, and must not decide anything any more. Whoever comes next takes
        over as ever, with the generation that it was planned with.
        """
        owner = "" if self.run_id == run_id else self.run_id
        return replace(self, run_id=owner, superseded=self._with_superseded(run_id))

    def _with_superseded(self, *run_ids: str) -> tuple[str, ...]:
        kept = [run for run in self.superseded if run not in run_ids]
        return (*kept, *(run for run in run_ids if run))[-KEPT_RUNS:]

    def decided(self, decision: Decision) -> CommitState:
        self._require(Phase.DONE)
        return replace(self, decision=decision)

    def finished(self) -> CommitState:
        """Every transaction of the decision is committed."""
        self._require(Phase.DECIDED)
        assert self.decision is not None
        return replace(self, last_done=self.decision.number, decision=None)

    def skipped_to(self, number: int) -> CommitState:
        """Batch ``number`` had no row, so there was nothing to decide."""
        self._require(Phase.DONE)
        return replace(self, last_done=number)

    def partly_lost(self, ids: Iterable[str]) -> CommitState:
        """The broker aborted these transactions of the decision (their time was over)."""
        self._require(Phase.DECIDED)
        return replace(self, lost=tuple(ids))

    def resolved(self, *, done: bool) -> CommitState:
        """By an operator: batch N counts as done, or is to be written again as a whole."""
        if self.decision is None:
            raise IllegalStateError("there is no batch to resolve: the last one is done")
        last = self.last_done
        if done:
            last = self.decision.number
        elif self.query_id:
            # A stream whose first batch here is not its batch 0 (it ran with another guarantee
            # before) would wait for batch 0 else.
            last = self.decision.number - 1
        return replace(self, last_done=last, decision=None, lost=())

    def _require(self, phase: Phase) -> None:
        if self.phase is not phase:
            raise IllegalStateError(f"the commit log is {self.phase.value}, not {phase.value}")

    # -- as bytes -----------------------------------------------------------------------------

    def encode(self) -> bytes:
        """JSON in UTF-8: readable with any consumer. A transactional id is a stem and a number."""
        fields: dict[str, object] = {
            "format": FORMAT,
            "generation": self.generation,
            "runId": self.run_id,
            "queryId": self.query_id,
            "lastDone": self.last_done,
            "superseded": list(self.superseded),
        }
        if self.decision is not None:
            stems: dict[str, list[list[int]]] = {}
            for t in self.decision.transactions:
                stem, number = split_number(t.transactional_id)
                stems.setdefault(stem, []).append(
                    [number, t.producer_id, t.producer_epoch, t.transaction_version]
                )
            fields["batch"] = self.decision.number
            fields["transactions"] = stems
        if self.lost:
            fields["lost"] = list(self.lost)
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, value: bytes) -> CommitState:
        """Raises CommitError for bytes of a newer version, or that are not a state at all."""
        try:
            fields: dict[str, Any] = json.loads(value)
            if fields["format"] > FORMAT:
                raise CommitError(
                    f"the commit log was written by a newer spark-kafka-sink (format "
                    f"{int(fields['format'])}; {FORMAT} is known here)",
                    hint="a stream that ran with a newer version must go on with it",
                )
            decision = None
            if "batch" in fields:
                decision = Decision(
                    int(fields["batch"]),
                    tuple(
                        PreparedTransaction(f"{stem}{int(k)}", int(pid), int(epoch), int(version))
                        for stem, entries in fields["transactions"].items()
                        for k, pid, epoch, version in entries
                    ),
                )
            return cls(
                generation=int(fields["generation"]),
                run_id=str(fields["runId"]),
                query_id=str(fields["queryId"]),
                last_done=int(fields["lastDone"]),
                superseded=tuple(str(run) for run in fields["superseded"]),
                decision=decision,
                lost=tuple(str(text) for text in fields.get("lost", ())),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, CommitError):
                raise
            raise CommitError(
                "a record of the commit log is not one of ours",
                hint="the topic of commitLogTopic must not be written by anybody else",
            ) from None


def split_number(transactional_id: str) -> tuple[str, int]:
    """The stem and the number at the end."""
    stem, separator, number = transactional_id.rpartition("~")
    return stem + separator, int(number)
