"""A token that identifies the Spark driver and the write, for the Python processes on the driver.

Spark plans, commits and aborts a stream's micro-batch in separate Python processes, and passes
neither the run id nor the query id to them. All these processes compute the same token
(:func:`driver_token`), which is a part of each transactional id of a stream
(``exactly_once/transactional_producers.py``).

If all tasks of a batch were killed, the abort gets no commit message, and so no list of the batch's
open transactions. Then the abort ends all open transactions that have the token in their ids.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_kafka_sink.base.security.secret_references import REFERABLE

#: Characters of a token. It distinguishes the few drivers of one prefix.
_LENGTH: Final = 8
#: The largest number of ancestor processes that are searched. Usually the JVM is the parent of
#: Spark's Python daemon, and the daemon is the parent of a worker.
_MOST_ANCESTORS: Final = 16
_PROC: Final = Path("/proc")
_LEFT_OUT: Final = ("configfile", "txnversion", "txngeneration")


def driver_token(options: Mapping[str, str]) -> str:
    """Returns a token for the Spark driver and the write: 8 hexadecimal digits. The token is a hash
    that identifies the driver's JVM and the options of the write. The driver's JVM is the nearest
    ancestor process that is a JVM. It is identified by its machine, pid and start time. These
    options are left out of the hash:

    - ``kafka.*`` options
    - options of TLS, SASL and schema registries
    - ``configFile``, ``txnVersion`` and ``txnGeneration``

    Returns an empty text if no ancestor process is a JVM. Without a token, an abort can't find open
    transactions that no task has reported. Also, a batch job then has a new run id for each
    ``txnVersion``. With a token it keeps its run id.
    """
    jvm = _jvm(os.getpid())
    if not jvm:
        return ""
    own = sorted((k.lower(), v) for k, v in options.items() if not _is_left_out(k.lower()))
    return hashlib.sha256(repr((platform.node(), jvm, own)).encode()).hexdigest()[:_LENGTH]


def _is_left_out(key: str) -> bool:
    return key.startswith(("kafka.", *REFERABLE)) or key in _LEFT_OUT


def _jvm(pid: int) -> str:
    """The identity of the nearest ancestor process that is a JVM: the machine's boot id, the pid
    and the start time. Empty if there is no JVM.
    """
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
