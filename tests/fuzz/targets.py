"""All targets by their names, and one case of one of them."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.fuzz import answers, logins, logs, tls

TARGETS: dict[str, Callable[[random.Random], str]] = {
    "answers": answers.fuzz,
    "batches": logs.batches,
    "streams": logs.streams,
    "states": logs.states,
    "exchanges": logins.exchanges,
    "texts": logins.texts,
    "tls": tls.answers,
}


def attempt(name: str, seed: int) -> str:
    """What became of it. Raises what the target did, with a note of how to see it again."""
    try:
        return TARGETS[name](random.Random(f"{name} {seed}"))
    except BaseException as error:
        error.add_note(f"again: make fuzz ONLY={name} FROM={seed} CASES=1")
        raise
