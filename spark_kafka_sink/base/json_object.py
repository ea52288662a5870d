"""JSON that others wrote.

Owns: :func:`json_object`. Never: what an object must have.
"""

from __future__ import annotations

import json
from typing import Any


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """The object that ``text`` is; None for any other text, however deep."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
