"""The bytes of each control request in each version, as they were recorded.

That any request is what kio writes: ``test_generated_messages.py``. This shows that each is still
filled in the same way.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.every_request import REQUESTS

RECORDED = Path(__file__).with_name("golden_requests.json")


def encoded(request: Any) -> dict[str, str]:
    low, high = request.versions
    return {str(v): b"".join(request.encode(v)).hex() for v in range(low, high + 1)}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_has_the_bytes_that_were_recorded(name: str) -> None:
    assert encoded(REQUESTS[name]) == json.loads(RECORDED.read_text())[name]
