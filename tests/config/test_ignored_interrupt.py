"""A run of the tests in the background of a shell, where SIGINT is ignored: Ctrl-C works in it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"

#: A program that waits gets SIGINT, and prints how it ended.
INNER = """
import signal, subprocess, sys

WAITS = "import sys; print('waits', flush=True); sys.stdin.read()"

def test_a_child_is_interrupted():
    command = [sys.executable, "-c", WAITS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout.readline() == "waits\\n"
        child.send_signal(signal.SIGINT)
        # A child that ignores the signal ends with 0, because its input ends.
        child.communicate("")
    assert child.returncode == -signal.SIGINT
"""


def test_ctrl_c_reaches_a_program_although_the_shell_ignores_it(tmp_path: Path) -> None:
    inner = tmp_path / "test_inner.py"
    inner.write_text(INNER)
    shutil.copy(CONFTEST, tmp_path / "conftest.py")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(inner)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(CONFTEST.parents[1])},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
