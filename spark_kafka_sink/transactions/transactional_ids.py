"""The transactional ids of exactly-once: built, and read back. Pure functions.

Owns: what an id looks like, which prefix is legal, whose an id is. Never: when an id may be used
again (the task's pool), a broker.

========================================  =======================================================
``{key}~{run}~g{g}.{worker}~{k}``         the k-th task of a worker process in a batch of ``key``
``{key}~~log``                            the decision log's writer of ``key``
``{prefix}~~check``                       what planning asks for, to learn early what is forbidden
========================================  =======================================================

``key`` is the commit log's (:func:`log_key`), so that an id alone tells under which key its
transaction is decided. ``g`` is the log's generation when the batch was planned: once the log is at
a later one, only its owner decides, so what another run has open under the id is an orphan
(``CommitState.standing``). No two processes ever share a data id, so a stalled attempt can't hurt
another's transaction. ``~`` never occurs inside a part: "a" is no beginning of "a.b" when both are
read whole.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.errors import ConfigError, safe_text

SEPARATOR: Final = "~"
#: Of batch jobs that name no prefix.
DEFAULT_PREFIX: Final = "kprod"

_PART = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
#: (A worker's name begins with hexadecimal digits: no "g".)
_PLANNED = re.compile(r"g(0|[1-9][0-9]{0,18})\.(.+)")


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """A data id, taken apart. ``run`` is a stream's run id, or what planning made for a job;
    ``planned`` the generation, None in an id of a version before.
    """

    key: str
    run: str
    worker: str
    number: int
    planned: int | None = None

    @property
    def prefix(self) -> str:
        return prefix_of_key(self.key)

    @property
    def is_only_run(self) -> bool:
        """Its key never has another run: a batch job's without txnAppId."""
        return self.key == log_key(self.prefix, self.run)

    def __str__(self) -> str:
        worker = self.worker if self.planned is None else f"g{self.planned}.{self.worker}"
        own = (self.run, worker) if worker else ()
        return SEPARATOR.join((self.key, *own, str(self.number)))


def is_part(value: str) -> bool:
    """``value`` may be a part of an id."""
    return _PART.fullmatch(value) is not None


def check_part(option: str, value: str) -> str:
    """``value`` if it may be a part of an id; else ConfigError naming ``option``."""
    if not is_part(value):
        raise ConfigError(
            f"{option} is '{safe_text(value, 120)}'; letters, digits, '.', '_' and '-' are "
            "allowed, at most 100 of them",
            hint="it becomes a part of the names of transactions, and of the commit log's keys: "
            "PREFIX, or PREFIX~NAME",
        )
    return value


def parse(text: str) -> TransactionalId | None:
    """The data id that ``text`` is, or None for every other text (a log's id, another's).

    ``{prefix}~{job}~{taskAttemptId}`` is a batch job's of version 0.1; it has no worker, and its
    key is told only when the job had no txnAppId.
    """
    *names, number = text.split(SEPARATOR)
    if not 2 <= len(names) <= 4:
        return None
    if _NUMBER.fullmatch(number) is None or any(_PART.fullmatch(n) is None for n in names):
        return None
    if len(names) == 2:  # version 0.1
        return TransactionalId(SEPARATOR.join(names), names[1], "", int(number))
    *key, run, worker = names
    planned = _PLANNED.fullmatch(worker)
    if planned is not None:
        worker = planned[2]
    generation = None if planned is None else int(planned[1])
    return TransactionalId(SEPARATOR.join(key), run, worker, int(number), generation)


def log_key(prefix: str, name: str | None = None) -> str:
    """Under which key decisions are kept: the prefix for a stream; for a batch job the prefix with
    its txnAppId or a name of its own (``name``), so that jobs don't fence each other.
    """
    return prefix if name is None else f"{prefix}{SEPARATOR}{name}"


def prefix_of_key(key: str) -> str:
    """The prefix that :func:`log_key` was given."""
    return key.split(SEPARATOR, 1)[0]


def log_id(key: str) -> str:
    """The transactional id under which decisions of ``key`` are written."""
    return f"{key}{SEPARATOR}{SEPARATOR}log"


def check_id(key: str) -> str:
    """A transactional id that planning initialises, to meet missing rights and limits early."""
    return f"{key}{SEPARATOR}{SEPARATOR}check"
