"""The options that commands share. Owns: their names and help. Never: their effect.

Nothing of the package is imported: help and completion answer at once.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Annotated, Final

import typer

TIMEOUT_S: Final = 30.0
#: What an example of a command begins with: below its help, and in docs/cli.md.
EXAMPLE: Final = "Example: "

Servers = Annotated[
    str | None,
    typer.Option(
        "--bootstrap-servers", "-b", metavar="HOST:PORT,...", help="Where the cluster is."
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="A Kafka client's properties file, for security settings (and bootstrap.servers).",
    ),
]
LogTopic = Annotated[
    str | None,
    typer.Option(
        "--log-topic",
        metavar="TOPIC",
        help="The topic of the option commitLogTopic; by default that of the file, or "
        "__kprod_commits.",
    ),
]
Timeout = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, max=86_400, help="For each step."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
Watch = Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C.")]


@dataclass(frozen=True, slots=True)
class Where:
    """The cluster, as given on the command line. ``timeout_s`` bounds each step. Without a
    ``log_topic`` it is that of the file, or the usual one.
    """

    bootstrap_servers: str | None
    config_file: Path | None
    log_topic: str | None
    timeout_s: float

    def __post_init__(self) -> None:
        if isnan(self.timeout_s):
            raise typer.BadParameter("--timeout is a number of seconds")

    def again(self) -> str:
        """The options by which another command finds the same cluster and log."""
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
