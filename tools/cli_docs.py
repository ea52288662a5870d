"""docs/cli.md: every command of ``kprod`` with its options, as the commands say it of themselves.

Owns: the page's lines. Run by generate_docs.py. It reads of Typer's commands only what all its
versions have.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator
from typing import Any, Protocol

import typer

from spark_kafka_sink.cli.app import app
from spark_kafka_sink.cli.arguments import EXAMPLE


class _Param(Protocol):
    """What is read of an option or argument."""

    name: str
    param_type_name: str
    opts: list[str]
    help: str | None
    metavar: str | None
    required: bool
    default: object
    nargs: int


class _Command(Protocol):
    """What is read of a command."""

    help: str | None
    epilog: str | None
    params: list[_Param]


INTRODUCTION = """\
`pip install 'spark-kafka-sink[cli]'` brings `kprod`. `kprod check` finds what stands between a
machine and a write, in about a second; `kprod txn` shows and ends transactions of
[exactly-once](delivery-guarantees.md) jobs. `explain`, `options`, `template`, `convert`, `size`
and `report` connect to no broker. What to do by symptom: [the runbook](runbook.md).

`kprod check --exactly-once` tries what exactly-once needs of a service that speaks Kafka's
protocol. Its last line is "exactly-once works here", "does not work here" or "was not tried
here", with the reason. After SIGKILL the next one names the topic that is left, and deletes it
when it is a day old.

**Which cluster, and who.** `--bootstrap-servers`, or with `--config` a client's properties file,
TLS and SASL included: it is what a write takes as its `configFile`, with the same errors and
references to secrets ([security](security.md#a-file-for-all-of-it)). `kprod txn` needs DESCRIBE
and WRITE on the transactional ids that begin with `prefix~`, and DESCRIBE and READ on the commit
log's topic; to change something also WRITE on it. Jobs with another `commitLogTopic` need
`--log-topic`, unless the file names it.

**What is safe.** `list`, `blockers`, `describe` and all with `--dry-run` change nothing. A
command that changes something shows what it would do and asks (`--yes` skips that). What
contradicts a decision, or a run that owns its key, is refused without `--force`. Each change
first fences the drivers that could decide otherwise, and looks again: a driver that is committing
at that very moment fails with `CommitError`, and nothing of its batch is visible.

**For scripts.** `--json` writes one object to standard output; errors are one line on standard
error. Exit codes: 0 done, 1 refused or failed, 2 wrong usage or a wrong setting; 3 of `blockers`,
when a transaction is open. With `--json`, a change needs `--yes` or `--dry-run`. Names in the
JSON stay; new ones may be added. Times are milliseconds. `phase` is `DONE` (nothing under way),
`DECIDED` or `PARTIAL`; an `outcome` is `committed`, `open`, `lost` (the brokers aborted it) or
`unknown` (they don't remember); `runIs` is `owner` (of a key of the log), `superseded`, or `not
in the log`: it has not committed anything yet, and was planned after the owner.

`kprod --install-completion` completes names in your shell (bash, zsh, fish, PowerShell; start a
new one).
"""


#: An option of as many commands is described once.
_COMMON = 3


def page_lines() -> Iterator[str]:
    """Below the title."""
    yield from INTRODUCTION.splitlines()
    sections = list(_commands("kprod", typer.main.get_command(app)))
    params = [p for _, command in sections for p in command.params]
    uses = Counter(_row(p) for p in params if p.param_type_name == "option")
    common = {row for row, count in uses.items() if count >= _COMMON}
    yield from ("", "## Options that several commands have", "")
    yield from (row for row in uses if row in common)
    for name, command in sections:
        yield from _section(name, command, common)
    yield ""


def _commands(name: str, command: Any) -> Iterator[tuple[str, _Command]]:  # noqa: ANN401 - click's
    """Each command below ``command``, with the words that call it."""
    inner: dict[str, Any] | None = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield from _commands(f"{name} {word}", one)


def _section(name: str, command: _Command, common: set[str]) -> Iterator[str]:
    """A heading, what the command says of itself, its example, and its options."""
    arguments = [
        _metavar(p) if p.required else f"[{_metavar(p)}]"
        for p in command.params
        if p.param_type_name == "argument"
    ]
    required = [
        f"{p.opts[0]} {p.metavar}"
        for p in command.params
        if p.param_type_name == "option" and p.required
    ]
    yield from ("", f"## {' '.join([name, *arguments, *required])}", "")
    yield from inspect.cleandoc(command.help or "").splitlines()
    yield from ("", f"    {(command.epilog or '').removeprefix(EXAMPLE)}", "")
    rows = [_row(p) for p in command.params]
    own = [row for row in rows if row not in common]
    if own:
        yield from own
    also = [f"`{p.opts[0]}`" for p, row in zip(command.params, rows, strict=True) if row in common]
    if own and also:
        yield ""
    if also:
        yield f"Also {', '.join(also)}."


def _row(p: _Param) -> str:
    if p.param_type_name == "argument":
        names = f"`{_metavar(p)}`"
    else:
        first, *others = p.opts
        names = ", ".join(f"`{one}`" for one in (f"{first} {p.metavar or ''}".rstrip(), *others))
    text = p.help or ""
    if isinstance(p.default, str | float) and not isinstance(p.default, bool):
        text += f" Default: `{p.default}`."
    return f"- {names}: {text}"


def _metavar(p: _Param) -> str:
    return f"{p.metavar}..." if p.nargs == -1 else str(p.metavar)
