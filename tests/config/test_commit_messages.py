"""tools/commit_message.py: which messages the hook refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BODY = "\n\nThe sink refused a topic that exists. The cache kept an old answer."


def check(message: str, folder: Path) -> str:
    """Standard error of the hook; empty when the hook takes the message."""
    file = folder / "message"
    file.write_text(message)
    command = [sys.executable, ROOT / "tools" / "commit_message.py", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (done.stderr == "")
    return done.stderr


@pytest.mark.parametrize(
    "message",
    [
        "Refuse a topic that is the commit log's" + BODY,
        "# a comment\n\nRefuse a topic that is the commit log's" + BODY,
        "Merge branch 'formats'",
        'Revert "Refuse a topic"\n',
        "fixup! Refuse a topic",
    ],
)
def test_a_message_that_explains_is_taken(message, tmp_path):
    assert check(message, tmp_path) == ""


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("# only a comment\n", "is empty"),
        ("x" * 73 + BODY, "73 characters"),
        ("Refuse a topic." + BODY, "full stop"),
        ("Refuse a topic; mend the cache" + BODY, "two changes"),
        ("Refuse a topic\nbecause it exists, and was refused", "second line is not empty"),
        ("Refuse a topic", "body is missing"),
        ("Refuse a topic\n\nIt failed.", "body is missing"),
    ],
)
def test_a_message_that_explains_nothing_is_refused(message, problem, tmp_path):
    assert problem in check(message, tmp_path)
