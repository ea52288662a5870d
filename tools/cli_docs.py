"""docs/cli.md: every command of ``kprod`` with its options, as the commands say it of themselves.

Owns: the page's lines. Run by generate_docs.py. It reads of Typer's commands only what all its
versions have.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
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
machine and a write. `kprod explain KP0301` says what an error means, `kprod options WORD` what can
be set, `kprod template` has properties files to fill in, `kprod convert` makes one of another
client's, `kprod size` counts connections and memory, and `kprod report` reads the files of
`reportPath`; none of these commands connects to a broker.
A `kprod check` of a healthy local cluster takes 0.66 to 0.81 s, with and without exactly-once (ten
runs on two cores at a load of 2; 0.7 s of CPU each, most of it to start Python), and took up to
4.3 s at a load of 18.
Services that speak Kafka's protocol differ: some have no transactions, no compacted topics, or
list no open transactions. `kprod check --exactly-once` tries it: in a topic of its own an open
row and one that is aborted are not visible to `read_committed`, one that is committed is, the
commit of a fenced producer is refused, and an open transaction is listed with its age. Its last
line is "exactly-once works here", "does not work here" or "was not tried here", with the reason;
`--json` has all of it for an issue. It deletes the topic, also after Ctrl-C or SIGTERM; after
SIGKILL the topic is left, and the next one names it, and deletes it once it is a day old.
`kprod --install-completion` completes names in your shell (bash, zsh, fish, PowerShell; start a new
one), `kprod --show-completion` prints the script. What takes longer than a second has a bar on
standard error, if that is a terminal, and never with `--json`.

`kprod txn` is for operators of jobs with
`deliveryGuarantee=exactly-once` ([what they promise](delivery-guarantees.md)): it shows which
transactions are open and what is decided about them, and ends what no driver will end; of any
client, `kprod txn blockers TOPIC` finds the one that makes consumers wait. What to do by what is
seen: [the runbook](runbook.md).

**Which cluster, and who.** `--bootstrap-servers`, or a client's properties file with `--config`,
which may also say everything about TLS and SASL; it is what a write takes as its `configFile`, with
the same errors and warnings, references to secrets and `commitLogTopic` included
([security](security.md#a-file-for-all-of-it)). The principal needs DESCRIBE and WRITE on
the transactional ids that begin with `prefix~`, DESCRIBE and READ on the topic of the commit log,
and WRITE on it for whatever changes something: `abort` and `sweep` note there whose transactions
they end. Jobs with another `commitLogTopic` need `--log-topic`, unless the file names it.

**What is safe.** `list`, `blockers`, `describe` and all with `--dry-run` change nothing and disturb
no job. A command that changes something shows what it would do and asks (`--yes` skips the
confirmation). What contradicts a decision, or the one who owns it, is refused; `--force` does it
all the same. Between the look and the change, a driver may have gone on: so each change first
fences the drivers that could decide otherwise, and looks again. A driver that is committing at that
very moment then fails with `CommitError`, and nothing of its batch is visible.

**For scripts.** `--json` writes one object to standard output; errors are one line on standard
error (wrong usage: with the usage around it). Exit codes: 0 done, 1 refused or failed, 2 wrong
usage or a wrong setting; 3 of `blockers`, when a transaction is open. With `--json`, a change needs
`--yes` or `--dry-run`. Names in the JSON stay; new ones may join them. Times are milliseconds.
`phase` is `DONE` (nothing under way), `DECIDED` or `PARTIAL`; an `outcome` is `committed`, `open`,
`lost` (the brokers aborted it) or `unknown` (they don't remember); `runIs` is `owner` (of a key of
the log), `superseded`, or `not in the log`: it has not committed anything yet, and planned since
the owner took over.
"""


def page_lines() -> Iterator[str]:
    """Below the title."""
    yield from INTRODUCTION.splitlines()
    everything: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    commands: dict[str, Any] = everything["txn"].commands
    shared = set.intersection(*({p.name for p in c.params} for c in commands.values()))
    for name, command in everything.items():
        if name == "txn":
            continue
        for words, one in _under(name, command):
            yield from _section(f"kprod {words}", one, one.params)
    yield from ("", "## Every command of kprod txn takes", "")
    yield from _table(p for p in commands["list"].params if p.name in shared)
    for name, command in commands.items():
        own = [p for p in command.params if p.name not in shared]
        yield from _section(f"kprod txn {name}", command, own)
    yield ""


def _under(name: str, command: _Command) -> Iterator[tuple[str, _Command]]:
    """A command, or those of a group, with the words that call it."""
    inner: dict[str, Any] | None = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield f"{name} {word}", one


def _section(name: str, command: _Command, own: list[_Param]) -> Iterator[str]:
    """A heading, what the command says of itself, its example, and the table of ``own``."""
    arguments = [
        _metavar(p) if p.required else f"[{_metavar(p)}]"
        for p in command.params
        if p.param_type_name == "argument"
    ]
    required = [
        f"{p.opts[0]} {p.metavar}" for p in own if p.param_type_name == "option" and p.required
    ]
    yield from ("", f"## {' '.join([name, *arguments, *required])}", "")
    yield from inspect.cleandoc(command.help or "").splitlines()
    yield from ("", f"    {(command.epilog or '').removeprefix(EXAMPLE)}")
    if own:
        yield ""
        yield from _table(own)


def _table(params: Iterable[_Param]) -> Iterator[str]:
    yield "| | |"
    yield "|---|---|"
    for p in params:
        if p.param_type_name == "argument":
            names = f"`{_metavar(p)}`"
        else:
            names = ", ".join(f"`{opt} {p.metavar or ''}".rstrip() + "`" for opt in p.opts)
        text = p.help or ""
        if isinstance(p.default, str | float) and not isinstance(p.default, bool):
            text += f" Default: `{p.default}`."
        yield f"| {_cell(names)} | {_cell(text)} |"


def _metavar(p: _Param) -> str:
    return f"{p.metavar}..." if p.nargs == -1 else str(p.metavar)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
