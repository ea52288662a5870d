"""Bytes changed at random: set, cut, put in, repeated, cut off, or made to claim much; and what
became of them.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import TypeVar

ErrorT = TypeVar("ErrorT", bound=BaseException)

_INT32 = struct.Struct(">i")
_CLAIMS = (2**31 - 1, -(2**31), -1, 0, 65536)


def mutated(rng: random.Random, data: bytes, least: int = 0) -> bytes:
    """``data`` with ``least`` to three changes."""
    out = bytearray(data)
    for _ in range(rng.randrange(least, 4)):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(7):
            case 0 if at < len(out):
                out[at] = rng.randrange(256)
            case 1:
                del out[at : at + rng.randrange(1, 9)]
            case 2:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                out[at : at + 4] = _INT32.pack(rng.choice(_CLAIMS))
            case 4:
                out[at : at + 1] = b"\xff" * rng.randrange(1, 10) + b"\x0f"
            case 5:
                out[at:at] = out[at : at + rng.randrange(1, 60)] * rng.randrange(1, 40)
            case _:
                del out[at:]
    return bytes(out)


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """``data``, cut anywhere."""
    edges = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(4)))
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)]


def refusal(call: Callable[[], object], *kinds: type[ErrorT]) -> ErrorT | None:
    """The error of one of these ``kinds`` that ``call`` raised, or None. Any other leaves."""
    try:
        call()
    except kinds as error:
        return error
    return None
