"""The transactional ids of exactly-once: built, and read back. Pure functions.

Owns: what an id looks like, which prefix is legal, whose an id is. Never: when an id may be used
again (the task's pool), a broker.

========================================  =======================================================
``{prefix}~{job}~{taskAttemptId}``        a task attempt of a batch job; used once
``{prefix}~{run}~{worker}~{k}``           the k-th task of a worker process in a micro-batch
``{key}~~log``                            the decision log's writer; key: see :func:`log_key`
``{key}~~check``                          what planning asks for, to learn early what is forbidden
========================================  =======================================================

No two processes ever share a data id, so a stalled attempt can't hurt another's transaction. ``~``
never occurs inside a part: "a" is no beginning of "a.b" when both are read whole.
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


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """A data id, taken apart. ``run`` is a job's uuid or a stream's run id; ``worker`` is empty in
    batch jobs; ``number`` is the task attempt id there, else k.
    """

    prefix: str
    run: str
    worker: str
    number: int

    @property
    def stem(self) -> str:
        """All but the number, with the separator behind it."""
        parts = (self.prefix, self.run, self.worker) if self.worker else (self.prefix, self.run)
        return SEPARATOR.join((*parts, ""))

    def __str__(self) -> str:
        return f"{self.stem}{self.number}"


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


def task_id(prefix: str, job: str, task_attempt_id: int) -> TransactionalId:
    """Of a task attempt of a batch job."""
    return TransactionalId(prefix, job, "", task_attempt_id)


def worker_id(prefix: str, run: str, worker: str, k: int) -> TransactionalId:
    """Of the k-th task that a worker process runs in one micro-batch."""
    return TransactionalId(prefix, run, worker, k)


def parse(text: str) -> TransactionalId | None:
    """The data id that ``text`` is, or None for every other text (a log's id, another's)."""
    parts = text.split(SEPARATOR)
    if len(parts) not in (3, 4):
        return None
    *names, number = parts
    if _NUMBER.fullmatch(number) is None or any(_PART.fullmatch(n) is None for n in names):
        return None
    return TransactionalId(names[0], names[1], names[2] if len(names) == 3 else "", int(number))


def log_key(prefix: str, name: str | None = None) -> str:
    """Under which key decisions are kept: the prefix for a stream; for a batch job the prefix with
    its txnAppId or its uuid (``name``), so that jobs don't fence each other.
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
