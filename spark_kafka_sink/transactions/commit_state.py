"""The state of one key in the commit log. It has the owner of the key, the batches that are done,
and the decision to commit a batch, if there is one.

This module has :class:`CommitState`, its serialized form, and its transitions (methods that return
the next state). It uses no broker and no clock. ``table.py`` chooses when a state is written.

* A *key* is the name of a query or a job.
* A *run* is one start of a query or a job. The *owner* of a key is the run that may commit its
  batches.
* If another run takes the key over, the earlier owner is *superseded*: its commits are refused.
* The *generation* is a number in the state. Each take-over raises it. A run *plans* a batch before
  the tasks start, and remembers the generation of the key at the planning.
* A batch is *decided* if the state has the decision to commit it.

The log keeps the newest state of each key. The states of batch N::

    (nothing, or DONE N-1) -decide-> DECIDED N -finish-> DONE N
                                     DECIDED N -undo---> (nothing, or DONE N-1)
                                     DECIDED N -lose---> PARTIAL N -resolve-> DONE N or DONE N-1

* *finish*: all transactions of the batch are committed.
* *undo*: all transactions of the batch were aborted, so none of its rows is visible. The query or
  the job writes the batch again.
* *lose*: some transactions of the batch were aborted, and others are committed. So the batch is
  visible only in part (PARTIAL).
* *resolve*: an operator chooses that the batch counts as done, or that it is written again.

A *block* (``with spark_kafka_sink.transaction(...)``) has several writes that are committed
together, as one batch. Until the batch is decided, the state records each write (:class:`Part`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from spark_kafka_sink.base.errors import (
    CommitError,
    CommitLogError,
    CommitOutcomeUnknownError,
    IllegalStateError,
    SupersededError,
    safe_text,
)
from spark_kafka_sink.protocol.producer_ids import PreparedTransaction
from spark_kafka_sink.transactions.transactional_ids import parse

#: The format that is read and written. A new field needs no new format if an earlier version of
#: this package may ignore the field. The earlier version keeps the field (``CommitState.other``).
FORMAT: Final = 1
#: The maximum number of run ids in ``superseded``, and the maximum number of batches in ``done``.
KEPT_RUNS: Final = 32
KEPT_DONE: Final = 32
#: ``last_done`` of a key without a batch.
NOTHING_DONE: Final = -1
#: The maximum number of characters of a text in a record. Run ids and query ids are far shorter.
_LONGEST_TEXT: Final = 200
_LONGEST_ID: Final = 400


class LogOutcomeUnknownError(CommitOutcomeUnknownError):
    """A write to the commit log is a transaction. Its EndTxn got no definite response in time.

    To find out whether the write is in the log, open a new session for the key: the state of the
    session shows it.
    """


class LogChangedError(SupersededError):
    """Another process has fenced the writer of the key, or the state that this process has read is
    not the newest state of the key. For example, a former leader of the log's partition has
    returned an old state. Nothing was written.

    To find out which run owns the key now, open a new session for the key.
    """


class NewerStateError(CommitLogError):
    """A newer version of this package wrote the state of the key, in a format that this version
    can't read. The state is not damaged.
    """


class NoLeaderError(CommitError):
    """A batch was not committed, because a partition has no leader: a partition of its
    transactions, or the partition of the key in the commit log. None of the batch's transactions
    was committed or aborted. A later attempt may succeed.
    """


class Phase(Enum):
    """The phase of a key:

    * DONE: no batch is decided.
    * DECIDED: a batch is decided, and its transactions are to be committed.
    * PARTIAL: the decided batch is committed only in part, because some of its transactions were
      aborted.
    """

    DONE = "done"
    DECIDED = "decided"
    PARTIAL = "partial"


class Standing(Enum):
    """Whether a run may decide a batch of a key. To decide a batch means to write the decision to
    commit the batch. :meth:`CommitState.standing` has the rules.
    """

    #: The run may decide: it owns the key.
    OWNER = "owner"
    #: The run may not decide: another run has taken over, or this run was aborted.
    SUPERSEDED = "superseded"
    #: As a rule, the log does not name the run: it has not committed anything under this key yet,
    #: or it is no longer among the runs that the state keeps. The run may take over the key if it
    #: planned its batch at the key's present generation, a number that each take-over raises.
    UNKNOWN = "not in the log"


@dataclass(frozen=True, slots=True)
class Payload:
    """The numbers that describe the rows of a write. Two writes of the same rows have equal
    payloads, even if the rows are split into tasks in another way. If the payloads of a batch and
    of its repetition differ, the repetition has other rows.

    * ``rows``: the number of rows.
    * ``bytes``: the bytes of keys and values.
    * ``topic``: empty if each row has its own topic.
    * ``letters``: how many of ``rows`` become dead letters. None if this is unknown.
    """

    rows: int = 0
    bytes: int = 0
    topic: str = ""
    letters: int | None = None

    def __str__(self) -> str:
        letters = f", {self.letters} of them dead letters," if self.letters else ""
        to = self.topic or "topics of the rows"
        return f"{self.rows} rows of {self.bytes} bytes{letters} to {to}"


def comparable(*writes: Sequence[Payload]) -> list[Counter[Payload]]:
    """Converts lists of payloads to Counters, one for each list. Two lists with the same payloads
    in different orders have equal Counters.

    If any payload of any list has an unknown number of dead letters, ``letters`` is None in all
    payloads of all Counters. So a comparison of the Counters ignores the dead letters.
    """
    if any(one.letters is None for payloads in writes for one in payloads):
        writes = tuple([replace(one, letters=None) for one in payloads] for payloads in writes)
    return [Counter(payloads) for payloads in writes]


@dataclass(frozen=True, slots=True)
class Done:
    """A committed batch.

    ``digest`` identifies the input of the batch. It is empty if the input is unknown. ``payloads``
    has a :class:`Payload` for each write of the batch, in any order. A batch has several writes
    only if it is a block. ``payloads`` is empty if the state no longer keeps the payloads.
    """

    number: int
    payloads: tuple[Payload, ...] = ()
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """One write of a block (``spark_kafka_sink.transaction``), as the state of the key records it.
    All writes of a block are committed together, as one batch.

    * ``transactions``: the prepared transactions of the write.
    * ``payload``: the numbers that describe the write's rows.
    * ``name``: the unique name of the commit that has recorded this write. If this commit is tried
      again, it finds its record by this name, and does not record the write twice.
    * ``letters``: the number of dead letters, and the number of rows that the write received. Both
      are 0 if dead letters are off.

    If a block is run again after its batch was committed, its tasks only count their rows. Then
    ``transactions`` is empty, and ``payload`` must be one of the payloads of the committed batch.
    """

    transactions: tuple[PreparedTransaction, ...]
    payload: Payload
    name: str = ""
    letters: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision to commit all ``transactions`` of batch ``number``. ``payloads`` and ``digest``
    have the same meaning as in :class:`Done`.
    """

    number: int
    transactions: tuple[PreparedTransaction, ...]
    payloads: tuple[Payload, ...] = ()
    digest: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(t.transactional_id for t in self.transactions)


@dataclass(frozen=True, slots=True)
class CommitState:
    """The state of one key in the commit log. A key is the name of a query or a job.

    * ``generation``: a number that grows when another run takes over the key.
    * ``run_id``: the owner, which is the run that may commit the key's batches. Empty if the owner
      was aborted.
    * ``query_id``: the query of the batches. Empty if it is unknown.
    * ``last_done``: the number of the newest done batch, a micro-batch id or a txnVersion.
      NOTHING_DONE before the first.
    * ``superseded``: the runs that can't commit any more, which are earlier owners and aborted
      runs. The oldest is the first. Only the newest KEPT_RUNS are kept.
    * ``decision``: the decision to commit a batch whose end is not recorded yet. None if there is
      no such decision.
    * ``lost``: the transactional ids of the aborted transactions, if the decided batch is committed
      only in part. Empty in all other cases.
    * ``done``: the newest KEPT_DONE done batches, oldest first.
    * ``parts``: the recorded writes of a block, or empty. A block (``with
      spark_kafka_sink.transaction(...)``) has several writes that are committed together, as one
      batch. A write (:class:`Part`) is added when it ends, and stays here until the batch is
      decided.
    * ``parts_of``, ``parts_token``: the batch number and the unique name of this block.
    * ``other``: fields that a newer version of this package has written, as pairs of name and JSON.
      These fields are kept unchanged.
    * ``take_over``: the generations before and after the last take-over, such as (5, 6). (0, 0) if
      these generations are not known.
    """

    generation: int = 0
    run_id: str = ""
    query_id: str = ""
    last_done: int = NOTHING_DONE
    superseded: tuple[str, ...] = ()
    decision: Decision | None = None
    lost: tuple[str, ...] = ()
    done: tuple[Done, ...] = ()
    parts_of: int = NOTHING_DONE
    parts_token: str = ""
    parts: tuple[Part, ...] = ()
    other: tuple[tuple[str, str], ...] = ()
    take_over: tuple[int, int] = (0, 0)

    @property
    def phase(self) -> Phase:
        if self.decision is None:
            return Phase.DONE
        return Phase.PARTIAL if self.lost else Phase.DECIDED

    @property
    def newest_run(self) -> str:
        """The run id of the key's owner. If the key has no owner, the id of the run that was
        aborted last. Empty if no run is known.
        """
        return self.run_id or (self.superseded[-1] if self.superseded else "")

    def standing(self, run_id: str, planned: int | None = None) -> Standing:
        """Returns the standing of the run ``run_id``: whether it may write the decision to commit a
        batch. ``planned`` is the generation that the key had when the run planned this batch,
        before the tasks began. ``planned`` is None if this generation is unknown.

        The first of these rules that applies counts:

        1. ``planned`` is larger than the generation of this state: UNKNOWN. The run may not decide:
           this state is old, or the log has lost records.
        2. The run is in ``superseded``: SUPERSEDED.
        3. The run is the owner: OWNER. Exception: this rule does not apply if the generation has
           grown between the planning of the batch and the owner's take-over
           (``_is_of_the_owner``).
        4. ``planned`` is smaller than the generation of this state: SUPERSEDED.
        5. ``planned`` is the generation of this state: UNKNOWN. The run may take over the key.
        6. ``planned`` is None: UNKNOWN.

        If the standing of a run for a batch is SUPERSEDED in one state, it is SUPERSEDED in all
        later states. Exception: after the key was removed from the log, it may have another
        standing.
        """
        if planned is not None and planned > self.generation:
            return Standing.UNKNOWN
        if run_id in self.superseded:
            return Standing.SUPERSEDED
        # Some batches of the owner are superseded: another run took over between the planning of
        # the batch and the owner's own take-over. That run may abort the batch's transactions at
        # any later time. For example:
        #   1. B lists the open transactions of the batch that C planned at generation 1.
        #   2. C plans another batch at generation 2, and takes over: generation 3.
        #   3. C decides the batch that it planned at generation 1.
        #   4. B's EndTxn(abort) arrives: this batch is committed in part.
        if self.run_id == run_id and self._is_of_the_owner(planned):
            return Standing.OWNER
        # Before its first commit, a run is not in the log. So it is judged by ``planned``:
        #   1. A, B and C have planned a batch at generation 1. Their tasks have begun.
        #   2. A crashes. B takes over: generation 2.
        #   3. C commits its batch of generation 1. B owns the key at generation 2, so C stops.
        #   4. B aborts the open transactions of A and C. Later runs plan at generation 2 or later,
        #      so B does not abort their transactions.
        is_late = planned is not None and planned < self.generation
        return Standing.SUPERSEDED if is_late else Standing.UNKNOWN

    def _is_of_the_owner(self, planned: int | None) -> bool:
        """Whether the owner may decide a batch that it planned at generation ``planned``. True if
        ``planned`` is one of these:

        * The generation directly before the owner's take-over.
        * The generation after this take-over, or any later generation.
        * None: the generation is unknown.

        For example, if the take-over has raised the generation from 5 to 6, the result is True for
        5, 6, 7 and later, and False for 4 and earlier.
        """
        before, after = self.take_over
        return planned is None or planned == before or planned >= after

    def done_batch(self, number: int) -> Done | None:
        """The done batch ``number``, or None if it is not among the kept batches."""
        return next((one for one in self.done if one.number == number), None)

    def has_done(self, decision: Decision) -> bool:
        """Whether the batch of ``decision`` is one of the done batches of this state.

        The result is True if a done batch has the same number, and an equal digest of its input. If
        both digests are unknown, the payloads (the numbers of rows and bytes) must be known and
        equal. Exception: the result is False for a batch that an operator has resolved as done,
        because its digest and its payloads are not kept.
        """
        done = self.done_batch(decision.number)
        if done is None or done.digest != decision.digest:
            return False
        return done.digest != "" or (done.payloads != () and done.payloads == decision.payloads)

    def taken_over(self, run_id: str, query_id: str, now_ms: int) -> CommitState:
        """The state after the run ``run_id`` has taken over the key:

        * The run is the owner.
        * The generation is higher.
        * The earlier owner is superseded: its commits are refused.
        * The recorded writes of a block (:class:`Part`) are dropped.

        Exception: if ``run_id`` already is the owner, only the query id changes.

        If ``query_id`` is empty, the current query id stays. ``now_ms`` is the wall-clock time,
        which is the generation of a new key.
        """
        query_id = query_id or self.query_id
        if self.generation and self.run_id == run_id:
            return self if self.query_id == query_id else replace(self, query_id=query_id)
        generation = self._next_generation(now_ms)
        return replace(
            self._superseding(self.run_id),
            generation=generation,
            run_id=run_id,
            query_id=query_id,
            take_over=(self.generation, generation),
        ).without_parts()

    def with_aborted_run(self, run_id: str, now_ms: int) -> CommitState:
        """The state after the run ``run_id`` was aborted: this run can't decide a batch any more.
        If the run was the owner, the new state has no owner, and the recorded writes of the run's
        block (:class:`Part`) are dropped.

        The generation stays the same. So another run that planned a batch at this generation can
        take over. Exception: the generation grows if the list ``superseded`` is full (KEPT_RUNS),
        and drops its oldest run. Otherwise the dropped run could take over again. ``now_ms`` is the
        wall-clock time.
        """
        aborted = self._superseding(run_id)
        if len(self.superseded) == KEPT_RUNS and self.superseded[0] not in aborted.superseded:
            aborted = replace(aborted, generation=self._next_generation(now_ms))
        return replace(aborted, run_id="").without_parts() if run_id == self.run_id else aborted

    def forgotten(self, now_ms: int) -> CommitState:
        """An empty state with the next generation, for an operator's reset of the key.

        A batch that was planned at an earlier generation can't be committed any more. If its
        transactions are still open, the next commit or abort under this key aborts them.
        """
        return CommitState(generation=self._next_generation(now_ms))

    def _next_generation(self, now_ms: int) -> int:
        """The next generation of the key, a number that grows with each take-over. The first
        generation of a key is ``now_ms``, the wall-clock time, and at least 1. So it is larger than
        each generation that a lost log has had. Each later generation is larger by one.
        """
        return self.generation + 1 if self.generation else max(1, now_ms)

    def _superseding(self, run_id: str) -> CommitState:
        kept = (run for run in self.superseded if run != run_id)
        return replace(self, superseded=(*kept, *filter(None, [run_id]))[-KEPT_RUNS:])

    def with_part(self, number: int, token: str, part: Part) -> CommitState:
        """The state with one more recorded write of a block. ``part`` is the record. A block
        (``spark_kafka_sink.transaction``) has several writes that are committed together, as batch
        ``number``. ``token`` is the unique name of the block.

        If the state already has a record with the same ``part.name``, the new record replaces it.
        If the state has writes of another block, these writes are dropped.
        """
        self._require(Phase.DONE)
        # (Another block was abandoned, or its decision will fail because its writes are missing.)
        others = (p for p in self.parts_by(number, token) if not part.name or p.name != part.name)
        parts = (*others, part)
        return replace(self, parts_of=number, parts_token=token, parts=parts)

    def parts_by(self, number: int, token: str) -> tuple[Part, ...]:
        """The recorded writes of one block (``spark_kafka_sink.transaction``). ``token`` is the
        unique name of the block, and ``number`` is its batch number. The result is empty if the
        state has no writes of this block.
        """
        return self.parts if (self.parts_of, self.parts_token) == (number, token) else ()

    def without_parts(self) -> CommitState:
        return replace(self, parts_of=NOTHING_DONE, parts_token="", parts=())

    def decided(self, decision: Decision) -> CommitState:
        self._require(Phase.DONE)
        return replace(self, decision=decision).without_parts()

    def finished(self) -> CommitState:
        """The state after all transactions of the decided batch were committed (phase DONE)."""
        self._require(Phase.DECIDED)
        assert self.decision is not None
        decision = self.decision
        done = Done(decision.number, decision.payloads, decision.digest)
        return replace(self._with_done(done), decision=None)

    def skipped_to(self, done: Done) -> CommitState:
        """The state after the batch ``done``, which has no rows. The batch becomes the newest done
        batch, without a decision, because there is nothing to commit.
        """
        self._require(Phase.DONE)
        return self._with_done(done).without_parts()

    def _with_done(self, done: Done) -> CommitState:
        """The state with one more done batch.

        An earlier batch with several writes keeps only its number and its digest. Such a batch is a
        ``transaction`` block, whose query replays only its last batch, so the payloads of earlier
        blocks are not needed. A batch with one write keeps its payload, because it may be a
        txnVersion of a job, and a job can repeat earlier versions.
        """
        kept = tuple(
            replace(one, payloads=one.payloads if len(one.payloads) < 2 else ())
            for one in self.done
            if one.number != done.number
        )
        return replace(self, last_done=done.number, done=(*kept, done)[-KEPT_DONE:])

    def partly_lost(self, ids: Iterable[str]) -> CommitState:
        """The state after some transactions of the decided batch were aborted, and others committed
        (phase PARTIAL). ``ids`` are the ids of the aborted transactions.
        """
        self._require(Phase.DECIDED)
        return replace(self, lost=tuple(ids))

    def undone(self) -> CommitState:
        """The state after the decision was undone: no row of the batch is or will be visible, and
        the batch is written again.
        """
        return replace(self, decision=None, lost=())

    def resolved(self, *, done: bool) -> CommitState:
        """The state after an operator has ended the decided batch. If ``done`` is true, the batch
        counts as done. If ``done`` is false, the query or the job writes the whole batch again.

        Raises IllegalStateError if no batch is decided.
        """
        if self.decision is None:
            raise IllegalStateError("there is no batch to resolve: the last one is done")
        state = self._with_done(Done(self.decision.number)) if done else self
        return state.undone()

    def _require(self, phase: Phase) -> None:
        if self.phase is not phase:
            raise IllegalStateError(f"the commit log is {self.phase.value}, not {phase.value}")

    def encode(self) -> bytes:
        """Encodes the state as JSON in UTF-8, which any consumer can read. The recorded writes of a
        block are not included: :meth:`encode_parts` encodes these writes. A transactional id is
        stored in two parts: all up to the last ``~`` (the stem), and the number after it.
        """
        fields: dict[str, object] = {name: json.loads(text) for name, text in self.other}
        fields |= {
            "format": FORMAT,
            "generation": self.generation,
            "runId": self.run_id,
            "queryId": self.query_id,
            "lastDone": self.last_done,
            "done": [[one.number, *_payload_fields(one.payloads)] for one in self.done],
            "superseded": list(self.superseded),
        }
        if any(self.take_over):
            fields["takeOver"] = self.take_over
        # These fields name the batch numbers. An earlier version of this package does not know the
        # fields, keeps them, and may add other batches to ``done``.
        batches: list[Done | Decision] = [*self.done, *filter(None, [self.decision])]
        if digests := {str(one.number): one.digest for one in batches if one.digest}:
            fields["digests"] = digests
        if letters := {
            str(one.number): [payload.letters for payload in one.payloads]
            for one in batches
            if any(payload.letters is not None for payload in one.payloads)
        }:
            fields["deadLetters"] = letters
        if self.decision is not None:
            fields["batch"] = self.decision.number
            fields["payloads"] = _payload_fields(self.decision.payloads)
            fields["transactions"] = _by_stem(self.decision.transactions)
        if self.lost:
            fields["lost"] = list(self.lost)
        if self.parts:
            fields["partsOf"] = self.parts_of
            fields["partsToken"] = self.parts_token
        return _json(fields)

    def encode_parts(self) -> list[bytes]:
        """Encodes the recorded writes in ``parts`` (:class:`Part`). Each write becomes one JSON
        text in UTF-8. The result has the same order as ``parts``.
        """
        return [
            _json(
                {
                    "batch": self.parts_of,
                    "token": self.parts_token,
                    "name": part.name,
                    "payload": _payload_fields((part.payload,))[0],
                    "transactions": _by_stem(part.transactions),
                    **({"letters": part.letters} if any(part.letters) else {}),
                    **_if_known("deadLetters", part.payload.letters),
                }
            )
            for part in self.parts
        ]

    @classmethod
    def decode(cls, key: str, value: bytes, parts: Sequence[bytes] = ()) -> CommitState:
        """Decodes the state of ``key``. ``value`` was made by :meth:`encode`. ``parts`` are
        recorded writes of a block (:class:`Part`), made by :meth:`encode_parts`. If ``parts`` has
        writes of another block than ``value``, these are ignored.

        Raises CommitLogError if the bytes can't be decoded as a state, or if the state has a
        transaction of another key. Raises NewerStateError if a newer version of this package has
        written the state in a newer format.
        """
        try:
            fields: dict[str, Any] = json.loads(value)
            version = _int64(fields["format"])
            if version > FORMAT:
                raise NewerStateError(
                    f"the commit log was written by a newer spark-kafka-sink (format {version}; "
                    f"this one reads {FORMAT})",
                    hint="a stream that ran with a newer version must continue with it",
                )
            digests, letters = fields.get("digests", {}), fields.get("deadLetters", {})
            decision = None
            if "batch" in fields:
                number = _int64(fields["batch"])
                decision = Decision(
                    number,
                    _transactions(key, fields["transactions"]),
                    _payloads(fields.get("payloads", ()), letters.get(str(number))),
                    _text(digests.get(str(number), "")),
                )
            block = _int64(fields.get("partsOf", NOTHING_DONE)), _text(fields.get("partsToken", ""))
            state = cls(
                generation=_int64(fields["generation"]),
                run_id=_text(fields["runId"]),
                query_id=_text(fields["queryId"]),
                last_done=_int64(fields["lastDone"]),
                done=tuple(
                    Done(
                        _int64(number),
                        _payloads(rest, letters.get(str(number))),
                        _text(digests.get(str(number), "")),
                    )
                    for number, *rest in fields.get("done", ())
                ),
                superseded=tuple(_text(run) for run in fields["superseded"]),
                take_over=_two(fields.get("takeOver", (0, 0))),
                decision=decision,
                lost=tuple(_text(one, _LONGEST_ID) for one in fields.get("lost", ())),
                parts_of=block[0],
                parts_token=block[1],
                parts=_parts(key, *block, parts),
                other=tuple(
                    (name, json.dumps(fields[name])) for name in sorted(fields.keys() - _KNOWN)
                ),
            )
            return state if state.parts else state.without_parts()
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            raise CommitLogError(
                f"the commit log's record of '{key}' was not written by spark-kafka-sink",
                hint="no other client may write to the topic of commitLogTopic; "
                + _command_to_remove(key),
            ) from None


_KNOWN: Final = frozenset(
    {
        "format", "generation", "runId", "queryId", "lastDone", "done", "digests", "deadLetters",
        "superseded", "batch", "payloads", "transactions", "lost", "partsOf", "partsToken",
        "takeOver",
    }
)  # fmt: skip


def _command_to_remove(key: str) -> str:
    """Returns a hint with the command that removes ``key`` from the log. The hint is for the error
    that a record of ``key`` can't be decoded.

    A key that contains ``~~`` belongs to a backfill, and ``kprod backfill`` removes it. All other
    keys belong to a query or a job, and ``kprod txn reset`` removes them.
    """
    _, of_backfill, rest = key.partition("~~")
    if of_backfill:
        return f"'kprod backfill {rest.partition('~')[2]} --forget' removes the record"
    return f"'kprod txn reset {key} --force' forgets the key"


def _json(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _payload_fields(payloads: Iterable[Payload]) -> list[tuple[object, ...]]:
    return [(one.rows, one.bytes, one.topic) for one in payloads]


def _payloads(fields: Iterable[Any], letters: Sequence[Any] | None = None) -> tuple[Payload, ...]:
    """Decodes the payloads of a batch.

    ``letters`` has one entry for each payload: the number of its dead letters, or None if this
    number is unknown. If ``letters`` has another length than ``fields``, it does not belong to
    these payloads and is ignored.
    """
    found = tuple(Payload(_int64(rows), _int64(size), _text(to, 249)) for rows, size, to in fields)
    if letters is None or len(letters) != len(found):
        return found
    numbers = [None if one is None else _int64(one) for one in letters]
    return tuple(replace(one, letters=n) for one, n in zip(found, numbers, strict=True))


def _if_known(name: str, value: object) -> dict[str, object]:
    return {} if value is None else {name: value}


def _two(numbers: Sequence[Any]) -> tuple[int, int]:
    one, other = numbers
    return _int64(one), _int64(other)


def _parts(key: str, number: int, token: str, texts: Iterable[bytes]) -> tuple[Part, ...]:
    """Decodes the recorded writes of one block (``spark_kafka_sink.transaction``). The block has
    the batch number ``number`` and the token ``token``. Writes of other blocks in ``texts`` are
    left out.
    """
    fields = (json.loads(text) for text in texts)
    return tuple(
        Part(
            _transactions(key, part["transactions"]),
            _payloads((part["payload"],), [part.get("deadLetters")])[0],
            _text(part["name"]),
            _two(part.get("letters", (0, 0))),
        )
        for part in fields
        if (part["batch"], part["token"]) == (number, token)
    )


def _by_stem(transactions: Iterable[PreparedTransaction]) -> dict[str, list[list[int]]]:
    stems: dict[str, list[list[int]]] = {}
    for t in transactions:
        stem, number = split_number(t.transactional_id)
        stems.setdefault(stem, []).append(
            [number, t.producer_id, t.producer_epoch, t.transaction_version]
        )
    return stems


def _transactions(key: str, stems: Mapping[str, Any]) -> tuple[PreparedTransaction, ...]:
    found = tuple(
        PreparedTransaction(_id(stem, k), _int64(pid), _int64(epoch), _int64(version))
        for stem, entries in stems.items()
        for k, pid, epoch, version in entries
    )
    for t in found:
        parsed = parse(t.transactional_id)
        # Without this check, a principal with the right to write to the topic could end other
        # clients' transactions with the driver's rights.
        if parsed is None or parsed.key != key:
            raise CommitLogError(
                f"the commit log's record of '{key}' names the transaction "
                f"'{safe_text(t.transactional_id, 120)}' of another key; it is left alone",
                hint="another client has written to the topic of commitLogTopic; 'kprod txn reset "
                f"{key} --force' forgets the key",
            )
    return found


def _text(value: object, longest: int = _LONGEST_TEXT) -> str:
    """Returns ``value`` if it is a text that is safe to show: short, and on one line. Raises
    ValueError for any other value.
    """
    if not isinstance(value, str) or len(value) > longest or not (value.isprintable()):
        raise ValueError
    return value


def _int64(value: object) -> int:
    """An integer of 64 bits from JSON. Raises ValueError for any other value, including 1.0 and
    true.
    """
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise ValueError
    return value


def _id(stem: object, number: object) -> str:
    """Makes a transactional id from a stem and a number. :func:`split_number` does the inverse.
    Raises ValueError if one of these is not true:

    * ``stem`` is a safe text (:func:`_text`) that ends with ``~``.
    * ``number`` is an integer from 0 to 2^63 - 1.
    """
    text, count = _text(stem, _LONGEST_ID), _int64(number)
    if not text.endswith("~") or count < 0:
        raise ValueError
    return f"{text}{count}"


def split_number(transactional_id: str) -> tuple[str, int]:
    """Splits a transactional id into its stem, which ends with the last ``~``, and the number after
    the stem.
    """
    stem, separator, number = transactional_id.rpartition("~")
    return stem + separator, int(number)
