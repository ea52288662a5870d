"""``kprod check``: each step between this machine and a write, as it is done.

Owns: the command and its table. Never: a step (``datasource/cluster_checks.py``).
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from spark_kafka_sink.cli.arguments import TIMEOUT_S, AsJson, Config, Servers, Timeout
from spark_kafka_sink.cli.connection import FAILED, Cluster, one_line_errors, settings_of
from spark_kafka_sink.cli.show import print_json
from spark_kafka_sink.datasource.cluster_checks import STEPS, State, Step, check_cluster
from spark_kafka_sink.errors import safe_text

_STYLES: Final = {
    State.OK: "green",
    State.WARNING: "yellow",
    State.FAILED: "red",
    State.SKIPPED: "dim",
}
#: Characters of a cell.
_MOST_SHOWN: Final = 600
#: Of a table that goes into a file or a pipe: no terminal says how wide.
_WIDTH: Final = 200


def check(
    bootstrap_servers: Servers = None,
    config: Config = None,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="The option topic.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option(
            "--option", "-o", metavar="NAME=VALUE", help="Any option of the write, as in Spark."
        ),
    ] = None,
    timeout: Timeout = TIMEOUT_S,
    as_json: AsJson = False,
) -> None:
    """What stands between this machine and a write: a table of steps, the first red one first.

    Changes nothing. With deliveryGuarantee=exactly-once (in the file, or by -o) also what that
    needs. Exit codes: 0 nothing is red, 1 something is, 2 the options are wrong.
    """
    given = dict(_pair(one) for one in options or ())
    if topic is not None:
        given["topic"] = topic
    with one_line_errors():
        settings, _ = settings_of(Cluster(bootstrap_servers, config, None, timeout), given)
        steps: list[Step] = []
        found = check_cluster(settings, timeout_ms=int(timeout * 1000))
        if as_json:
            steps.extend(found)
        else:
            console = Console(highlight=False)
            if not console.is_terminal:
                console = Console(highlight=False, width=_WIDTH)
            with Live(_table(steps), console=console, auto_refresh=False) as live:
                for step in found:
                    steps.append(step)
                    live.update(_table(steps), refresh=console.is_terminal)
    red = next((step.name for step in steps if step.state is State.FAILED), None)
    if as_json:
        print_json(
            {"command": "check", "ok": red is None, "steps": [asdict(step) for step in steps]}
        )
    if red is not None:
        raise typer.Exit(FAILED)


def _pair(text: str) -> tuple[str, object]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise typer.BadParameter("give NAME=VALUE", param_hint="--option")
    return name.strip(), value


def _table(steps: list[Step]) -> Table:
    table = Table("step", "", "what was found", "what to do")
    for step in steps:
        style = _STYLES[step.state]
        code = "" if step.code is None else f"[{step.code}] "
        table.add_row(
            step.name,
            f"[{style}]{step.state}[/]",
            escape(safe_text(code + step.said, _MOST_SHOWN)),
            escape(safe_text(step.change or "", _MOST_SHOWN)),
        )
    for name in STEPS[len(steps) :]:
        table.add_row(name, "[dim]...[/]", "", "")
    return table
