"""A row of ``kprod check``: the result of a step.

Owns: :class:`Step`, and the state that follows from an error. Never: a step itself
(``cluster_checks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_kafka_sink.base.errors import KafkaError, KafkaTimeoutError
from spark_kafka_sink.datasource.checks.topic_checks import TopicWarning


class State(StrEnum):
    """The result of a step."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """One row: ``said`` is the finding, or why the step was skipped; ``change`` is what to do,
    and ``code`` the error's (``KP0301``), for a step that failed or warns.
    """

    name: str
    state: State
    said: str
    change: str | None = None
    code: str | None = None


def step_of(name: str, check: Callable[[], Step]) -> Iterator[Step]:
    """The row that ``check`` returns, or the row of its error."""
    try:
        yield check()
    except KafkaTimeoutError as error:
        yield no_response(name, error)
    except KafkaError as error:
        yield failed(name, error)


def not_reached(name: str) -> Step:
    """The row of a step after a failed one."""
    return Step(name, State.SKIPPED, "an earlier step failed")


def failed(name: str, error: KafkaError) -> Step:
    """The row of an error."""
    return Step(name, State.FAILED, error.message, error.hint, error.kind.kp_code)


def warned(name: str, warning: TopicWarning) -> Step:
    """The row of a setting that may still work."""
    state = State.FAILED if warning.refuses else State.WARNING
    return replace(failed(name, warning.error), state=state)


def no_response(name: str, error: KafkaError) -> Step:
    """The row of a step without a response."""
    return Step(name, State.SKIPPED, f"no answer: {error.message}")
