"""Where decisions are kept: the seam between the committer and the commit log topic.

Owns: the two protocols. Never: a topic (``kafka_decision_log.py``), a decision (``committer.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from spark_kafka_sink.errors import CommitOutcomeUnknownError
from spark_kafka_sink.transactions.commit_state import CommitState


class LogOutcomeUnknownError(CommitOutcomeUnknownError):
    """The end of a write's transaction was asked for and got no clear answer in time. Whoever opens
    the key next finds out.
    """


class LogRead(NamedTuple):
    """``settled`` is False while somebody is in the middle of a write: ``state`` is what was before
    it.
    """

    state: CommitState | None
    settled: bool


class LogSession(Protocol):
    """The one writer of a key, until somebody else opens it.

    ``state`` is what the log said after everybody before us was fenced.
    """

    @property
    def state(self) -> CommitState | None: ...

    def write(
        self,
        state: CommitState | None,
        deadline_ms: int,
        *,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Replace the state, durably (None removes the key).

        ``check`` is called when the record lies in the log and doesn't count yet. From then on the
        write is a lease: a broker voids it when it isn't ended within seconds, whatever has become
        of us. What ``check`` raises is raised, and nothing is written.

        Raises SupersededError when another session was opened meanwhile, or when :attr:`state` was
        not the newest (it was read at a leader that was deposed and didn't know it): nothing was
        written, and the key must be opened again. LogOutcomeUnknownError when it may or may not be
        written. Any other KafkaError: it is not written.
        """
        ...


class DecisionLog(Protocol):
    """States by key (``transactional_ids.log_key``)."""

    def read(self, key: str, deadline_ms: int) -> LogRead:
        """The newest state, fencing nobody and waiting for nobody."""
        ...

    def open(self, key: str, deadline_ms: int) -> LogSession:
        """Fence every earlier writer of ``key`` (InitProducerId), then read to the end."""
        ...
