"""The records of a backfill in the commit log's topic, and the process that may write them.

A :class:`Ledger` reads and writes two records: the plan of the backfill, and its :class:`Progress`.
This module does not commit rows, and does not use Spark.

**Place.** The commit log has a *state* for each key (docs/design/commit-protocol.md, "The state").
Each of the two records has a key of its own. The state of such a key has no batch, and has one more
field with the content of the record. A program that does not know this field keeps the field
unchanged when it writes the state::

    {prefix}~~backfill~{name}        the field "backfill": Progress, a few hundred bytes
    {prefix}~~backfill-plan~{name}   the field "backfillPlan": BackfillPlan, written once

The character ``~`` separates the parts of a key, so ``~~`` encloses an empty part. The key of a
write has no empty part, so no write has one of these two keys. The rules of the commit protocol
also hold for these records: only one transactional id writes a key, and a later writer fences an
earlier writer.

**Key of the rows.** The steps commit their rows under a third key of the commit log, the *key of
the rows*. In this module, only :meth:`Ledger.fence` changes the state of this key.

**Steps.** The version and the end of a step are recorded before its rows are written. The version
is larger than the version of every earlier step. A later call may find this record, and must find
out whether the step is written. For this, :meth:`Ledger.fence` ends a decided commit, and takes
over the key of the rows, so that no earlier call can commit any more. The state of this key has the
last committed version, ``lastDone``. The version of the recorded step is compared with it::

    lastDone >= the version   the step is written: the next step begins at its end
    lastDone < the version    the step is never written: the next step begins where it began

The next step may be smaller or larger than a step that was not written.

**Two callers.** The owner is the caller that may write the records. It increments its heartbeat
(``Progress.beat``) while it runs. Another caller takes over in two cases:

- The heartbeat has not changed for some time. No clocks of different machines are compared.
- The owner's process is known to have ended (``running_process.py``).

The old owner may only have been suspended, and may continue after the takeover. Then the old owner
fails, and writes no row a second time:

- If the old owner writes a record, the write fails, because the records have another owner.
- If the old owner commits rows of a write that was planned before the takeover, the commit log
  refuses the commit.
- If the old owner plans the write of a step, the planning fails. The key of the rows has a number,
  the *generation*, which grows at each takeover. The step expects the generation that the key had
  before the takeover (:class:`BegunStep`).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import count
from typing import Final, TypeVar

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import (
    CommitLogError,
    ConfigError,
    IllegalStateError,
    SupersededError,
)
from spark_kafka_sink.datasource.jobs.backfill_plan import BackfillPlan
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog, LogSession
from spark_kafka_sink.transactions.commit_state import (
    CommitState,
    LogChangedError,
    LogOutcomeUnknownError,
    Payload,
    Phase,
)
from spark_kafka_sink.transactions.transactional_ids import SEPARATOR, log_key

T = TypeVar("T")

_PROGRESS: Final = "backfill"
_PLAN: Final = "backfillPlan"
_RECORDS: Final = {_PROGRESS: "backfill", _PLAN: "backfill-plan"}
#: The largest number of attempts to take over a key. An attempt fails if another driver has decided
#: a batch of the key in the meantime.
_MOST_FENCES: Final = 5
#: The least number of retries of a write, even if each retry takes long. After max.block.ms, the
#: pause before a retry is at most _PAUSE_MS milliseconds.
_LEAST_TRIES: Final = 5
_PAUSE_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Caller:
    """The identity of a running call of ``backfill``.

    - ``id`` is random.
    - ``process`` is an id of the caller's process (``running_process.py``). No later process has
      the same id, even if it has the same ``pid``.
    - ``since_ms`` is the start of the call in milliseconds since the epoch, by the clock of the
      caller's machine.
    """

    id: str
    host: str
    pid: int
    process: str = ""
    since_ms: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@dataclass(frozen=True, slots=True)
class OpenStep:
    """A step that is recorded but not known to be written. Its txnVersion is ``version``. It covers
    the positions from ``Progress.at`` up to ``end`` - 1 (``backfill_plan.py`` explains positions).
    """

    version: int
    end: int


@dataclass(frozen=True, slots=True)
class BegunStep:
    """A recorded step, whose rows the caller may write to Kafka.

    - ``version`` is the step's txnVersion.
    - ``generation`` is the generation that the key of the rows had before the step was recorded.
      The caller passes it as an option to the write of the rows. If another caller has taken over
      in the meantime, the key has another generation, and the planning of the write fails.
    """

    version: int
    generation: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The recorded progress of a backfill.

    - ``caller`` is the running call, the owner of the records. It is None if no call runs.
    - ``beat`` is a number that the owner increments while it runs.
    - ``plan`` is the digest of the recorded plan. It is empty before the plan is recorded.
    - ``at`` is a position in the source's rows (``backfill_plan.py``). All rows before this
      position are written.
    - ``step`` is the recorded next step, or None.
    - ``version`` is the largest known txnVersion of the steps, and of earlier writes whose txnAppId
      is the name of the backfill. It is -1 if no version is known.
    - ``steps`` is the number of written steps that had rows.
    - ``rows`` and ``bytes`` (of keys and values) are the totals of the written steps.
    - ``ms`` is the time in milliseconds that the written steps took.

    If a call was killed, its last step may be missing in ``steps``, ``rows``, ``bytes`` and ``ms``.
    """

    caller: Caller | None = None
    beat: int = 0
    plan: str = ""
    at: int = 0
    version: int = -1
    step: OpenStep | None = None
    steps: int = 0
    rows: int = 0
    bytes: int = 0
    ms: int = 0

    def encode(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Progress:
        """Parses the text of :meth:`encode`. Raises CommitLogError for any other text."""
        try:
            found = json.loads(text)
            caller, step = found.pop("caller"), found.pop("step")
            return cls(
                caller=None if caller is None else Caller(**caller),
                step=None if step is None else OpenStep(**step),
                **found,
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CommitLogError(
                "the record of the backfill was not written by this spark-kafka-sink",
                hint="use the version that began the backfill; 'kprod backfill NAME --forget' "
                "removes the record",
            ) from None


@dataclass(frozen=True, slots=True)
class Settled:
    """The result of :meth:`Ledger.settle` or :meth:`Ledger.fence`. Both methods end the recorded
    step.

    - ``progress`` is the new progress of the backfill.
    - ``payload`` has the numbers of rows and bytes that the step has written. It is None if there
      was no recorded step, or if the step has written no rows.
    """

    progress: Progress
    payload: Payload | None = None


class Ledger:
    """Reads and writes the records of the backfill ``name`` in the commit log ``log``.

    ``state_of`` is a function that reads the state of a key in the log. It depends on the use of
    the ledger:

    - The Python function ``backfill`` writes rows. For it, ``state_of`` must also finish a batch
      that an earlier driver has decided but not finished (``ExactlyOnceDriver.plan``).
    - The command ``kprod backfill`` writes no rows. For it, ``state_of`` must only read.

    Each method raises the errors of the commit log. A method with the argument ``caller`` raises
    SupersededError if another caller has taken over.
    """

    def __init__(
        self,
        client: TransactionClient,
        log: CommitLog,
        state_of: Callable[[str], CommitState],
        prefix: str,
        name: str,
    ) -> None:
        self._client = client
        self._log = log
        self._state_of = state_of
        self._key = log_key(prefix, name)
        self._name = name
        self._keys = {
            record: SEPARATOR.join((prefix, "", part, name)) for record, part in _RECORDS.items()
        }

    def read(self) -> tuple[Progress | None, BackfillPlan | None]:
        """Reads the progress and the plan. Each of them is None if it is not recorded."""
        progress = self.progress()
        return progress, None if progress is None else self.plan_of(progress)

    def progress(self) -> Progress | None:
        """Reads the progress, without the plan. Returns None if it is not recorded."""
        found = self._read(_PROGRESS)
        return None if found is None else Progress.decode(found)

    def has_progress(self) -> bool:
        """Whether the commit log has a record of the progress. The answer is also true if the
        record is damaged, or if this version of the package can't parse its content.
        """
        damage = self._log.damage(self._keys[_PROGRESS], self._client.deadline())
        return damage is not None or self._read(_PROGRESS) is not None

    def plan_of(self, progress: Progress) -> BackfillPlan | None:
        """Reads the plan of the backfill. Returns None if ``progress`` has no digest of a plan.
        Raises CommitLogError if the log has no plan with this digest.
        """
        if not progress.plan:
            return None
        found = self._read(_PLAN)
        plan = None if found is None else BackfillPlan.decode(found)
        if plan is None or plan.digest != progress.plan:
            raise CommitLogError(
                f"the plan of the backfill '{self._name}' is lost: the commit log has another one",
                hint=f"'kprod backfill {self._name}' shows what was written; --forget removes the "
                "record, and the next call writes all rows once more",
            )
        return plan

    def claim(self, caller: Caller, gone: Mapping[str, int | None]) -> Progress:
        """Makes ``caller`` the owner of the backfill if there is no other owner, or if the other
        owner counts as dead. Returns the progress, which names the owner.

        ``gone`` has the ids of owners that may be dead, such as ``{"8c1f": 17}``. Each id has one
        of two values:

        - None if the owner's process is known to have ended. Then the owner counts as dead.
        - The heartbeat that the caller has last seen, here 17. If the recorded heartbeat is still
          17, the owner counts as dead. If it is another number, the owner is alive and stays the
          owner.
        """

        def claimed(before: Progress | None) -> Progress:
            found = before or Progress()
            owner = found.caller
            if owner is None or owner.id == caller.id:
                return replace(found, caller=caller, beat=0)
            if gone.get(owner.id, -1) not in (None, found.beat):
                return found
            return replace(found, caller=caller, beat=0)

        return self._changed(claimed)

    def begin(self, caller: Caller, plan: BackfillPlan) -> Progress:
        """Records the plan of a new backfill, and then records the digest of the plan in the
        progress. First calls :meth:`fence`, so that no earlier call with the same name can commit
        rows any more. Raises IllegalStateError if a plan is already recorded.
        """

        def check() -> None:
            if self._owned(caller, lambda progress: progress).plan:
                raise IllegalStateError(f"the backfill '{self._name}' has a plan already")

        def owned(_: str | None) -> str:
            check()
            return plan.encode()

        check()
        # An operator may have removed the records while an earlier call with this name still ran.
        # Without the takeover, that call could commit its step later. Then a step of the new
        # backfill with the same version would count as written, although it was not.
        self.fence(caller)

        # Another caller may take over after the check in ``owned``. It then also opens the key of
        # the plan, which fences this caller, and writes its own plan. If this caller writes later,
        # its plan is refused. If it has written before, the other plan replaces its plan.
        self._write(_PLAN, owned)
        return self._owned(caller, lambda progress: replace(progress, plan=plan.digest))

    def beat(self, caller: Caller) -> Progress:
        """Increments the recorded heartbeat of the owner, and returns the progress. The heartbeat
        shows other callers that the owner still runs.
        """
        return self._owned(caller, lambda progress: replace(progress, beat=progress.beat + 1))

    def release(self, caller: Caller) -> None:
        """Records that the backfill has no owner any more, because the owner's call ends. Does
        nothing if another caller has taken over.
        """

        def released(text: str | None) -> str | None:
            progress = None if text is None else Progress.decode(text)
            if progress is None or progress.caller is None or progress.caller.id != caller.id:
                return text
            return replace(progress, caller=None).encode()

        self._write(_PROGRESS, released)

    def step(self, caller: Caller, end: int) -> BegunStep:
        """Records the next step of the backfill, with a new txnVersion. The step covers the
        positions from ``Progress.at`` up to ``end`` - 1. Call this method before the rows of the
        step are written to Kafka.

        Raises IllegalStateError if another step is recorded. :meth:`settle` and :meth:`fence`
        remove the record of a step.
        """
        # (This state is read before the owner is checked. So if another caller takes over after the
        # check, its takeover gives the key another generation than the generation of this state.)
        state = self._state_of(self._key)
        ours: OpenStep | None = None

        def recorded(progress: Progress) -> Progress:
            nonlocal ours
            if progress.step is not None:
                if progress.step == ours:
                    return progress
                raise IllegalStateError(f"the backfill '{self._name}' has an open step already")
            # (The state of the key may be old. Progress.version is never old, so no version is used
            # twice.)
            version = max(state.last_done, progress.version) + 1
            ours = OpenStep(version, end)
            return replace(progress, version=version, step=ours)

        return BegunStep(self._owned(caller, recorded).version, state.generation)

    def settle(self, caller: Caller, ms: int) -> Settled:
        """Records that the recorded step is written, and that the write took ``ms`` milliseconds.

        Call this method only after the write of the step has succeeded. The method does not check
        whether the write has succeeded.
        """
        # (The commit log does not show a step without rows.)
        state = self._state_of(self._key)
        return self._settled(caller, state, ms, is_written=True)

    def fence(self, caller: Caller) -> Settled:
        """Takes over the key of the rows, and finds out whether the recorded step is written. The
        method does this in order:

        1. If an earlier driver has decided to commit a step, the step's transactions are all
           committed, or all aborted.
        2. The method takes over the key of the rows. From then on, the commit log refuses every
           commit of an earlier run, so a step that is not written now is never written.
        3. If a step is recorded, the step is removed from the progress. If the step is written, the
           progress moves to the end of the step.

        Raises SupersededError if other drivers keep writing the key meanwhile.
        """
        self._owned(caller, lambda progress: progress)
        run = uuid.uuid4().hex

        def taken_over(session: LogSession) -> CommitState | None:
            if session.state.phase is not Phase.DONE:
                return None
            state = session.state.taken_over(run, "", self._client.clock.wall_ms())
            session.write(state, self._client.deadline())
            return state

        for _ in range(_MOST_FENCES):
            self._state_of(self._key)  # commits a decided batch
            state = self._when_open(self._key, taken_over)
            if state is not None:
                return self._settled(caller, state)
        raise SupersededError(
            f"other drivers keep writing '{self._key}' while the backfill '{self._name}' begins",
            hint="a name of backfill is a txnAppId: no other job may have it",
        )

    def _settled(
        self, caller: Caller, state: CommitState, ms: int = 0, *, is_written: bool = False
    ) -> Settled:
        payload: Payload | None = None

        def settled(progress: Progress) -> Progress:
            nonlocal payload
            step = progress.step
            progress = replace(progress, version=max(progress.version, state.last_done))
            if step is None:
                return progress
            is_done = state.last_done >= step.version
            if not is_done and not is_written:
                return replace(progress, step=None)
            payload = _payload_of(state, step.version)
            return replace(
                progress,
                at=step.end,
                step=None,
                steps=progress.steps + is_done,
                rows=progress.rows + (payload.rows if payload else 0),
                bytes=progress.bytes + (payload.bytes if payload else 0),
                ms=progress.ms + ms,
            )

        return Settled(self._owned(caller, settled), payload)

    def forget(self) -> None:
        """Removes the plan and the progress, even if they are damaged.

        The commit log still has the version of the last step. So the steps of a later backfill with
        this name get larger versions.
        """
        for key in self._keys.values():
            self._retried(partial(self._remove, key))

    def _remove(self, key: str) -> None:
        self._log.remove(key, self._client.deadline())

    def _owned(self, caller: Caller, change: Callable[[Progress], Progress]) -> Progress:
        def changed(progress: Progress | None) -> Progress:
            found = progress or Progress()
            if found.caller is None or found.caller.id != caller.id:
                raise SupersededError(
                    f"the backfill '{self._name}' goes on in {found.caller or 'no process'}, and "
                    f"{caller} must stop",
                    hint="this process was silent for too long, or the record was removed with"
                    " 'kprod backfill NAME --forget'; the written steps are written once",
                    kind=Kind.BACKFILL_RUNS,
                )
            return change(found)

        return self._changed(changed)

    def _changed(self, change: Callable[[Progress | None], Progress]) -> Progress:
        found = Progress()

        def changed(text: str | None) -> str:
            nonlocal found
            found = change(None if text is None else Progress.decode(text))
            return found.encode()

        self._write(_PROGRESS, changed)
        return found

    def _read(self, record: str) -> str | None:
        """Reads the record with the key ``record``. Returns None if there is no record. If another
        process is writing the record at this moment, waits for the end of that write.
        """
        state = self._state_of(self._keys[record])
        return _field(state, record)

    def _write(self, record: str, change: Callable[[str | None], str | None]) -> None:
        def attempt(session: LogSession) -> None:
            state = session.state
            before = _field(state, record)
            after = change(before)
            if after is not None and after != before:
                other = {**dict(state.other), record: after}
                written = replace(
                    state, generation=state.generation or 1, other=tuple(sorted(other.items()))
                )
                session.write(written, self._client.deadline())

        self._when_open(self._keys[record], attempt)

    def _when_open(self, key: str, attempt: Callable[[LogSession], T]) -> T:
        """Opens ``key`` in the commit log, and returns the result of ``attempt``. Opening the key
        fences all other processes that have opened it. ``attempt`` reads or writes in the opened
        session. The method may open the key and call ``attempt`` again (:meth:`_retried`).
        """
        return self._retried(lambda: attempt(self._log.open(key, self._client.deadline())))

    def _retried(self, attempt: Callable[[], T]) -> T:
        """Returns the result of ``attempt``, which opens a key of the commit log and may write it.

        Calls ``attempt`` again in two cases:

        - Another process has fenced the session before the write.
        - The write got no clear response. The write may have succeeded, so the next ``attempt`` may
          find its own record.

        Raises the error of the last call of ``attempt`` if two conditions are met: max.block.ms has
        passed, and ``attempt`` has been called again at least five times.
        """
        client, until = self._client, self._client.deadline()
        for tries in count():
            try:
                return attempt()
            except (LogChangedError, LogOutcomeUnknownError):
                if client.clock.now_ms() >= until and tries >= _LEAST_TRIES:
                    raise
                client.loop.pause(tries, max(until, client.clock.now_ms() + _PAUSE_MS))
        raise AssertionError


def ledger_to_read(client: TransactionClient, log: CommitLog, prefix: str, name: str) -> Ledger:
    """Creates a :class:`Ledger` of the backfill ``name`` for a ``kprod`` command. Reading a record
    through this ledger never changes a key of the commit log.
    """

    # (In a call of backfill, a read also ends a commit that an earlier driver has decided.)
    def state_of(key: str) -> CommitState:
        return log.read(key, client.deadline()).state or CommitState()

    return Ledger(client, log, state_of, prefix, name)


def check_caller_is_alone(name: str, caller: Caller, found: Progress) -> None:
    """Raises ConfigError if another caller is the owner of the backfill. ``found`` is the recorded
    progress.
    """
    if found.caller is not None and found.caller.id != caller.id:
        raise ConfigError(
            f"the backfill '{name}' runs in {found.caller}",
            hint="wait until that call has ended; a call that takes its place continues where that"
            " call stopped",
            kind=Kind.BACKFILL_RUNS,
        )


def _field(state: CommitState, record: str) -> str | None:
    return dict(state.other).get(record)


def _payload_of(state: CommitState, version: int) -> Payload | None:
    done = state.done_batch(version)
    return done.payloads[0] if done is not None and done.payloads else None
