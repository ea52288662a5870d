"""An error of ours in Spark's exception: its line, and not twenty lines of our own stack above it.

Owns: :func:`without_traceback`, around everything that Spark calls and shows the errors of. Never:
a message.

Spark puts the formatted traceback of a Python exception before the exception itself. Our errors say
what, where and what to do; the frames below Spark's call into us tell their reader nothing, push
that line off the screen, and are repeated for each task and in each log. So an error of ours leaves
with its own frames removed, and its causes too, which its line has told already. Bugs keep both:
whatever is not a KafkaError, IllegalStateError, and an error whose cause is not one of ours. At
DEBUG the removed frames are logged.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from spark_kafka_sink.errors import IllegalStateError, KafkaError

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)


def without_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """``method``, whose expected errors come without frames."""

    @functools.wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KafkaError as error:
            if _is_bug(error):
                raise
            _log.debug("the frames of an error that is shown without", exc_info=True)
            raise error.with_traceback(None) from None

    return called


def _is_bug(error: BaseException) -> bool:
    """Would the frames tell its reader more than its line does?"""
    if isinstance(error, IllegalStateError) or not isinstance(error, KafkaError):
        # OSError and the like are how the world fails; ours name them in their lines.
        return not isinstance(error, OSError)
    return error.__cause__ is not None and _is_bug(error.__cause__)
