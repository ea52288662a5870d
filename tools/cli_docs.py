"""docs/cli.md: every command of ``kprod`` with its options, as the commands say it of themselves.

Owns: the page's lines. Run by generate_docs.py. It reads of Typer's commands only what all its
versions have.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
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
`pip install 'spark-kafka-sink[cli]'` brings `kprod`. `explain`, `options`, `template`, `convert`,
`size` and `report` connect to no broker. What to do by symptom: [the runbook](runbook.md).

`kprod check --exactly-once` tries what exactly-once needs of a service that speaks Kafka's
protocol. Its last line is "exactly-once works here", "does not work here" or "was not tried
here", with the reason. After SIGKILL the next one names the topic left, and deletes it after a
day.

**Which cluster, and who.** `--bootstrap-servers`, or with `--config` a client's properties file,
TLS and SASL included: it is what a write takes as its `configFile`, with the same errors and
references to secrets ([security](security.md#a-file-for-all-of-it)). `kprod txn` needs DESCRIBE
and WRITE on the transactional ids that begin with `prefix~`, and DESCRIBE and READ on the commit
log's topic; to change something also WRITE on it. Jobs with another `commitLogTopic` need
`--log-topic`, unless the file names it. A broker whose first answers take 3 s is
passed over; commands fail when all do.

**What is safe.** `list`, `blockers`, `describe` and all with `--dry-run` change nothing. A
command that changes something shows what it would do and asks (`--yes` skips that). What
contradicts a decision, or a run that owns its key, is refused without `--force`. Each change
first fences the drivers that could decide otherwise, and looks again: a driver that is about to
commit what is aborted fails with `CommitError`, and nothing of its batch is visible.

**For scripts.** `--json` writes one object to standard output; errors are one line on standard
error. Exit codes: 0 done, 1 refused or failed, 2 wrong usage or a wrong setting; 3 of `blockers`,
when a transaction is open. With `--json`, a change needs `--yes` or `--dry-run`. Names in the
JSON stay; new ones may be added. Times are milliseconds. `phase` is `DONE` (nothing under way),
`DECIDED` or `PARTIAL`; an `outcome` is `committed`, `open`, `lost` (the brokers aborted it) or
`unknown` (they don't remember); `runIs` is `owner` (of a key of the log), `superseded`, or `not
in the log`: it has not committed anything yet, and was planned after the owner; of `silent`
brokers nothing is known.

`kprod --install-completion` completes names in your shell (bash, zsh, fish, PowerShell; start a
new one).
"""


#: An argument or option of as many commands is described once.
_COMMON = 2


def page_lines() -> Iterator[str]:
    """Below the title."""
    yield from INTRODUCTION.splitlines()
    sections = list(_commands("kprod", typer.main.get_command(app)))
    users: dict[str, list[str]] = {}
    for name, command in sections:
        for one in command.params:
            users.setdefault(_row(one), []).append(name.removeprefix("kprod "))
    common = {row: names for row, names in users.items() if len(names) >= _COMMON}
    yield from ("", "## What several commands take", "")
    for row, names in sorted(common.items(), key=lambda one: one[0].startswith("- `-")):
        yield f"{row} ({_users(names, sections)})"
    for name, command in sections:
        yield from _section(name, command, common)
    yield ""


def _users(names: list[str], sections: list[tuple[str, _Command]]) -> str:
    """``names`` of commands by their groups; a group of which all have it by its name alone."""
    shown: list[str] = []
    for group in dict.fromkeys(name.partition(" ")[0] for name in names):
        members = [one.removeprefix("kprod ") for one, _ in sections]
        members = [one for one in members if one.partition(" ")[0] == group]
        here = [name for name in names if name in members]
        words = "|".join(name.partition(" ")[2] for name in here)
        shown.append(f"`{group}`" if here == members else f"`{group} {words}`")
    return ", ".join(shown)


def _commands(name: str, command: Any) -> Iterator[tuple[str, _Command]]:  # noqa: ANN401 - click's
    """Each command below ``command``, with the words that call it."""
    inner: dict[str, Any] | None = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield from _commands(f"{name} {word}", one)


def _section(name: str, command: _Command, common: Collection[str]) -> Iterator[str]:
    """A heading, what the command says of itself, its example, and what it takes alone."""
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
    yield from ("", f"    {(command.epilog or '').removeprefix(EXAMPLE)}")
    own = [row for row in map(_row, command.params) if row not in common]
    if own:
        yield from ("", *own)


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
