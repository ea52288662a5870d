"""``kprod check``: checks every condition of a write, step by step.

Owns: the command and its table. Never: a step (``datasource/checks/cluster_checks.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.connection import FAILED, one_line_errors, settings_of
from spark_kafka_sink.cli.progress import bar, spinner
from spark_kafka_sink.cli.show import Json, new_console, print_json
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import State, Step
from spark_kafka_sink.datasource.checks.cluster_checks import STEPS, check_cluster
from spark_kafka_sink.datasource.checks.executor_checks import HostCheck, check_from

_STYLES: Final = {
    State.OK: "green",
    State.WARNING: "yellow",
    State.FAILED: "red",
    State.SKIPPED: "dim",
}
#: Characters of a cell.
_MOST_SHOWN: Final = 600


def check(
    where: Where, given: Mapping[str, object], from_executors: str | None, *, as_json: bool
) -> None:
    """The steps of a write with the options ``given``, here and on the executors of a Spark."""
    timeout_ms = int(where.timeout_s * 1000)
    steps: list[Step] = []
    hosts: tuple[HostCheck, ...] = ()
    with one_line_errors():
        settings, _ = settings_of(where, given)
        if from_executors is None or not from_executors.startswith("sc://"):
            steps = _here(settings, timeout_ms, as_json=as_json)
        if from_executors is not None:
            with spinner("asking executors", as_json=as_json):
                hosts = check_from(from_executors, settings, timeout_ms=timeout_ms)
            if not as_json:
                new_console(markup=True).print(_hosts_table(hosts))
    ok = all(s.state is not State.FAILED for s in (*steps, *(s for h in hosts for s in h.steps)))
    if as_json:
        output: Json = {"command": "check", "ok": ok, "steps": [asdict(step) for step in steps]}
        if from_executors is not None:
            output["hosts"] = [asdict(host) for host in hosts]
        print_json(output)
    if not ok:
        raise typer.Exit(FAILED)


def _here(settings: SinkConfig, timeout_ms: int, *, as_json: bool) -> list[Step]:
    """The steps from this machine; unless they are for JSON, shown as they are done."""
    found = check_cluster(settings, timeout_ms=timeout_ms)
    if as_json:
        return list(found)
    steps: list[Step] = []
    console = new_console(markup=True)
    # For output into a file, which does not show the growing table.
    update = bar("checking", as_json=console.is_terminal)
    with Live(_table(steps), console=console, auto_refresh=False) as live:
        update(0, len(STEPS))
        try:
            for step in found:
                steps.append(step)
                update(len(steps), len(STEPS))
                live.update(_table(steps), refresh=console.is_terminal)
        finally:
            update(0, 0)
    return steps


def _table(steps: Sequence[Step]) -> Table:
    table = Table("step", "", "what was found", "what to do")
    for step in steps:
        table.add_row(*_cells(step))
    for name in STEPS[len(steps) :]:
        table.add_row(name, "[dim]...[/]", "", "")
    return table


def _hosts_table(hosts: Sequence[HostCheck]) -> Table:
    """The failed and warning steps of each host, or a row that all are ok."""
    table = Table("executor", "step", "", "what was found", "what to do")
    for host in hosts:
        worth = [s for s in host.steps if s.state in (State.FAILED, State.WARNING)]
        for step in worth:
            table.add_row(escape(host.host), *_cells(step))
        if not worth:
            done = sum(step.state is State.OK for step in host.steps)
            table.add_row(escape(host.host), "all", "[green]ok[/]", f"{done} steps", "")
    return table


def _cells(step: Step) -> Iterator[str]:
    style = _STYLES[step.state]
    code = "" if step.code is None else f"[{step.code}] "
    yield step.name
    yield f"[{style}]{step.state}[/]"
    yield escape(safe_text(code + step.said, _MOST_SHOWN))
    yield escape(safe_text(step.change or "", _MOST_SHOWN))
