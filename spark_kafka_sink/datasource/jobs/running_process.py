"""Gives a process an id that is unique across restarts, and finds out whether a process has ended.

``backfill.py`` uses the id to take over a backfill from a dead process.

A pid is not unique: a process on another machine, in another container, or after a restart of the
machine may have the same pid. So the id consists of the machine's boot id, the pid namespace, the
pid and the start time, from Linux's ``/proc``. Without ``/proc`` the id is empty, and no process
counts as ended.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
#: In ``/proc/PID/stat`` after the name: the start, in ticks since the boot.
_START: Final = 19


def this_process() -> str:
    """The id of this process. Empty on a system without ``/proc``."""
    return _process(os.getpid())


def is_gone(process: str) -> bool:
    """Whether a process is known to have ended. ``process`` is the id that :func:`this_process`
    returned in that process. The answer is false for a process of another machine or another
    container.
    """
    place, _, rest = process.rpartition(" ")
    place, _, pid = place.rpartition(" ")
    if not rest or not pid.isdecimal() or place != _place():
        return False
    return _process(int(pid)) != process


def _process(pid: int) -> str:
    """The id of the process ``pid``. Empty if there is no such process, or no ``/proc``."""
    place = _place()
    try:
        # pid (name) state parent ...; the name may hold spaces and parentheses.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return f"{place} {pid} {fields[_START]}" if place else ""


def _place() -> str:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {(_PROC / 'self/ns/pid').readlink()}"
    except OSError:
        return ""
