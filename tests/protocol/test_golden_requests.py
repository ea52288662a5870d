"""The bytes of each control request in its lowest and its highest version, as they were recorded.

That any request is what kio writes in every version: ``test_generated_messages.py``. This shows
that each is still filled in the same way, of the same versions.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fakes.every_request import REQUESTS

RECORDED = json.loads(Path(__file__).with_name("golden_requests.json").read_text())


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_has_the_bytes_that_were_recorded(name: str) -> None:
    low, high = REQUESTS[name].versions
    encoded = [b"".join(REQUESTS[name].encode(v)).hex() for v in range(low, high + 1)]
    assert [low, high, encoded[0], encoded[-1]] == RECORDED[name]
