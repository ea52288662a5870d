"""JSON text from other programs.

Owns: :func:`json_object`. Never: the required content of an object.
"""

from __future__ import annotations

import json
from typing import Any


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Parses a JSON object; None for any other text, however deeply nested."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
