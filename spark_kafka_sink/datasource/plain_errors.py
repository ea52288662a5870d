"""Our errors in Spark's exceptions, without the stack of our frames above their line.

Owns: :func:`without_traceback`, for the methods that Spark calls and whose errors it shows. Never:
a message.

Spark puts the formatted traceback of a Python exception before the exception itself. Our errors say
what, where and what to do; the frames below Spark's call add nothing, push that line off the
screen, and are repeated for each task and in each log. So our errors are raised without frames and
causes, which are in the line. Bugs keep both: every other exception, IllegalStateError, and an
error whose cause is not one of ours. At DEBUG the removed frames are logged.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from spark_kafka_sink.base.errors import IllegalStateError, KafkaError

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


def without_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """``method``, with its expected errors raised without frames."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KafkaError as error:
            if _is_bug(error):
                raise
            _log.debug("the frames of an error that is raised without them", exc_info=True)
            raise error.with_traceback(None) from None

    return called


def _is_bug(error: BaseException) -> bool:
    """Whether the frames have more information than the line."""
    if isinstance(error, IllegalStateError) or not isinstance(error, KafkaError):
        # OSError and the like are expected failures, which our lines include.
        return not isinstance(error, OSError)
    return error.__cause__ is not None and _is_bug(error.__cause__)
