"""Connects a command to a Kafka cluster, and prints an error as one line.

This module reads the client options of a command line, and formats errors. It has no command.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn

import typer

from spark_kafka_sink.admin.transaction_client import TransactionClient
from spark_kafka_sink.base.error_kinds import Kind
from spark_kafka_sink.base.errors import ConfigError, KafkaError, coded, safe_text
from spark_kafka_sink.base.security.secret_references import is_one_reference
from spark_kafka_sink.cli.arguments import Where
from spark_kafka_sink.cli.progress import shown
from spark_kafka_sink.config.logins.sasl_settings import names_a_known_module
from spark_kafka_sink.config.logins.security_rules import inline_secrets
from spark_kafka_sink.config.names.given import CONFIG_FILE
from spark_kafka_sink.config.names.given_options import given_options
from spark_kafka_sink.config.names.unknown_options import PREFIX, may_be_secret
from spark_kafka_sink.config.parsing import sink_config_of
from spark_kafka_sink.config.producer_config import ProducerConfig
from spark_kafka_sink.config.sink_config import SinkConfig
from spark_kafka_sink.network.client.client_factory import impatient
from spark_kafka_sink.transactions.commit_log.commit_log import CommitLog
from spark_kafka_sink.transactions.operations.operator import Operator

#: Exit codes; BLOCKED is of ``txn blockers``.
FAILED, USAGE, BLOCKED = 1, 2, 3
#: Characters of an error.
_MOST_SHOWN = 2000
#: Seconds until the first broker must respond, even with a longer --timeout.
_MOST_TO_CONNECT = 15.0
#: Seconds after which a message names what the command waits for.
_NOTICE_AFTER_S = 2.0


@dataclass(frozen=True, slots=True)
class Connected:
    """Open connections to a Kafka cluster, and the cluster's commit log."""

    client: TransactionClient
    log: CommitLog
    log_topic: str


@contextmanager
def connected(
    cluster: Where, check: Callable[[], object] = lambda: None, *, as_json: bool = False
) -> Iterator[Connected]:
    """Connects to the cluster while the ``with`` block runs. An error is printed as one line, and
    ends the command with an exit code.

    ``check`` is called before the connection is opened. It raises an error for arguments that are
    wrong for every cluster.
    """
    with one_line_errors():
        config, log_topic = settings_of(cluster, writes=False)
        check()
        # One limit for every request and wait, whatever options of a producer the file has.
        limit_ms = int(cluster.timeout_s * 1000)
        producer = replace(config.producer, max_block_ms=limit_ms, delivery_timeout_ms=limit_ms)
        with TransactionClient(impatient(producer)) as client:
            limit_s = min(cluster.timeout_s, _MOST_TO_CONNECT)
            # A first request checks that a broker responds. Without it, the error of a later
            # request could be misleading.
            with _waiting_notice(config.producer, limit_s):
                client.describe_topics(
                    (), timeout_ms=int(limit_s * 1000), allow_auto_topic_creation=False
                )
            with shown(client.loop, as_json=as_json):
                yield Connected(client, CommitLog(client, log_topic), log_topic)


@contextmanager
def operator_and_log(
    cluster: Where, check: Callable[[], object], *, as_json: bool
) -> Iterator[tuple[Operator, str]]:
    """Connects to the cluster while the ``with`` block runs. Yields a pair: an :class:`Operator`,
    and the name of the commit log's topic. The operator inspects and repairs transactions.
    """
    with connected(cluster, check, as_json=as_json) as to:
        yield Operator(to.log, to.client), to.log_topic


@contextmanager
def operator_of(
    cluster: Where, check: Callable[[], object], *, as_json: bool
) -> Iterator[Operator]:
    """Connects to the cluster while the ``with`` block runs. Yields an :class:`Operator`, which
    inspects and repairs transactions.
    """
    with operator_and_log(cluster, check, as_json=as_json) as (operator, _):
        yield operator


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Prints an error of this package (KafkaError) as one line, and ends the command. Any other
    exception is raised unchanged, so a bug keeps its traceback.
    """
    try:
        yield
    except KafkaError as error:
        _end(error.one_line(), USAGE if isinstance(error, ConfigError) else FAILED)


def fail(message: str, hint: str | None, code: int) -> NoReturn:
    """Prints a message on standard error and exits with the code ``code``."""
    _end(message if hint is None else f"{message} (hint: {hint})", code)


def _end(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"kprod: {safe_text(' '.join(text.split()), _MOST_SHOWN)}\n")
    raise typer.Exit(code)


@contextmanager
def _waiting_notice(config: ProducerConfig, limit_s: float) -> Iterator[None]:
    """Prints a notice if the ``with`` block takes longer than two seconds. The notice has the
    brokers that the command waits for, and the time limit ``limit_s`` in seconds.
    """
    servers = ", ".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    text = f"kprod: waiting for an answer of {safe_text(servers)} ({limit_s:g} s at most) ...\n"
    timer = threading.Timer(_NOTICE_AFTER_S, sys.stderr.write, (text,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def settings_of(
    cluster: Where, more: Mapping[str, object] | None = None, *, writes: bool = True
) -> tuple[SinkConfig, str]:
    """Reads the settings of a write from the command's config file, and from the options in
    ``more``. Returns the settings, and the topic of the commit log.

    If ``writes`` is False, the option ``transaction.timeout.ms`` is ignored. A command that only
    ends existing transactions passes False, because these transactions have their own timeouts.
    """
    config = _config(cluster, more or {}, writes=writes)
    return config, cluster.log_topic or config.commit_log_topic


def _warn_of_secrets(options: Mapping[str, object]) -> None:
    """Warns of each secret on the command line, even if the option's name is misspelt."""
    for name, value in options.items():
        text, is_module = str(value), name.lower().endswith("sasl.jaas.config")
        if not may_be_secret(name.lower()) or is_one_reference(text):
            continue
        if is_module and names_a_known_module(text) and not inline_secrets(text, own_options=True):
            continue
        warning(
            coded(
                Kind.INLINE_SECRET,
                f"{name} is on the command line: the shell's history and ps show it",
                "give a reference, ${file:/path/to/it} or ${env:NAME}, or a file by --config; and"
                " if this one was real, replace it",
            )
        )


def warning(text: str) -> None:
    """Prints a warning on standard error."""
    sys.stderr.write(f"kprod: warning: {safe_text(text, _MOST_SHOWN)}\n")


def _config(cluster: Where, more: Mapping[str, object], *, writes: bool) -> SinkConfig:
    options: dict[str, object] = dict(more)
    if cluster.config_file is not None:
        options[CONFIG_FILE] = cluster.config_file
    if cluster.bootstrap_servers is not None:
        options[f"{PREFIX}bootstrap.servers"] = cluster.bootstrap_servers
    _warn_of_secrets(more)
    given = given_options(options, PREFIX)
    if "bootstrap.servers" not in given.producer:
        raise ConfigError(
            "which cluster? Give --bootstrap-servers HOST:PORT, or --config FILE with "
            "bootstrap.servers in it"
        )
    if not writes:
        given.producer.pop("transaction.timeout.ms", None)
    config = sink_config_of(given)
    for text in config.warnings:
        warning(text)
    return config
