"""Ends the brokers of a parent process after the parent has ended in any way.

Run as a script, by its path: ``python parent_watchdog.py DIRECTORY``. The watcher reads its
standard input, a pipe whose other end only the parent has. The kernel closes that end when the
parent exits, is killed with SIGKILL or crashes. Then the watcher kills its whole process group,
which contains the brokers, and removes DIRECTORY.

PR_SET_PDEATHSIG is not used, for three reasons. The signal is sent when the *thread* that started
the broker ends, it needs code between fork and exec, and nobody would remove the data directory. A
broker joins the process group of the watcher when it is started, so no broker ever runs without its
watcher.

Owns: the end of the brokers. This script imports no module of the package, because it must start
fast and never fail.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Waits for the end of standard input, then kills the process group and removes ``argv[1]``."""
    # A terminal that closes sends SIGHUP to orphaned groups with a stopped (frozen) member; the
    # watcher must outlive that to do its work.
    for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)
    group = os.getpgrp()
    # The parent waits for this: before it, a SIGHUP could have killed the watcher.
    os.write(1, b"\n")
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    # kill() to a group can't leave out the caller, so a child in a session of its own does it.
    if os.fork() == 0:
        os.setsid()
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        # A killed broker may still have written; the second pass removes that.
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        os._exit(0)
    # Stay until that child's signal comes: while this process exists, the group's number is not
    # used again.
    signal.pause()


if __name__ == "__main__":
    main()
