"""The options that several commands share, and the decorators that add the options to a command.

This module has the names, help and values of the options. The commands decide what an option does.
Only ``--within``, which ends the command after a time, is implemented here. This module imports
nothing of the package, so that help and completion are fast.
"""

from __future__ import annotations

import inspect
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from math import isnan
from pathlib import Path
from typing import Annotated, Final, NoReturn

import typer
from typer.models import OptionInfo

TIMEOUT_S: Final = 30.0
#: The first word of a command's example, below its help and in docs/cli.md.
EXAMPLE: Final = "Example: "


def flag(*names: str, help: str) -> OptionInfo:  # noqa: A002 - Typer's word
    """A Typer option without a value. An empty metavar keeps Typer from showing ``<bool>``."""
    option: OptionInfo = typer.Option(*names, metavar="", help=help)
    return option


Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "-b",
        metavar="HOST:PORT,...",
        help="The addresses of the cluster.",
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="A Kafka client's properties file with bootstrap.servers and security settings.",
    ),
]
LogTopic = Annotated[
    str | None,
    typer.Option(
        "--log-topic",
        metavar="TOPIC",
        help="The topic of the option commitLogTopic. Default: the value of commitLogTopic in the "
        "file of --config, or __kprod_commits if the file does not have it.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        max=86_400,
        help="The time limit of each request to the brokers, including all its retries. Some "
        "requests have a shorter limit. 'txn commit' and 'audit' also wait for transactions to "
        "end: each wait ends after SECONDS at the latest. A command sends several requests, so it "
        "can take longer than SECONDS. --within limits the whole command.",
    ),
]
Within = Annotated[
    float | None,
    typer.Option(
        "--within",
        metavar="SECONDS",
        min=0.1,
        max=86_400,
        help="The time limit of the whole command. When it is over, the command fails with exit "
        "code 1. Exception: 'audit' then shows its verdict on what it has read, with the exit code "
        "of this verdict (3, 4 or 5).",
    ),
]
AsJson = Annotated[bool, flag("--json", help="Write one JSON object to standard output.")]
Watch = Annotated[bool, flag("--watch", help="Repeat the command until Ctrl-C.")]
DryRun = Annotated[bool, flag("--dry-run", help="Show the change without making it.")]
Yes = Annotated[bool, flag("--yes", "-y", help="Make the change without a confirmation.")]


@dataclass(frozen=True, slots=True)
class Where:
    """The Kafka cluster of a command, from the options on the command line.

    * ``log_topic``: the topic of the commit log (``--log-topic``). If it is None, the config file
      names the topic, or the default topic is used.
    * ``timeout_s``: the time limit of each request, including all its retries, and of each wait,
      in seconds.
    * ``ends_at_s``: the time of ``time.monotonic`` at which ``--within`` ends the command, or None.
    """

    bootstrap_servers: str | None
    config_file: Path | None
    log_topic: str | None
    timeout_s: float
    ends_at_s: float | None = None

    def __post_init__(self) -> None:
        if isnan(self.timeout_s):
            raise typer.BadParameter("--timeout is a number of seconds")

    def again(self) -> str:
        """The options of this command line for the cluster and the commit log, such as ``-b
        host:9092``. A command that suggests another command to the user adds these options to it,
        so that it uses the same cluster.
        """
        given = {
            "-b": self.bootstrap_servers,
            "-c": self.config_file,
            "--log-topic": self.log_topic,
        }
        return shlex.join(
            word
            for name, value in given.items()
            if value is not None
            for word in (name, str(value))
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """The options of a command that changes something: ``--json`` prints JSON, ``--dry-run`` only
    shows the change, and ``--yes`` skips the confirmation.
    """

    as_json: bool
    dry_run: bool
    yes: bool


_CLUSTER: Final[Mapping[str, tuple[object, object]]] = {
    "bootstrap_servers": (Servers, None),
    "config": (Config, None),
    "timeout": (Timeout, TIMEOUT_S),
    "within": (Within, None),
}
_LOG: Final[Mapping[str, tuple[object, object]]] = {"log_topic": (LogTopic, None)}
_ASKED: Final[Mapping[str, tuple[object, object]]] = {
    "as_json": (AsJson, False),
    "dry_run": (DryRun, False),
    "yes": (Yes, False),
}


def to_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator for a command that uses a cluster. The command's first parameter is a
    :class:`Where`. On the command line, Typer shows the options of the cluster and ``--within`` in
    place of this parameter.
    """
    return _with_where(command, _CLUSTER)


def to_commit_log(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator for a command that uses a commit log: :func:`to_cluster` with the option
    ``--log-topic`` in addition.
    """
    return _with_where(command, {**_CLUSTER, **_LOG})


def _with_where(
    command: Callable[..., None], added: Mapping[str, tuple[object, object]]
) -> Callable[..., None]:
    """Wraps ``command`` in a function for Typer. The function has the options in ``added``, and
    makes a :class:`Where` from their values. It passes this object to ``command`` as the first
    argument.
    """

    @wraps(command)
    def with_options(**given: object) -> None:
        with _limit(given.pop("within")) as ends_at_s:
            command(_where(given, ends_at_s), **given)

    return _taking(with_options, command, added, places=1)


def changing(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator for a command that changes something. The first two parameters of the command are a
    :class:`Where` and an :class:`Asked`.

    On the command line, Typer shows options in place of these parameters: the options of
    :func:`to_commit_log`, and ``--json``, ``--dry-run`` and ``--yes``.
    """

    @wraps(command)
    def with_options(**given: object) -> None:
        asked = Asked(*(bool(given.pop(name)) for name in _ASKED))
        with _limit(given.pop("within")) as ends_at_s:
            command(_where(given, ends_at_s), asked, **given)

    return _taking(with_options, command, {**_CLUSTER, **_LOG, **_ASKED}, places=2)


def _where(given: dict[str, object], ends_at_s: float | None) -> Where:
    """Makes a :class:`Where` from the values of the cluster's options in ``given``, and removes
    them from ``given``. The values of the command's own options stay.
    """
    names = ("bootstrap_servers", "config", "log_topic", "timeout")
    servers, config, log_topic, timeout = (given.pop(name, None) for name in names)
    return Where(servers, config, log_topic, timeout, ends_at_s)  # type: ignore[arg-type]  # Typer's


def _taking(
    function: Callable[..., None],
    command: Callable[..., None],
    added: Mapping[str, tuple[object, object]],
    *,
    places: int,
) -> Callable[..., None]:
    """Gives ``function`` a signature for Typer: the options in ``added``, and the parameters of
    ``command`` without its first ``places`` parameters.

    Typer reads the options from the signature, and their types from the annotations.
    """
    own = list(inspect.signature(command, eval_str=True).parameters.values())[places:]
    given = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in added.items()
    ]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + given
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # PEP 362
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


def more_time(seconds: float) -> None:
    """Extends the time limit ``--within`` of the running command by ``seconds``. Does nothing if
    the command has no time limit. This function is for a command that stops its own work at the
    original limit, and then needs time to show a result.
    """
    left_s, _ = signal.getitimer(signal.ITIMER_REAL)
    if left_s:
        signal.setitimer(signal.ITIMER_REAL, left_s + seconds)


@contextmanager
def _limit(within: object) -> Iterator[float | None]:
    """Ends the command with exit code 1 if the ``with`` block takes longer than ``within`` seconds.
    Yields the end of this time, as a value of ``time.monotonic``. If ``within`` is None, yields
    None, and there is no limit.
    """
    if not isinstance(within, float):
        yield None
        return
    if isnan(within):
        raise typer.BadParameter("--within is a number of seconds")

    def end(_number: int, _frame: object) -> NoReturn:
        sys.stderr.write(f"kprod: not done within {within:g} s (hint: raise --within)\n")
        raise SystemExit(1)

    # The timer's signal interrupts any call that waits, as Ctrl-C does.
    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, within)
    try:
        yield time.monotonic() + within
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
