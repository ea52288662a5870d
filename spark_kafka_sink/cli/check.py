"""``kprod check``: checks every condition of a write, step by step.

This module has the command and its table. ``datasource/checks/cluster_checks.py`` does the work of
the steps.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from typing import Final, NoReturn

import typer
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from spark_kafka_sink.base.errors import safe_text
from spark_kafka_sink.base.version import __version__
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.connection import FAILED, one_line_errors, settings_of
from spark_kafka_sink.cli.progress import bar, spinner
from spark_kafka_sink.cli.show import Json, new_console, print_json, say
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.datasource.checks.check_steps import NOT_REACHED, Step, StepState
from spark_kafka_sink.datasource.checks.cluster_checks import (
    STEPS,
    TRIAL_STEPS,
    check_cluster,
    check_exactly_once,
)
from spark_kafka_sink.datasource.checks.exactly_once_trial import OF_TRIAL
from spark_kafka_sink.datasource.checks.executor_checks import HostCheck, check_from
from spark_kafka_sink.datasource.checks.transaction_steps import OF_TRANSACTIONS

_GUARANTEE: Final = {"deliveryGuarantee": "exactly-once"}
_VERDICTS: Final = {
    True: "exactly-once works here",
    False: "exactly-once does not work here",
    None: "exactly-once was not tried here",
}
_STYLES: Final = {
    StepState.OK: "green",
    StepState.WARNING: "yellow",
    StepState.FAILED: "red",
    StepState.SKIPPED: "dim",
}
#: Characters of a cell.
_MOST_SHOWN: Final = 600


def check(
    where: Where,
    given: Mapping[str, object],
    from_executors: str | None,
    *,
    exactly_once: bool,
    as_json: bool,
) -> None:
    """Runs the steps of a check, and prints their results. The exit code is 1 if a step failed, or
    if ``exactly_once`` is True and exactly-once was not tried.

    * ``given``: the options of the write that is checked.
    * ``from_executors``: the address of a Spark cluster. The steps also run on its executors. With
      a Spark Connect server (``sc://``), no step runs on this machine. If it is None, the steps run
      only on this machine.
    * ``exactly_once``: if True, the check also tries transactions in a test topic.
    """
    timeout_ms = int(where.timeout_s * 1000)
    steps: list[Step] = []
    hosts: tuple[HostCheck, ...] = ()
    with one_line_errors():
        settings, _ = settings_of(where, {**given, **(_GUARANTEE if exactly_once else {})})
        if from_executors is None or not from_executors.startswith("sc://"):
            steps = _here(settings, timeout_ms, exactly_once=exactly_once, as_json=as_json)
        if from_executors is not None:
            with spinner("asking executors", as_json=as_json):
                hosts = check_from(from_executors, settings, timeout_ms=timeout_ms)
            if not as_json:
                new_console(markup=True).print(_hosts_table(hosts))
    ok = all(
        s.state is not StepState.FAILED for s in (*steps, *(s for h in hosts for s in h.steps))
    )
    ok = ok and not (exactly_once and _verdict(steps)[0] is None)
    if as_json:
        output: Json = {
            "command": "check",
            "version": __version__,
            "ok": ok,
            "steps": [asdict(step) for step in steps],
        }
        if exactly_once:
            works, why = _verdict(steps)
            output["exactlyOnce"] = {"works": works, "because": why}
        if from_executors is not None:
            output["hosts"] = [asdict(host) for host in hosts]
        print_json(output)
    if not ok:
        raise typer.Exit(FAILED)


def _here(
    settings: SinkConfig, timeout_ms: int, *, exactly_once: bool, as_json: bool
) -> list[Step]:
    """Runs the steps from this machine. Without ``as_json`` a table shows each step when it is
    done.
    """
    if not exactly_once:
        found = check_cluster(settings, timeout_ms=timeout_ms)
        return list(found) if as_json else _shown(found, STEPS)
    with _ended_by_signals(), closing(check_exactly_once(settings, timeout_ms=timeout_ms)) as trial:
        steps = list(trial) if as_json else _shown(trial, TRIAL_STEPS)
    if not as_json:
        works, why = _verdict(steps)
        say(_VERDICTS[works] + ("" if why is None else f": {why}"))
    return steps


def _verdict(steps: Sequence[Step]) -> tuple[bool | None, str | None]:
    """The result of ``--exactly-once``: whether exactly-once works, and the reason if the first
    value is not True. The first value is:

    * True if exactly-once was tried, and works.
    * False if a step that checks transactions failed.
    * None in all other cases: only other steps failed, or the trial did not finish.
    """
    *trial, _ = (step for step in steps if step.name in OF_TRIAL)
    if all(step.state in (StepState.OK, StepState.WARNING) for step in trial):
        return True, None
    red = [step for step in steps if step.state is StepState.FAILED]
    against = [step for step in red if step.name in (*OF_TRANSACTIONS, *OF_TRIAL)]
    untried = [step for step in trial if step.state is StepState.SKIPPED]
    first = (against or untried[:1] * (not red) or red)[0]
    return False if against else None, f"{first.name}: {first.said}"


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into SystemExit, so that the check of exactly-once removes its test
    topic before the process ends.
    """

    def end(number: int, _: object) -> NoReturn:
        raise SystemExit(128 + number)

    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(one, end) for one in signals]
    try:
        yield
    finally:
        for one, handler in zip(signals, before, strict=True):
            signal.signal(one, handler)


def _shown(found: Iterator[Step], names: Sequence[str]) -> list[Step]:
    """Collects the steps that ``found`` yields, and shows each step when it is done."""
    steps: list[Step] = []
    console = new_console(markup=True)
    # For output into a file, which does not show the growing table.
    update = bar("checking", as_json=console.is_terminal)
    with Live(_table(steps, names), console=console, auto_refresh=False) as live:
        update(0, len(names))
        try:
            for step in found:
                steps.append(step)
                update(len(steps), len(names))
                live.update(_table(steps, names), refresh=console.is_terminal)
        finally:
            update(0, 0)
    if not console.is_terminal:
        console.print()  # Live leaves the last line open there
    return steps


def _table(steps: Sequence[Step], names: Sequence[str]) -> Table:
    table = Table("step", "", "what was found", "what to do")
    reached = [step for step in steps if step.said != NOT_REACHED]
    for step in reached:
        table.add_row(*_cells(step))
    if behind := len(steps) - len(reached):
        table.add_row(f"{behind} more steps", "[dim]skipped[/]", NOT_REACHED, "")
    for name in names[len(steps) :]:
        table.add_row(name, "[dim]...[/]", "", "")
    return table


def _hosts_table(hosts: Sequence[HostCheck]) -> Table:
    """A table of the executors' results. The table has a row for each step that failed or gave a
    warning. A host without such a step has one row, "ok".
    """
    table = Table("executor", "step", "", "what was found", "what to do")
    for host in hosts:
        worth = [s for s in host.steps if s.state in (StepState.FAILED, StepState.WARNING)]
        for step in worth:
            table.add_row(escape(host.host), *_cells(step))
        if not worth:
            done = sum(step.state is StepState.OK for step in host.steps)
            table.add_row(escape(host.host), "all", "[green]ok[/]", f"{done} steps", "")
    return table


def _cells(step: Step) -> Iterator[str]:
    style = _STYLES[step.state]
    code = "" if step.code is None else f"[{step.code}] "
    yield step.name
    yield f"[{style}]{step.state}[/]"
    yield escape(safe_text(code + step.said, _MOST_SHOWN))
    yield escape(safe_text(step.change or "", _MOST_SHOWN))
