"""The transactional ids of exactly-once: formatting and parsing. Pure functions.

Owns: the format of an id (docs/design/commit-protocol.md, "Names"), the legal prefixes, the key of
an id. Never: the rule when an id may be used again (``transactional_producers.py``), a broker.

An id contains the generation that the log had when the batch was planned. Once the log has a later
generation, only the owner of the key decides, so an open transaction of another run is an orphan
(``CommitState.standing``). No two processes ever share a data id, so a stalled attempt can't affect
the transaction of another attempt.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.base.errors import ConfigError, safe_text

SEPARATOR: Final = "~"
#: The prefix of batch jobs without transactionalIdPrefix.
DEFAULT_PREFIX: Final = "kprod"

_PART = re.compile(r"[A-Za-z0-9._-]{1,100}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
#: The generation and the worker.
_PLANNED = re.compile(r"g(0|[1-9][0-9]{0,18})\.(.+)")


@dataclass(frozen=True, slots=True)
class TransactionalId:
    """The parsed transactional id of a task's transaction.

    ``run`` is a stream's run id. For a batch job, planning generates ``run``. ``planned`` is the
    generation at planning.
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
    """Whether ``value`` may be a part of a transactional id."""
    return _PART.fullmatch(value) is not None


def check_part(option: str, value: str) -> str:
    """Returns ``value`` if it may be a part of a transactional id. Otherwise raises ConfigError,
    which names ``option``.
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
    """Parses the transactional id of a task. Returns None for any other text, such as the id of a
    log's writer or of another client.
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


def log_key(prefix: str, name: str | None = None) -> str:
    """The key in the commit log. A stream's key is the prefix, and a batch job's key consists of
    the prefix and ``name``.

    ``name`` is the job's txnAppId or a unique name, so that jobs don't fence each other.
    """
    return prefix if name is None else f"{prefix}{SEPARATOR}{name}"


def prefix_of_key(key: str) -> str:
    """The prefix in a key that :func:`log_key` returned."""
    return key.split(SEPARATOR, 1)[0]


def is_once(key: str, run: str) -> bool:
    """Whether ``key`` belongs to a job without txnAppId. Such a job is never repeated: ``run`` is
    its only run.
    """
    return key == log_key(prefix_of_key(key), run)


def log_id(key: str) -> str:
    """The transactional id that writes the decisions of ``key``."""
    return f"{key}{SEPARATOR}{SEPARATOR}log"


def check_id(key: str) -> str:
    """The transactional id that planning initializes only as a check, to find missing rights and
    wrong limits early.

    The transactional ids of ``kprod check --exactly-once`` begin with this id.
    """
    return f"{key}{SEPARATOR}{SEPARATOR}check"


def is_drivers(text: str) -> bool:
    """Whether ``text`` is an id of :func:`log_id`, or begins with the id of :func:`check_id`."""
    return text.endswith(log_id("")) or check_id("") in text
