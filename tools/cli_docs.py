"""Generates the lines of docs/cli.md: every command of ``kprod`` with its options.

The texts are the help texts of the commands. ``generate_docs.py`` runs this module. The module
reads only attributes that commands have in every supported version of Typer.
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
The extra `cli` installs the command `kprod` ([install](install.md)). The commands `explain`,
`options` and `convert` need no broker. `report` needs a broker only if the reports are in a topic.
The [runbook](runbook.md) lists commands by symptom.

`kprod check --exactly-once` tests whether your brokers support exactly-once. This is useful for
brokers that implement Kafka's protocol and are not Apache Kafka. The last line of the output is
"exactly-once works here", "does not work here" or "was not tried here", with the reason.
The check creates a test topic, and deletes it at the end. If somebody kills the check with SIGKILL,
the test topic remains. Then the next check shows the topic's name, and a check that runs more than
a day later deletes the topic.

## Words of this page

- With [exactly-once](exactly-once.md), each task of a batch writes its rows in its own transaction.
- The *commit log* is a topic with the state of each query and job: for example, the number of the
  last batch that is done. The option `commitLogTopic` has the name of this topic. Its default is
  `__kprod_commits`.
- A *key* is the name of a query or job in the commit log.
- A *decision* is a record in the commit log. It says that a batch is to be committed, and names the
  transactions of the batch. The driver writes the decision when all tasks of the batch have written
  their rows. After that, the driver commits the transactions.
- A *run* is one start of a query or job. With its first commit, the run takes over its key.
  Exception: in a [`transaction` block](exactly-once.md#several-writes-one-decision), which commits
  several writes together, the run takes over with the first write.
- A run *owns* its key until another run takes over, or until Spark or a command has aborted the
  transactions of the run.
- An *orphan* is an open transaction that no decision names, and whose run owns no key. As a rule,
  no query needs an orphan. Exception: before its first commit, a run owns no key, but needs its
  transactions.
- To *fence* a producer means: from now on, the brokers refuse the requests of this producer. To
  fence a producer, a command registers a new producer with the same transactional id.
- A *report* has the figures of a batch, such as the number of rows ([reports](reports.md)).

## Cluster and rights

Give the addresses of the cluster with `--bootstrap-servers`. If the brokers require TLS or a login,
give a properties file with `--config`. The file may contain the addresses too. It has the same
format as the file of the option `configFile`, so it can refer to secrets in other files or in
environment variables ([security](security.md#the-option-configfile)).

`kprod txn` needs DESCRIBE on the transactional ids that begin with `prefix~` (`prefix` is the
option `transactionalIdPrefix`), and READ on the commit log's topic. A command that changes
something also needs WRITE on these ids and on that topic. In Kafka, WRITE and READ include
DESCRIBE. If your job sets the option `commitLogTopic`, set it in the properties file too, or give
its value with `--log-topic`. Otherwise the command reads the wrong topic.

If no broker responds, a command fails. `txn list PREFIX`, `txn sweep` and `txn abort --run` send a
request to every broker. If a broker does not respond within about 8 s, these three commands
continue without the transactions of this broker, and their exit code is 1. `txn list` without a
prefix and `txn blockers` fail in this case.

## Which commands change something

Only these commands change something in the cluster:

- `kprod txn fence`, `commit`, `abort`, `sweep`, `resolve` and `reset`, and
  `kprod backfill --forget`. They show the change, and ask for a confirmation. `--yes` skips the
  confirmation. With `--dry-run`, they only show the change.
- `kprod check --exactly-once` creates a test topic, and deletes it.

Without `--force`, four commands refuse some changes:

- `abort` and [`sweep`](#kprod-txn-sweep-prefix) do not abort transactions that a decision names, or
  transactions of a run that owns its key. But a run that has not committed yet owns no key, so
  these commands can make this run fail.
- `resolve` refuses each batch that is not [PARTIAL](#scripts). If a batch is PARTIAL, some of its
  transactions are committed, and others were aborted.
- `reset` does not forget a key whose batch is [DECIDED or PARTIAL](#scripts), or whose owner may
  have open transactions. `reset` also refuses if a backfill could write rows twice afterwards.

The section of each command shows what its `--force` allows.

While `commit`, `abort`, `sweep`, `resolve` or `reset` runs, a driver can try to commit a batch. So
the command first fences the producer with which the driver writes the commit log:

- If the driver has not written its decision yet, the driver needs a new producer for the decision.
  After the driver has registered this producer, the driver reads the commit log again, and finds
  the changes of the command. If the command has aborted transactions of the batch, the driver's
  commit fails with `CommitError`, and no row of the batch is visible.
- If the driver has already written its decision, the fence does not stop the driver: the driver can
  still commit the transactions of the batch, because these transactions have other producers.

## Scripts

With `--json`, a command writes one JSON object to standard output, and an error is one line on
standard error. With `--json`, a command that changes something needs `--yes` or `--dry-run`,
because it can't request a confirmation. Later versions of this package keep the field names of the
JSON, and may add fields. Times in the JSON are in milliseconds. The first table shows the
exit codes of all commands. The second table shows the values of some fields of the JSON.

| Exit code | Meaning |
|---|---|
| 0 | the command succeeded |
| 1 | the command failed, or refused the change. `check`: a step failed. `txn list`, `txn sweep` \
and `txn abort --run`: a broker did not respond |
| 2 | an argument or an option is wrong, or a file can't be read |
| 3 | `txn blockers`: a transaction is open. `audit`: rows are missing or changed, or the topic \
has more rows than the report |
| 4 | `audit`: rows were removed by retention, compaction or DeleteRecords, or the topic was \
deleted ([verdicts](audit.md#the-verdicts)) |
| 5 | `audit`: the audit can't decide ([verdicts](audit.md#the-verdicts)) |

| Field | Value | Meaning |
|---|---|---|
| `phase` | `DONE` | each batch with a decision is finished |
| `phase` | `DECIDED` | a batch is to be committed, and its transactions may still be open |
| `phase` | `PARTIAL` | some transactions of the batch are committed, others were aborted |
| `outcome` | `committed` | the transaction is committed |
| `outcome` | `open` | the transaction is still open |
| `outcome` | `lost` | the brokers have aborted the transaction |
| `outcome` | `unknown` | the brokers have no record of the transaction any more |
| `runIs` | `owner` | the run owns a key in the commit log |
| `runIs` | `superseded` | the run can't commit any more. For example, another run has taken over \
the key, or a command has aborted the run's transactions |
| `runIs` | `not in the log` | the run is neither `owner` nor `superseded`. Either its job is \
still writing its first batch, or its driver has died |
| `silent` | a list of brokers | these brokers did not respond, so their transactions are unknown |

`kprod --install-completion` lets your shell complete the names of commands and options when you
press Tab (bash, zsh, fish, PowerShell). Start a new shell afterwards.
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
    yield "The brackets at the end of an item name the commands with this argument or option. `txn`"
    yield "means all commands of `kprod txn`, and `report` means all commands of `kprod report`."
    yield ""
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
    if isinstance(p.default, str | int | float) and not isinstance(p.default, bool):
        text += f" Default: `{p.default}`."
    return f"- {names}: {text}"


def _metavar(p: _Param) -> str:
    return f"{p.metavar}..." if p.nargs == -1 else str(p.metavar)
