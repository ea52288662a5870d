"""A row of ``kprod check``: the result of a step.

Owns: :class:`Step`, and the state that follows from an error. Never: a step itself
(``cluster_checks.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ErrorCode, KafkaError, KafkaTimeoutError
from spark_kafka_sink.datasource.checks.topic_checks import TopicWarning


class State(StrEnum):
    """The result of a step."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """One row: ``said`` is the finding, or why the step was skipped. ``change`` is what to do, and
    ``code`` the error's (``KP0301``), which has a page; every step that failed or warns has both.
    """

    name: str
    state: State
    said: str
    change: str | None = None
    code: str | None = None


def step_of(name: str, check: Callable[[], Step], *, optional: bool = False) -> Iterator[Step]:
    """The row that ``check`` returns, or the row of its error. ``optional``: a write does without
    the request, so no response is no failure.
    """
    try:
        yield check()
    except KafkaTimeoutError as error:
        yield no_response(name, error) if optional else failed(name, error)
    except KafkaError as error:
        yield failed(name, error)


def ok(name: str, said: str) -> Step:
    """The row of a condition that holds."""
    return Step(name, State.OK, said)


def skipped(name: str, why: str) -> Step:
    """The row of a step that does not apply, or can't be done."""
    return Step(name, State.SKIPPED, why)


def not_reached(name: str) -> Step:
    """The row of a step after a failed one."""
    return skipped(name, "an earlier step failed")


def red(name: str, said: str, change: str, kind: Kind | ErrorCode) -> Step:
    """The row of a condition without which a write fails."""
    return Step(name, State.FAILED, said, change, kind.kp_code)


def yellow(name: str, said: str, change: str, kind: Kind | ErrorCode) -> Step:
    """The row of a condition with which a write may still work."""
    return Step(name, State.WARNING, said, change, kind.kp_code)


def failed(name: str, error: KafkaError) -> Step:
    """The row of an error."""
    code = error.kind.kp_code
    return red(name, error.message, error.hint or f"see kprod explain {code}", error.kind)


def warned(name: str, warning: TopicWarning) -> Step:
    """The row of a setting that may still work."""
    state = State.FAILED if warning.refuses else State.WARNING
    return replace(failed(name, warning.error), state=state)


def no_response(name: str, error: KafkaError) -> Step:
    """The row of a step without a response."""
    return skipped(name, f"no answer: {error.message}")
