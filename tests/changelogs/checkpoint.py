"""What the checkpoint of a stream of Delta's change feed says."""

from __future__ import annotations

import json
from pathlib import Path


def newest(checkpoint: Path, kind: str) -> int:
    """The newest micro-batch that is planned (``offsets``) or ended (``commits``); -1: none."""
    names = [file.name for file in (checkpoint / kind).glob("*")]
    return max((int(name) for name in names if name.isdigit()), default=-1)


def written_versions(checkpoint: Path) -> int:
    """The first version of the table of which changes may be left to write."""
    number = newest(checkpoint, "commits")
    if number < 0:
        return 0
    offset = (checkpoint / "offsets" / str(number)).read_text().splitlines()[-1]
    version: int = json.loads(offset)["reservoirVersion"]
    return version
