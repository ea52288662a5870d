"""The identity of a write, which ``foreach_batch`` and ``transaction`` pass to their writes as an
option. It is called the *context* of the write.

``transaction_plan.py`` and ``transaction_commit.py`` use the context. Only an option reaches the
write: Spark's local properties don't exist in user threads and with Spark Connect, and Python
processes share no state.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace

from spark_kafka_sink.base.errors import ConfigError
from spark_kafka_sink.config.sink_config import TXN_CONTEXT
from spark_kafka_sink.transactions.transactional_ids import is_part


@dataclass(frozen=True, slots=True)
class WriteContext:
    """The identity of a write: its run, its query, its source offsets, and its ``transaction``
    block.

    - ``run``: the run id of the write (``exactly_once/named_writes.py``).
    - ``query_id``: the query's id. Empty if the query is unknown.
    - ``digest``: a hash of the micro-batch's source offsets (``exactly_once/checkpoint.py``). The
      hash is the same if the micro-batch runs again. Empty if the hash is unknown.
    - ``known``: whether this write is certainly a replay if its batch id is already done. It is
      certain if the query or the digest is known, or if this process has already written the same
      DataFrames. If it is not certain, the write is refused, except with verifyReplays=false.
    - ``offsets``: the offsets for the option offsetsGroup, by topic and partition.

    Only in a ``transaction`` block, whose writes are committed together:

    - ``token`` identifies the block, and ``write`` is the number of the write, from 0.
    - ``writes`` is the number of writes in the block. It is set only in the last write, which has
      no rows and ends the block.
    - ``abort`` is true if the last write must abort the block.
    - ``tasks_may_run`` is true if tasks of an aborted block may still be running.
    - ``may_be_decided`` is true if an aborted block may be decided: a write that was to commit the
      block was begun before.
    """

    run: str
    query_id: str = ""
    token: str = ""
    write: int = 0
    writes: int | None = None
    abort: bool = False
    tasks_may_run: bool = False
    offsets: dict[str, dict[str, int]] | None = None
    digest: str = ""
    known: bool = False
    may_be_decided: bool = False

    @property
    def ends_block(self) -> bool:
        """Whether this is the write without rows that commits or aborts all writes of a
        ``transaction`` block.
        """
        return self.writes is not None

    def of_part(self, write: int) -> WriteContext:
        """The context of the write with the number ``write`` in a ``transaction`` block. This
        context has no offsets, because the write that ends the block commits the offsets.
        """
        return replace(self, write=write, offsets=None)

    def of_end(self, writes: int) -> WriteContext:
        """The context of the last write in a ``transaction`` block. This write has no rows, and
        ends the block. ``writes`` is the number of writes with rows in the block.
        """
        return replace(self, writes=writes)

    def of_abort(self, writes: int, *, tasks_may_run: bool, may_be_decided: bool) -> WriteContext:
        """As :meth:`of_end`, for the write that aborts the block."""
        return replace(
            self.of_end(writes),
            abort=True,
            tasks_may_run=tasks_may_run,
            may_be_decided=may_be_decided,
            offsets=None,
        )

    def to_option(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def of_option(cls, text: str) -> WriteContext:
        """Parses the text that :meth:`to_option` has made. Raises ConfigError for any other
        text.
        """
        try:
            found = cls(**json.loads(text))
        except (ValueError, TypeError, RecursionError):
            found = cls("")
        counts = (found.writes, *_numbers(found.offsets))
        whole = all(n is None or (type(n) is int and n >= 0) for n in counts)
        whole = whole and type(found.write) is int and found.write >= 0
        texts = (found.run, *(t or found.run for t in (found.query_id, found.token, found.digest)))
        whole = whole and all(
            type(b) is bool
            for b in (found.abort, found.tasks_may_run, found.may_be_decided, found.known)
        )
        if not (whole and all(type(text) is str and is_part(text) for text in texts)):
            raise ConfigError(
                f"{TXN_CONTEXT} is set by foreach_batch and transaction only",
                hint="remove it from the options",
            )
        return found


def _numbers(offsets: object) -> list[int | None]:
    """The offsets of all partitions in ``offsets``, as a list for the caller's check. The offset is
    -1 for an invalid entry.
    """
    if offsets is None:
        return []
    partitions = list(offsets.values()) if isinstance(offsets, dict) else [None]
    return [
        n if type(n) is int and p.isdecimal() else -1
        for of_topic in partitions
        for p, n in (of_topic.items() if isinstance(of_topic, dict) else [("0", -1)])
    ]
