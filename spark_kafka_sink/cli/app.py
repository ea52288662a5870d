"""The tree of commands under ``kprod``.

Owns: the application and its version. Never: a command's work (``txn.py``).
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from spark_kafka_sink import __version__
from spark_kafka_sink.cli import check, convert, explain, options, template, txn

app = typer.Typer(
    help="Checks a cluster; explains errors; shows what exactly-once left, and mends it by hand.",
    no_args_is_help=True,
    # A traceback that shows locals would show secrets.
    pretty_exceptions_enable=False,
)
app.add_typer(txn.app, name="txn")
app.command()(check.check)
app.command()(convert.convert)
app.command()(explain.explain)
app.command("error")(explain.explain)
app.command()(options.options)
app.command()(template.template)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"{__version__}\n")
        raise typer.Exit


@app.callback()
def kprod(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Checks a cluster; explains errors; shows what exactly-once left, and mends it by hand."""
