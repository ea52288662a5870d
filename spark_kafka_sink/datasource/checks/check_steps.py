"""The result of a step of ``kprod check``, and functions that create such a result.

The steps themselves are in ``cluster_checks.py`` and in the modules that it imports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ErrorCode, KafkaError, KafkaTimeoutError
from spark_kafka_sink.datasource.checks.topic_checks import TopicWarning


class StepState(StrEnum):
    """The state of a step's result: ok, warning, failed or skipped."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step of ``kprod check``, a row of its table.

    * ``name``: the name of the step.
    * ``said``: the finding, or the reason why the step was skipped.
    * ``change``: advice.
    * ``code``: an error code such as ``KP0301``, which the docs explain.

    A failed step and a warning have both advice and a code. Other results have neither.
    """

    name: str
    state: StepState
    said: str
    change: str | None = None
    code: str | None = None


def step_of(name: str, check: Callable[[], Step], *, optional: bool = False) -> Iterator[Step]:
    """Calls ``check``, and yields its result. If ``check`` raises an error, yields a result with
    the state FAILED for the step ``name``.

    ``optional`` is True if a write does not need this step. After a timeout of an optional step,
    the result has the state SKIPPED.
    """
    try:
        yield check()
    except KafkaTimeoutError as error:
        yield no_response(name, error) if optional else failed(name, error)
    except KafkaError as error:
        yield failed(name, error)


def ok(name: str, said: str) -> Step:
    """A result with the state OK: the condition of the step holds."""
    return Step(name, StepState.OK, said)


def skipped(name: str, why: str) -> Step:
    """A result with the state SKIPPED: the step does not apply, or can't be done."""
    return Step(name, StepState.SKIPPED, why)


#: Why a step after a failed one is skipped.
NOT_REACHED: Final = "an earlier step failed"


def not_reached(name: str) -> Step:
    """A result with the state SKIPPED: an earlier step has failed."""
    return skipped(name, NOT_REACHED)


def red(name: str, said: str, change: str, kind: Kind | ErrorCode) -> Step:
    """A result with the state FAILED: with this finding, every write will fail."""
    return Step(name, StepState.FAILED, said, change, kind.kp_code)


def yellow(name: str, said: str, change: str, kind: Kind | ErrorCode) -> Step:
    """A result with the state WARNING: a write may succeed, but the finding may cause problems."""
    return Step(name, StepState.WARNING, said, change, kind.kp_code)


def failed(name: str, error: KafkaError) -> Step:
    """A result with the state FAILED, and with the text of the error that the step raised."""
    code = error.kind.kp_code
    return red(name, error.message, error.hint or f"see kprod explain {code}", error.kind)


def warned(name: str, warning: TopicWarning) -> Step:
    """The result of a step that has found ``warning``, such as a topic config that conflicts with
    the producer's options. If brokers may reject rows, the state of the result is FAILED. If
    brokers accept the rows, the state is WARNING.
    """
    state = StepState.FAILED if warning.refuses else StepState.WARNING
    return replace(failed(name, warning.error), state=state)


def no_response(name: str, error: KafkaError) -> Step:
    """A result with the state SKIPPED: no broker has responded to the step's request."""
    return skipped(name, f"no answer: {error.message}")
