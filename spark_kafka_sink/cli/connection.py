"""From the options of a command to an operator of a cluster, and from errors to one line.

Owns: which client options a command line gives, and what an error looks like there. Never: a
command (``txn.py``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import typer

from spark_kafka_sink.clock import SystemClock
from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.config_file import OPTION, with_config_file
from spark_kafka_sink.errors import ConfigError, KafkaError, safe_text
from spark_kafka_sink.foreign_options import PREFIX
from spark_kafka_sink.transactions.kafka_decision_log import KafkaDecisionLog
from spark_kafka_sink.transactions.operations import Operator
from spark_kafka_sink.transactions.transaction_client import TransactionClient

#: Exit codes.
FAILED, USAGE = 1, 2
#: Characters of an error.
_MOST_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where to: as given on the command line. ``timeout_s`` bounds each step."""

    bootstrap_servers: str | None
    config_file: Path | None
    log_topic: str
    timeout_s: float


@contextmanager
def operator_of(cluster: Cluster) -> Iterator[Operator]:
    """An operator, for as long as its connections are open. An error ends the command: one line,
    and its exit code.
    """
    with one_line_errors():
        config = _config(cluster)
        with TransactionClient(config) as client:
            yield Operator(
                KafkaDecisionLog(client, cluster.log_topic),
                client,
                SystemClock(),
                block_ms=int(cluster.timeout_s * 1000),
            )


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Of ours; a bug keeps its traceback."""
    try:
        yield
    except KafkaError as error:
        complain(error.message, error.hint, USAGE if isinstance(error, ConfigError) else FAILED)


def complain(message: str, hint: str | None, code: int) -> NoReturn:
    """One line on standard error, and the end."""
    text = message if hint is None else f"{message} (hint: {hint})"
    sys.stderr.write(f"kprod: {safe_text(' '.join(text.split()), _MOST_SHOWN)}\n")
    raise typer.Exit(code)


def _config(cluster: Cluster) -> ProducerConfig:
    options: dict[str, str] = {}
    if cluster.config_file is not None:
        options[OPTION] = str(cluster.config_file)
    if cluster.bootstrap_servers is not None:
        options[f"{PREFIX}bootstrap.servers"] = cluster.bootstrap_servers
    given = with_config_file(options)
    for warning in given.warnings:
        sys.stderr.write(f"kprod: warning: {warning}\n")
    settings = {name.removeprefix(PREFIX): value for name, value in given.options.items()}
    if "bootstrap.servers" not in settings:
        raise ConfigError(
            "which cluster? Give --bootstrap-servers HOST:PORT, or --config FILE with "
            "bootstrap.servers in it"
        )
    return ProducerConfig.parse(settings)
