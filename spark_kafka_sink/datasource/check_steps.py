"""A row of ``kprod check``: what a step came to.

Owns: :class:`Step`, and which state an error makes of it. Never: a step itself
(``cluster_checks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_kafka_sink.datasource.topic_checks import TopicWarning
from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError


class State(StrEnum):
    """What a step came to."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """One row: ``said`` is what was found, or why it was not looked for; ``change`` what to do, and
    ``code`` the error's (``KP0301``), of what is not well.
    """

    name: str
    state: State
    said: str
    change: str | None = None
    code: str | None = None


def asked(name: str, ask: Callable[[], Step]) -> Iterator[Step]:
    """The row that ``ask`` makes; what fails there makes one, too."""
    try:
        yield ask()
    except KafkaTimeoutError as error:
        yield unanswered(name, error)
    except KafkaError as error:
        yield failed(name, error)


def not_reached(name: str) -> Step:
    """A step before it failed."""
    return Step(name, State.SKIPPED, "a step before it failed")


def failed(name: str, error: KafkaError) -> Step:
    """What must be changed."""
    return Step(name, State.FAILED, error.message, error.hint, error.kind.kp_code)


def warned(name: str, warning: TopicWarning) -> Step:
    """What may work all the same, or not."""
    state = State.FAILED if warning.refuses else State.WARNING
    return replace(failed(name, warning.error), state=state)


def unanswered(name: str, error: KafkaError) -> Step:
    """Not looked at, because nobody told."""
    return Step(name, State.SKIPPED, f"no answer: {error.message}")
