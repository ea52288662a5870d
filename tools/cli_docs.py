"""docs/cli.md: every command of ``kprod`` with its options, from the commands' own help.

Owns: the page's lines. Run by generate_docs.py. It reads only those attributes of
Typer's commands that all its versions have.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator
from typing import Any, Protocol

import typer

from spark_kafka_sink.cli.app import app
from spark_kafka_sink.cli.arguments import EXAMPLE


class _Param(Protocol):
    """The attributes that are read of an option or argument."""

    name: str
    param_type_name: str
    opts: list[str]
    help: str | None
    metavar: str | None
    required: bool
    default: object
    nargs: int


class _Command(Protocol):
    """The attributes that are read of a command."""

    help: str | None
    epilog: str | None
    params: list[_Param]


INTRODUCTION = """\
The extra `cli` installs the command `kprod` ([install](install.md)). `explain`, `options` and
`convert` connect to no broker. `report` connects to a broker only if it reads a topic. The
[runbook](runbook.md) lists commands by symptom.

`kprod check --exactly-once` tests whether your brokers support exactly-once. This is useful for
brokers that implement Kafka's protocol and are not Apache Kafka. The last line of the output is
"exactly-once works here", "does not work here" or "was not tried here", with the reason.
The check creates a test topic. If the check is killed with SIGKILL, the topic stays. Later checks
name the topic, and delete it after a day.

## Words of this page

- The *commit log* is the topic in which [exactly-once](exactly-once.md) records its decisions.
- A *decision* is the record that a batch is to be committed. The transactions of the batch are
  committed after the decision.
- A *key* is the name of a query or job in the commit log.
- A *run* is one start of a query or job. A run *owns* a key until a later run takes over.

## Cluster and rights

Give the cluster's addresses with `--bootstrap-servers`, or a client's properties file with
`--config`. The file may also have settings of TLS and SASL. It has the format of a write's
`configFile`, with the same errors and references to secrets
([security](security.md#a-file-for-all-of-it)).

`kprod txn` needs DESCRIBE and WRITE on the transactional ids that begin with `prefix~` (`prefix` is
the option `transactionalIdPrefix`). It also needs DESCRIBE and READ on the commit log's topic. A
command that changes something also needs WRITE on that topic. If only the job sets
`commitLogTopic`, and the properties file does not, give the topic with `--log-topic`.

A command skips a broker whose first answers take longer than 3 s. If a command skips all brokers,
it fails.

## Which commands change something

`kprod txn list`, `blockers` and `describe` change nothing, and neither does a command with
`--dry-run`. Any other command of `kprod txn` shows the change and requests a confirmation. `--yes`
skips the confirmation. Without `--force`, a command refuses a change that contradicts a decision,
and a change that makes the owner of the key fail.

Before a change, the command fences the drivers that could make another decision, and reads the
state again. If a driver is about to commit a batch that the command aborts, the driver fails with
`CommitError`, and no row of the batch is visible.

## Scripts

`--json` writes one object to standard output. An error is one line on standard error. With
`--json`, a command that changes something needs `--yes` or `--dry-run`. Later versions keep the
names in the JSON, and may add names. Times are milliseconds. The second table shows the values of
some fields of the JSON.

| Exit code | Meaning |
|---|---|
| 0 | done |
| 1 | refused or failed |
| 2 | wrong usage or a wrong setting |
| 3 | `blockers`: a transaction is open. `audit`: rows are missing, changed or too many |
| 4 | `audit`: rows were removed with a reason ([verdicts](audit.md#the-verdicts)) |
| 5 | `audit`: the audit can't decide ([verdicts](audit.md#the-verdicts)) |

| Field | Value | Meaning |
|---|---|---|
| `phase` | `DONE` | no batch in progress |
| | `DECIDED` | a batch is decided, and not yet committed |
| | `PARTIAL` | a batch is partially committed |
| `outcome` | `committed`, `open` | the transaction is committed, or still open |
| | `lost` | the brokers aborted the transaction |
| | `unknown` | the brokers don't remember the transaction |
| `runIs` | `owner` | the run owns a key in the commit log |
| | `superseded` | a later run took over |
| | `not in the log` | the run has not committed yet, and started after the owner |
| `silent` | | the brokers that did not answer; their state is unknown |

`kprod --install-completion` installs completion in your shell (bash, zsh, fish, PowerShell): the
shell then completes the names of commands and options. Start a new shell afterwards.
"""


#: An argument or option of this many commands is described once.
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
    yield from ("", "## Arguments and options of several commands", "")
    for row, names in sorted(common.items(), key=lambda one: one[0].startswith("- `-")):
        yield f"{row} ({_users(names, sections)})"
    for name, command in sections:
        yield from _section(name, command, common)
    yield ""


def _users(names: list[str], sections: list[tuple[str, _Command]]) -> str:
    """``names`` of commands by their groups; the group's name alone if all its commands have it."""
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
    """A heading, the command's help, its example, and its own options."""
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
