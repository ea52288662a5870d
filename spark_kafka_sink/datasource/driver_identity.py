"""Which driver, and which of its writes, a Python process on the driver works for.

Owns: :func:`driver_token`. Never: a transaction.

Spark asks for a stream's plan, its commits and its aborts in Python processes of their own, and
tells none of them the run or the query. An abort whose tasks have all been killed gets no message,
either, so nobody knows whose transactions they left open. What these processes share is the JVM
that they descend from, and the options. The token of both is a part of the transactional ids
(``transactional_producers``), and an abort ends those with its own.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

#: Letters of a token. It tells the few drivers of one prefix apart.
_LENGTH: Final = 8
#: worker < daemon < JVM, and some wrappers.
_MOST_ANCESTORS: Final = 16
_PROC: Final = Path("/proc")


def driver_token(options: Mapping[str, str]) -> str:
    """Of this process's JVM and the write's own options (no ``kafka.*`` option is in it, and so no
    secret). Empty where no JVM is to be seen: then nobody can say whose an orphan is.
    """
    jvm = _jvm(os.getpid())
    if not jvm:
        return ""
    own = sorted((k.lower(), v) for k, v in options.items() if not _is_left_out(k.lower()))
    return hashlib.sha256(repr((platform.node(), jvm, own)).encode()).hexdigest()[:_LENGTH]


def _is_left_out(key: str) -> bool:
    return key.startswith("kafka.") or key == "configfile"


def _jvm(pid: int) -> str:
    """The nearest ancestor that is a JVM: boot, process id and start; empty when there is none."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text()
        for _ in range(_MOST_ANCESTORS):
            # pid (name) state parent ...; the name may hold spaces and parentheses.
            name, _, rest = (_PROC / str(pid) / "stat").read_text().rpartition(")")
            fields = rest.split()
            if name.endswith("(java"):
                return f"{boot} {pid} {fields[19]}"  # starttime, in ticks since the boot
            pid = int(fields[1])
    except (OSError, ValueError, IndexError):
        pass
    return ""
