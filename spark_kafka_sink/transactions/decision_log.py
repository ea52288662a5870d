"""Where decisions are kept: the seam between the committer and the commit log topic.

Owns: the two protocols. Never: a topic (``kafka_decision_log.py``), a decision (``committer.py``).
"""

from __future__ import annotations

from typing import Protocol

from spark_kafka_sink.transactions.commit_state import CommitState


class LogSession(Protocol):
    """The one writer of a key, until somebody else opens it.

    ``state`` is what the log said after everybody before us was fenced: nobody changed it since.
    """

    @property
    def state(self) -> CommitState | None: ...

    def write(self, state: CommitState | None, deadline_ms: int) -> None:
        """Replace the state, durably (None removes the key).

        Raises SupersededError when another session was opened meanwhile, and nothing was written;
        CommitOutcomeUnknownError when it may or may not be written: the end of its transaction was
        asked for and got no clear answer in time. Any other KafkaError: it is not written.
        """
        ...


class DecisionLog(Protocol):
    """States by key (``transactional_ids.log_key``)."""

    def read(self, key: str, deadline_ms: int) -> CommitState | None:
        """The newest state, fencing nobody; waits until no writer is in the middle of a write."""
        ...

    def open(self, key: str, deadline_ms: int) -> LogSession:
        """Fence every earlier writer of ``key`` (InitProducerId), then read to the end."""
        ...
