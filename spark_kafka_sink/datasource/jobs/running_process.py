"""A process by which a call is known, and whether such a process is gone.

Owns: :func:`this_process`, :func:`is_gone`. Never: what follows from it (``backfill.py``).

A number of a process says nothing on another machine, in another container, or after a restart.
So a process is its boot, its namespace, its number and its start, as Linux has them in ``/proc``.
Where there is none, nothing is known, and no process counts as gone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
#: In ``/proc/PID/stat`` after the name: the start, in ticks since the boot.
_START: Final = 19


def this_process() -> str:
    """This process; empty where the system does not tell."""
    return _process(os.getpid())


def is_gone(process: str) -> bool:
    """Whether ``process``, of :func:`this_process`, ran on this machine and in this container, and
    runs no more.
    """
    place, _, rest = process.rpartition(" ")
    place, _, pid = place.rpartition(" ")
    if not rest or not pid.isdecimal() or place != _place():
        return False
    return _process(int(pid)) != process


def _process(pid: int) -> str:
    """Place, number and start; empty when there is no such process."""
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
