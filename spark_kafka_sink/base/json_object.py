"""Parses JSON that other programs have written.

This module does not check the content of an object. The caller checks it.
"""

from __future__ import annotations

import json
from typing import Any


def json_object(text: str | bytes) -> dict[str, Any] | None:
    """Parses ``text`` as a JSON object. Returns None if ``text`` is not valid JSON, is not an
    object, or is nested too deeply.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
