"""What becomes of a request."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Outcome:
    """Bytes, nothing, or the connection's end."""

    answer: bytes | None = None
    delay_ms: int = 0
    closes: bool = False


class Closed:
    """A handler's answer that hangs up."""
