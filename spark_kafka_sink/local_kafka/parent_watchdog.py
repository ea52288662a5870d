"""Kills the brokers after the Python process that started them has ended. That process is called
the parent here.

This file is run as a script: ``python parent_watchdog.py DIRECTORY``. A broker joins the process
group of the script when it is started, so no broker runs without the script. The standard input of
the script is a pipe whose other end only the parent has.

1. The parent exits, crashes or is killed by SIGKILL.
2. The operating system closes the parent's end of the pipe.
3. The script kills its process group, and removes DIRECTORY.

Linux's PR_SET_PDEATHSIG is not used, for three reasons:

* The kernel would send the signal when the *thread* that has started the broker ends.
* It needs code between fork and exec.
* Nothing would remove the data directory.

The script imports no module of the package, so that it starts fast and does not fail.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys


def main() -> None:
    """Waits until standard input is closed. Then kills the process group, and removes the directory
    ``argv[1]``.
    """
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
