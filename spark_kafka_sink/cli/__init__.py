"""The command line ``kprod``: checks a cluster, explains errors and options, repairs transactions.

* ``app``: the tree of commands. ``arguments``: the options that several commands share.
* ``check``, ``options``, ``convert``, ``report`` and so on: one command each.
* ``txn``: a folder with the commands of ``kprod txn``. ``transactions/operations`` finds and
  changes the transactions.
* ``connection``: connects a command to a cluster.
* ``show``, ``progress``, ``watching``: print.

All commands except ``explain`` need the extra ``cli`` (Typer and Rich). ``explain`` works without
it, because every error message refers to ``explain``. No other part of the package imports ``cli``.
"""

from __future__ import annotations

import errno
import importlib.util
import io
import logging
import os
import sys

#: The packages of the extra.
_NEEDED = ("typer", "rich")


def main() -> None:
    """The entry point of ``kprod``. Exit codes: 0 done, 1 refused or failed, 2 wrong usage. Some
    commands have more exit codes, which their help lists.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing and sys.argv[1:2] == ["explain"]:
        from spark_kafka_sink.cli.explanation import main as explain

        raise SystemExit(explain(sys.argv[2:]))
    if missing:
        sys.stderr.write(
            f"kprod: {' and '.join(missing)} not installed: pip install 'spark-kafka-sink[cli]'\n"
        )
        raise SystemExit(1)
    from spark_kafka_sink.cli.app import app

    # The error that ends the command already has the reason of a failed connection.
    logging.getLogger("spark_kafka_sink.network").setLevel(logging.ERROR)

    if isinstance(sys.stdout, io.TextIOWrapper):
        # A name may have characters that the locale's encoding lacks. (As on standard error.)
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        try:
            app(prog_name="kprod")
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stderr.write(f"kprod: the output can't be written: {error.strerror}\n")
        # Buffered output would be an error again at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
