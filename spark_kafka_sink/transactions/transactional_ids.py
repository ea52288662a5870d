"""The transactional ids of exactly-once writes: formatting and parsing. Pure functions.

The id of a batch's transaction begins with a *key*: the name of a query or a job in the commit log.
The id also contains the run that planned the batch, and the *generation* that the key had at that
time. A run is one start of the query or the job. The generation is a number in the commit log that
grows when another run takes over the key. So a comparison of the id with the key's state shows
whether the run may still commit the transaction (``CommitState.standing``).

Each task attempt has a transactional id of its own. No other process ever uses this id. The process
of the attempt may use the id again, but only for a later batch. So a task attempt that hangs and
continues later can't affect the transaction of another attempt.

docs/design/commit-protocol.md ("Names") describes the format of an id.
``transactional_producers.py`` has the rule when a worker may use an id again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.base.errors import ConfigError, safe_text

SEPARATOR: Final = "~"
#: The prefix of batch jobs without transactionalIdPrefix.
DEFAULT_PREFIX: Final = "kprod"
#: The workers of the transactions that the driver itself writes: with the report of a batch, and
#: with the offsets of a consumer group. A period and a name may follow.
REPORT: Final = "report"
OFFSETS: Final = "offsets"

_PART = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
#: The generation and the worker.
_PLANNED = re.compile(r"g(0|[1-9][0-9]{0,18})\.(.+)")


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """The transactional id of a transaction that a task or the driver writes, in parts.

    * ``key``: the name of the query or the job in the commit log.
    * ``run``: the run id of a stream. For a batch job, a random id that planning creates.
    * ``worker``: identifies the Python worker process of the task. For a transaction that the
      driver itself writes, a name that begins with "report" or "offsets".
    * ``number``: distinguishes several ids of one worker.
    * ``planned``: the generation of the key when the batch was planned.
    """

    key: str
    run: str
    worker: str
    number: int
    planned: int

    @property
    def prefix(self) -> str:
        return prefix_of_key(self.key)

    def __str__(self) -> str:
        worker = f"g{self.planned}.{self.worker}"
        return SEPARATOR.join((self.key, self.run, worker, str(self.number)))


def is_part(value: str) -> bool:
    """Whether ``value`` may be used as a part of a transactional id: its characters and length are
    allowed.
    """
    return _PART.fullmatch(value) is not None


def check_part(option: str, value: str) -> str:
    """Returns ``value`` if it may be a part of a transactional id. If it may not, raises
    ConfigError. ``option`` is the name of the option with this value, for the text of the error.
    """
    if not is_part(value):
        raise ConfigError(
            f"{option} is '{safe_text(value, 120)}'; letters, digits, '.', '_' and '-' are "
            "allowed, at most 100 of them",
            hint="it becomes a part of transaction names and of the commit log's keys: "
            "PREFIX, or PREFIX~NAME",
        )
    return value


def parse(text: str) -> TransactionalId | None:
    """Parses a transactional id of a batch: the id of a task, or the id of a transaction in which
    the driver writes the report of the batch or the offsets of a consumer group. Returns None for
    any other id, such as the id of the commit log's writer (:func:`log_id`), or another client's
    id.
    """
    *names, number = text.split(SEPARATOR)
    if not 3 <= len(names) <= 4:
        return None
    if _NUMBER.fullmatch(number) is None or any(_PART.fullmatch(n) is None for n in names):
        return None
    *key, run, of_task = names
    planned = _PLANNED.fullmatch(of_task)
    if planned is None:
        return None
    return TransactionalId(SEPARATOR.join(key), run, planned[2], int(number), int(planned[1]))


def is_of_report(text: str) -> bool:
    """Whether the transaction with the id ``text`` has the report of a batch (reportTopic)."""
    return _is_of(REPORT, text)


def is_of_offsets(text: str) -> bool:
    """Whether the transaction with the id ``text`` has the offsets of a group (offsetsGroup)."""
    return _is_of(OFFSETS, text)


def is_of_rows(text: str) -> bool:
    """Whether the transaction with the id ``text`` has the rows of a task."""
    return not (is_of_report(text) or is_of_offsets(text))


def _is_of(content: str, text: str) -> bool:
    if f".{content}" not in text:  # (Parsing thousands of ids takes milliseconds.)
        return False
    found = parse(text)
    return found is not None and found.worker.split(".", 1)[0] == content


def log_key(prefix: str, name: str | None = None) -> str:
    """The key of a query or a job in the commit log. If ``name`` is None, the key is ``prefix``:
    the key of a streaming query that writes with ``format("kprod")``. If not, the key is
    ``prefix~name``: the key of a batch job, or of the writes of ``foreach_batch`` or
    ``transaction``.

    ``name`` is the job's txnAppId, or the first argument of ``foreach_batch`` or ``transaction``.
    For a job without txnAppId, it is a unique name.
    """
    return prefix if name is None else f"{prefix}{SEPARATOR}{name}"


def prefix_of_key(key: str) -> str:
    """The value of transactionalIdPrefix that ``key`` begins with: all before the first ``~``."""
    return key.split(SEPARATOR, 1)[0]


def is_once(key: str, run: str) -> bool:
    """Whether ``key`` is the key of a job without txnAppId, whose run is ``run``. Such a job runs
    only once, and its key ends with the id of this run.
    """
    return key == log_key(prefix_of_key(key), run)


def log_id(key: str) -> str:
    """The transactional id of the producer that writes the state of ``key`` to the commit log."""
    return f"{key}{SEPARATOR}{SEPARATOR}log"


def check_id(key: str) -> str:
    """Returns a transactional id with which rights and limits are checked. Planning sends
    InitProducerId for it, so that missing rights are found before a task starts.

    The transactional ids of ``kprod check --exactly-once`` begin with this id.
    """
    return f"{key}{SEPARATOR}{SEPARATOR}check"


def is_for_no_batch(text: str) -> bool:
    """Whether the driver uses the transactional id ``text`` for something other than a batch: for
    writes to the commit log (:func:`log_id`), or for a check of rights (:func:`check_id`).
    """
    return text.endswith(log_id("")) or check_id("") in text
