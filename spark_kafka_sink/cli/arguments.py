"""The options that commands share. Owns: their names and help. Never: what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from spark_kafka_sink.config.option_table import COMMIT_LOG_TOPIC

TIMEOUT_S: Final = 30.0

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
        f"{COMMIT_LOG_TOPIC}.",
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, help="For each step.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]
